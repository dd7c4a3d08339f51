# What single unit tests are linked with beyond the core archive (see the rule in the Makefile).

UNIT_LINK_test_phase := preload/ledger.o preload/phase.o preload/range.o preload/step.o preload/arena.o
UNIT_LINK_test_ledger := preload/ledger.o preload/phase.o preload/range.o preload/step.o preload/arena.o
UNIT_LINK_test_ledger_random := $(UNIT_LINK_test_ledger)
UNIT_LINK_test_clock := preload/clock.o
UNIT_LINK_test_python_lines := preload/python/lines.o
UNIT_LINK_test_python_copies := preload/python/copies.o preload/python/offsets.o
UNIT_LINK_test_python_text := preload/python/text.o preload/python/offsets.o
UNIT_LINK_test_python_interpreter := preload/python/interpreter.o preload/python/offsets.o preload/python/types.o
UNIT_LINK_test_jax_message := preload/jax/message.o
UNIT_LINK_test_output := cli/output.o
