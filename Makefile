# vramtrack: build, test, install. `make help` lists the targets and the switches.
#
# What gets built
#   $(BUILD)/libvramtrack.so   the recorder: src/preload, src/recording, src/analysis and the views that need only libc
#   $(BUILD)/vramtrack         the command: src/cli, src/views, src/analysis, src/recording; jansson, zlib and ncurses (static)
#                              (both with libiberty's reader of Rust names, static, if it is installed)
#   $(BUILD)/lib/              helper libraries that both open at run time, for machines that lack them
#   $(BUILD)/sim/              the simulated GPU (tests/sim/sim.mk)
# Every .c file is found by wildcard and compiled once, position independent, for the library and the command alike.

VERSION := 0.1.0

MAKEFLAGS += --no-builtin-rules
.SUFFIXES:
.DELETE_ON_ERROR:
.SECONDARY:
.DEFAULT_GOAL := all

# --- switches --------------------------------------------------------------------------------------------------------

ifneq ($(and $(filter 1,$(ASAN)),$(filter 1,$(TSAN))),)
$(error ASAN=1 and TSAN=1 exclude each other)
endif

ifeq ($(ASAN),1)
BUILD ?= build-asan
SAN := asan
SAN_FLAGS := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
OPT ?= -O1
else ifeq ($(TSAN),1)
BUILD ?= build-tsan
SAN := tsan
SAN_FLAGS := -fsanitize=thread -fno-omit-frame-pointer
OPT ?= -O1
endif
BUILD ?= build

ifeq ($(origin CC),default)
CC := gcc
endif
ifeq ($(origin CXX),default)
CXX := $(if $(findstring clang,$(CC)),clang++,g++)
endif
AR := ar
OPT ?= $(if $(filter 1,$(DEBUG)),-O0 -g3,-O2)

ifeq ($(V),1)
Q :=
say = @:
else
Q := @
say = @printf '  %-8s %s\n'
MAKEFLAGS += --no-print-directory
.SILENT: # for the rules of tests/sim/sim.mk, which is used alone as well
endif

PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
LIBDIR ?= $(PREFIX)/lib
MANDIR ?= $(PREFIX)/share/man

# --- what the machine must have --------------------------------------------------------------------------------------
# The marker is a make fragment (CUDA_INCLUDE and CUDA_HOME), so make rebuilds it before it reads on: whatever the first
# target ever asked for is, scripts/bootstrap runs first. It is shared by all build directories.

MARKER := build/.bootstrapped
ifneq ($(filter-out clean distclean help format,$(or $(MAKECMDGOALS),all)),)
include $(MARKER)
endif

$(MARKER): scripts/bootstrap
	@scripts/bootstrap $@

# --- flags -----------------------------------------------------------------------------------------------------------

ARCH := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine 2>/dev/null)))
ABS_BUILD = $(abspath $(BUILD))

INCLUDES = -Iinclude -Isrc -isystem $(CUDA_INCLUDE)
COMMON = -fPIC -fno-plt -fvisibility=hidden -ftls-model=initial-exec $(OPT) -g -Wall -Wextra -Werror $(INCLUDES) \
         -DVT_VERSION='"$(VERSION)"'
# Neighbouring fields of a record put together for one wide store cost more instructions than they save on the path of a tensor.
ALL_CFLAGS = -std=gnu11 -D_GNU_SOURCE= $(COMMON) -fno-tree-slp-vectorize $(CFLAGS)
DEPS = -MMD -MP

# Reads Rust's names. A static archive of position independent code, so library and command can both have it; without it
# those names stay as they are.
LIBIBERTY := $(wildcard $(shell $(CC) -print-file-name=libiberty.a 2>/dev/null))
ifneq ($(LIBIBERTY),)
COMMON += -DVT_LIBIBERTY
endif

