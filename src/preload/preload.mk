# The export list of the library is made from the table of entry points: a line there is all that a new one needs.

EXPORTS := $(BUILD)/exports.map

$(EXPORTS): src/preload/cuda/table.h src/preload/preload.mk
	$(say) GEN $@
	@mkdir -p $(@D)
	$(Q){ echo '{ global:'; \
	      sed -n '/^#define VT_DRIVER_TABLE/,/^#define VT_HELPER_TABLE/p' src/preload/cuda/table.h | \
	          sed -n 's/^ *X(\([A-Za-z0-9_]*\)).*/    \1;/p'; \
	      printf '    %s;\n' dlsym dlclose _exit _Exit quick_exit abort \
          execve execv execvp execvpe fexecve execveat execl execlp execle; \
	      echo 'local: *; };'; } > $@
