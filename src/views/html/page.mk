# The page of `vramtrack report --html`: its fixed text is put together by scripts/page, and is part of the command.

PAGE := $(BUILD)/page
PAGE_OBJ := $(BUILD)/obj/views/html_page.o

$(PAGE)/head: scripts/page $(wildcard src/views/html/*.html src/views/html/*.css src/views/html/*.js) | $(MARKER)
	$(say) PAGE $@
	@mkdir -p $(@D)
	$(Q)scripts/page $(PAGE)/head $(PAGE)/tail

$(PAGE_OBJ): src/views/html_page.S $(PAGE)/head $(FLAGS_FILE)
	$(say) AS $<
	@mkdir -p $(@D)
	$(Q)$(CC) -c -o $@ -DVT_PAGE_HEAD='"$(PAGE)/head"' -DVT_PAGE_TAIL='"$(PAGE)/tail"' $<