# A sanitizer's runtime finds what it intercepts by dlsym, before it is ready for code that it watches: dlsym's own path.
UNSANITIZED := src/preload/resolve.c src/preload/foreign.c src/preload/options.c
sanitize = $(if $(filter $(UNSANITIZED),$<),,$(SAN_FLAGS))
LIB_LDFLAGS = -shared -Wl,-z,now -Wl,-z,relro -Wl,-z,nodelete -Wl,--no-undefined -Wl,-soname,libvramtrack.so $(SAN_FLAGS) $(LDFLAGS)
EXE_LDFLAGS = -Wl,-z,now -Wl,-z,relro $(SAN_FLAGS) $(LDFLAGS)

# clang links its sanitizer runtime into programs only, so a library has the symbols open until it is loaded into one.
ifneq ($(and $(SAN),$(findstring clang,$(CC))),)
LIB_LDFLAGS := $(filter-out -Wl$(,)--no-undefined,$(LIB_LDFLAGS))
endif

# --- sources ---------------------------------------------------------------------------------------------------------

COMMAND_VIEWS := $(wildcard src/views/json*.c src/views/export*.c src/views/html*.c src/views/top*.c src/recording/follow.c src/views/job*.c src/views/diff*.c \
                            src/analysis/job*.c src/analysis/diff*.c src/analysis/site_match.c)
