# The pages of `vramtrack report --html` and `diff --html`: their fixed texts are put together by scripts/page, and are part of
# the command.

PAGE := $(BUILD)/page
PAGE_OBJ := $(BUILD)/obj/views/html_page.o

$(PAGE)/.made: scripts/page $(wildcard src/views/html/*.html src/views/html/*.css src/views/html/*.js) | $(MARKER)
	$(say) PAGE $(@D)
	@mkdir -p $(@D)
	$(Q)scripts/page $(PAGE)
	@touch $@

$(PAGE_OBJ): src/views/html_page.S $(PAGE)/.made $(FLAGS_FILE)
	$(say) AS $<
	@mkdir -p $(@D)
	$(Q)$(CC) -c -o $@ -Wa,-I,$(PAGE) $<
