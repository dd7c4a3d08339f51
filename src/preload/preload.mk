# The export list of the library is made from the tables of entry points: a line there is all that a new one needs.
# Beside cuda/table.h, every header src/preload/*/*table.h may have one of the form
#
#   #define VT_SOMETHING_EXPORTS(X) \
#       X(elf_name, ...)            \       more arguments are for whoever expands the table
#                                           and an empty line at its end

EXPORTS := $(BUILD)/exports.map
EXPORT_TABLES := $(filter-out src/preload/cuda/%,$(wildcard src/preload/*/*table.h))

$(EXPORTS): src/preload/cuda/table.h $(EXPORT_TABLES) src/preload/preload.mk
	$(say) GEN $@
	@mkdir -p $(@D)
	$(Q){ echo '{ global:'; \
	      sed -n '/^#define VT_DRIVER_TABLE/,/^#define VT_HELPER_TABLE/p' src/preload/cuda/table.h | \
	          sed -n 's/^ *X(\([A-Za-z0-9_]*\)).*/    \1;/p'; \
	      for table in $(EXPORT_TABLES); do \
	          sed -n '/^#define VT_[A-Z_]*EXPORTS(X)/,/^$$/p' $$table | sed -n 's/^ *X(\([A-Za-z0-9_]*\)[,)].*/    \1;/p'; done; \
	      printf '    %s;\n' vramtrack_mark vramtrack_step vramtrack_range_push vramtrack_range_pop vramtrack_moment \
          InitializeInjectionNvtx2 dlsym dlclose _exit _Exit quick_exit abort \
          execve execv execvp execvpe fexecve execveat execl execlp execle; \
	      echo 'local: *; };'; } > $@
