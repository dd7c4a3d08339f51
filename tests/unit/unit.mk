# What single unit tests are linked with beyond the core archive (see the rule in the Makefile).

UNIT_LINK_test_ledger := preload/ledger.o preload/arena.o
