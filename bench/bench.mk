# The benchmark's programs. `make bench` runs bench/run.

$(BUILD)/bench/%: bench/%.c $(FLAGS_FILE)
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Werror -o $@ $< -ldl

.PHONY: bench-programs
bench-programs: $(BUILD)/bench/alloc