PRELOAD_SRC := $(wildcard src/preload/*.c src/preload/*/*.c)
PRELOAD_ASM := $(wildcard src/preload/dlsym_$(ARCH).S)
CORE_SRC := $(wildcard src/recording/*.c src/analysis/*.c src/views/*.c)
CLI_SRC := $(wildcard src/cli/*.c)

object = $(patsubst src/%.c,$(BUILD)/obj/%.o,$(patsubst src/%.S,$(BUILD)/obj/%.o,$(1)))
PRELOAD_OBJ = $(call object,$(PRELOAD_SRC) $(PRELOAD_ASM))
CORE_OBJ = $(call object,$(CORE_SRC)) $(PAGE_OBJ)
LIB_OBJ = $(PRELOAD_OBJ) $(call object,$(filter-out $(COMMAND_VIEWS),$(CORE_SRC)))
CLI_OBJ = $(call object,$(CLI_SRC)) $(CORE_OBJ)
CORE_LIB = $(BUILD)/obj/libvramtrack_core.a
FLAGS_FILE := $(BUILD)/.flags

# --- targets ---------------------------------------------------------------------------------------------------------

.PHONY: all
all: $(BUILD)/libvramtrack.so $(BUILD)/vramtrack helpers ## the library and the command (default)

# Rules of single folders: the export list, the simulated GPU, the demo; what tests and benchmarks need beyond the usual.
include src/preload/preload.mk
include src/views/html/page.mk
include tests/sim/sim.mk
-include tests/unit/unit.mk
-include tests/integration/integration.mk
include tests/demo/demo.mk
include tests/fuzz/fuzz.mk
-include bench/bench.mk

# Objects depend on the flags: CC=clang or DEBUG=1 in the same directory rebuilds what has to be rebuilt.
$(FLAGS_FILE): FORCE
	@mkdir -p $(@D)
	@printf '%s\n' '$(subst ','\'',$(CC) $(CXX) $(ALL_CFLAGS) $(SAN_FLAGS) $(CXXFLAGS) $(LDFLAGS))' | cmp -s - $@ || \
	 printf '%s\n' '$(subst ','\'',$(CC) $(CXX) $(ALL_CFLAGS) $(SAN_FLAGS) $(CXXFLAGS) $(LDFLAGS))' > $@
.PHONY: FORCE
FORCE:

$(BUILD)/obj/%.o: src/%.c $(FLAGS_FILE)
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(sanitize) $(DEPS) -c -o $@ $<

$(BUILD)/obj/%.o: src/%.S $(FLAGS_FILE)
	$(say) AS $<
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(sanitize) $(DEPS) -c -o $@ $<

# Linked under another name and renamed: a process that has the old file mapped keeps the old file.
$(BUILD)/libvramtrack.so: $(LIB_OBJ) $(EXPORTS)
	$(say) LINK $@
	$(Q)$(CC) $(LIB_LDFLAGS) -Wl,--version-script=$(EXPORTS) -o $@.tmp $(LIB_OBJ) $(LIBIBERTY)
	$(Q)mv -f $@.tmp $@

$(BUILD)/vramtrack: $(CLI_OBJ)
	$(say) LINK $@
	$(Q)$(CC) $(EXE_LDFLAGS) -o $@.tmp $(CLI_OBJ) -l:libjansson.a -l:libz.a -l:libncursesw.a -l:libtinfo.a $(LIBIBERTY)
	$(Q)mv -f $@.tmp $@

$(CORE_LIB): $(CORE_OBJ)
	$(say) AR $@
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# Opened at run time, never linked: a process must not get them into its global scope. Copied because a bare machine
# has none of them; libdw needs libelf, which needs libz, and so on down the list.
HELPERS := libunwind.so.8 libdw.so.1 libelf.so.1 libz.so.1 liblzma.so.5 libbz2.so.1.0
HELPER_FILES = $(HELPERS:%=$(BUILD)/lib/%)

.PHONY: helpers
helpers: $(HELPER_FILES)

$(BUILD)/lib/%: | $(MARKER)
	$(say) COPY $@
	@mkdir -p $(@D)
	$(Q)scripts/find-library $* $(CC) | xargs -r -I{} cp -L {} $@.tmp
	$(Q)test ! -e $@.tmp || mv -f $@.tmp $@

# --- tests -----------------------------------------------------------------------------------------------------------

UNIT_SRC := $(wildcard tests/unit/test_*.c)
UNIT_BIN = $(patsubst tests/unit/%.c,$(BUILD)/unit/%,$(UNIT_SRC))

# One program per file, linked with the core archive. A test of something outside it (src/preload) names the objects:
#   UNIT_LINK_test_table := preload/table.o        in tests/unit/unit.mk
$(BUILD)/unit/%.o: tests/unit/%.c $(FLAGS_FILE)
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(sanitize) $(DEPS) -c -o $@ $<

.SECONDEXPANSION:
$(BUILD)/unit/test_%: $(BUILD)/unit/test_%.o $$(addprefix $$(BUILD)/obj/,$$(UNIT_LINK_test_$$*)) $(CORE_LIB)
	$(say) LINK $@
	$(Q)$(CC) $(EXE_LDFLAGS) -o $@ $(filter %.o,$^) $(CORE_LIB) -l:libjansson.a $(LIBIBERTY) -lcmocka $(UNIT_LIBS_test_$*)

.PHONY: unit
unit: $(UNIT_BIN) ## the unit test programs

.PHONY: tests
tests: all unit sim $(SIM_OUT)/sim_selftest $(SIM_OUT)/sim_selftest_static ## everything that `make check` runs, without running it

CHECK_ENV = BUILD='$(ABS_BUILD)' SAN='$(SAN)' CC='$(CC)' CXX='$(CXX)' CUDA_INCLUDE='$(abspath $(CUDA_INCLUDE))' ARCH='$(ARCH)'

.PHONY: check
check: tests ## unit, simulated GPU and integration tests; one PASS or FAIL line each
	@$(CHECK_ENV) scripts/check

.PHONY: python-matrix
python-matrix: all sim ## the Python frames under interpreters of other Debian releases, and free-threaded ones (root, network)
	@found=$$(scripts/python-roots '$(ABS_BUILD)/python-roots'; \
	    scripts/python-threaded '$(ABS_BUILD)/python-roots/threaded' '$(ABS_BUILD)/python-roots/sid'); \
	printf '%s\n' "$$found" | grep '^SKIP '; roots=$$(printf '%s\n' "$$found" | grep '^/' | paste -sd:); \
	[ -z "$$roots" ] || $(CHECK_ENV) VT_PYTHONS="$$roots" VT_PYTHONS_ONLY=1 tests/python/run

.PHONY: valgrind
valgrind: all sim ## the Python frames and the whole recorder under memcheck, with python3 (a minute)
	@$(CHECK_ENV) scripts/valgrind

.PHONY: check-all
check-all: ## check, then with ASan+UBSan, TSan, and clang -O0, each in its own build directory
	@MAKE='$(MAKE)' scripts/check-all

.PHONY: demo
demo: all sim ## a program that leaks until the GPU is full, and its post-mortem
	@$(CHECK_ENV) CUDA_HOME='$(CUDA_HOME)' tests/demo/run

.PHONY: bench
bench: all sim ## overhead against the same program without vramtrack
	@if [ -x bench/run ]; then $(CHECK_ENV) bench/run; else echo 'bench/run is not there'; exit 1; fi

# --- install ---------------------------------------------------------------------------------------------------------
# Each file is written beside its place and renamed into it, for the reason given at the link step.

.PHONY: install
install: all ## copy to $(DESTDIR)$(PREFIX): bin, lib, share/man
	@scripts/install-file 755 $(BUILD)/vramtrack '$(DESTDIR)$(BINDIR)/vramtrack'
	@scripts/install-file 755 $(BUILD)/libvramtrack.so '$(DESTDIR)$(LIBDIR)/libvramtrack.so'
	@for f in $(BUILD)/lib/*.so*; do \
	    scripts/install-file 644 "$$f" "$(DESTDIR)$(LIBDIR)/vramtrack/$${f##*/}" || exit; done
	@for f in docs/*.1; do scripts/install-file 644 "$$f" "$(DESTDIR)$(MANDIR)/man1/$${f##*/}" || exit; done

