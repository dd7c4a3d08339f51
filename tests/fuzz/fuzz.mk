# The fuzz target with clang's libFuzzer, which `make fuzz` runs for FUZZ_SECONDS from the recordings of the unit tests.
# What it finds to be interesting stays in $(FUZZ)/corpus for the next time; what breaks is $(FUZZ)/crash-*.

FUZZ := $(BUILD)/fuzz
FUZZ_CC ?= clang
FUZZ_SECONDS ?= 20
FUZZ_CFLAGS = -std=gnu11 -D_GNU_SOURCE= -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined \
              -fno-omit-frame-pointer -Wall -Wextra -Werror $(INCLUDES) -DVT_VERSION='"$(VERSION)"'
FUZZ_OBJ = $(patsubst %.c,$(FUZZ)/%.o,tests/fuzz/fuzz_reader.c $(wildcard src/recording/reader*.c) src/recording/follow.c $(filter-out src/recording/%,$(CORE_SRC))) $(PAGE_OBJ)

$(FUZZ)/%.o: %.c $(FLAGS_FILE)
	$(say) FUZZ-CC $<
	@mkdir -p $(@D)
	$(Q)$(FUZZ_CC) $(FUZZ_CFLAGS) -fsanitize=fuzzer-no-link $(DEPS) -c -o $@ $<

$(FUZZ)/fuzz_reader: $(FUZZ_OBJ)
	$(say) LINK $@
	$(Q)$(FUZZ_CC) -fsanitize=fuzzer,address,undefined -o $@ $(FUZZ_OBJ) -l:libjansson.a -l:libz.a

$(FUZZ)/make_corpus: tests/fuzz/make_corpus.c $(FLAGS_FILE) $(CORE_LIB)
	$(say) LINK $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(SAN_FLAGS) $(DEPS) -MF $@.d -o $@ $< $(CORE_LIB) -l:libjansson.a $(LIBIBERTY)

.PHONY: fuzz
fuzz: $(FUZZ)/fuzz_reader $(FUZZ)/make_corpus ## arbitrary bytes for whatever reads recordings, for 20 s (needs clang)
	@rm -rf $(FUZZ)/seeds && mkdir -p $(FUZZ)/seeds $(FUZZ)/corpus && $(FUZZ)/make_corpus $(FUZZ)/seeds
	@if $(FUZZ)/fuzz_reader -max_total_time=$(FUZZ_SECONDS) -max_len=131072 -timeout=20 -rss_limit_mb=3072 \
	    -artifact_prefix=$(FUZZ)/ $(FUZZ)/corpus $(FUZZ)/seeds >$(FUZZ)/log 2>&1; then \
	    echo "PASS fuzz/reader: $$(grep '^Done ' $(FUZZ)/log | tail -n 1)"; \
	 else tail -n 40 $(FUZZ)/log; echo 'FAIL fuzz/reader'; exit 1; fi