.PHONY: uninstall
uninstall: ## remove what install copied
	rm -rf '$(DESTDIR)$(LIBDIR)/vramtrack'
	rm -f '$(DESTDIR)$(BINDIR)/vramtrack' '$(DESTDIR)$(LIBDIR)/libvramtrack.so' \
	      $(patsubst docs/%,'$(DESTDIR)$(MANDIR)/man1/%',$(wildcard docs/*.1))

# --- housekeeping ----------------------------------------------------------------------------------------------------

# Not the two that are tables, whose columns carry meaning.
FORMATTED = $(filter-out include/vramtrack/recording.h src/preload/cuda/table.h,\
            $(wildcard include/vramtrack/*.h src/*/*.[ch] src/*/*/*.[ch] src/*/*/*.js tests/*/*.[ch] tests/*/*/*.[ch] tests/*/*.cpp bench/*.c))

.PHONY: format
format: ## clang-format over all C sources and the page's script
	clang-format -i $(FORMATTED)

.PHONY: lint
lint: all ## formatting, shellcheck and clang's analyzer, as far as they are installed
	@CLANG_FLAGS='-D_GNU_SOURCE= $(INCLUDES) -DVT_VERSION=""' scripts/lint $(FORMATTED)

.PHONY: clean
clean: ## remove the build directories (downloaded CUDA headers stay; distclean removes them too)
	rm -rf build-*/
	if [ -d build ]; then find build -mindepth 1 -maxdepth 1 ! -name cuda-headers -exec rm -rf {} +; fi

.PHONY: distclean
distclean: clean
	rm -rf build

.PHONY: help
help: ## this list
	@echo 'vramtrack $(VERSION)'
	@echo
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | sort | awk -F'|' '{printf "%-18s %s\n", $$1, $$2}'
	@echo
	@echo '  DEBUG=1  no optimisation          ASAN=1  ASan and UBSan, in build-asan    V=1  show the commands'
	@echo '  CC=clang another compiler         TSAN=1  TSan, in build-tsan              BUILD=DIR  build elsewhere'
	@echo '  PREFIX=/usr/local DESTDIR=        for install'

-include $(shell find $(BUILD) -name python-roots -prune -o -name '*.d' -type f -print 2>/dev/null)
