# The benchmarks' programs. `make bench` runs bench/run; bench/names measures how fast reports find names,
# bench/html how long a page takes.

$(BUILD)/bench/%: bench/%.c $(FLAGS_FILE)
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Werror -o $@ $< -ldl

$(BUILD)/bench/recording $(BUILD)/bench/stacks: $(BUILD)/bench/%: bench/%.c $(CORE_LIB)
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(SAN_FLAGS) -o $@ $< $(CORE_LIB) -l:libjansson.a $(LIBIBERTY)

.PHONY: bench-programs
bench-programs: $(BUILD)/bench/alloc $(BUILD)/bench/recording $(BUILD)/bench/stacks

# bench/tensors: the stand-ins for PyTorch's libraries that the integration tests have.
$(BUILD)/bench/torch/libc10.so: tests/integration/torch_c10.cpp
	$(say) CXX $<
	@mkdir -p $(@D)
	$(Q)$(CXX) -std=gnu++17 -O2 -shared -fPIC -fvisibility=hidden -Wl,-soname,libc10.so -o $@ $<

$(BUILD)/bench/torch/libc10_cuda.so: tests/integration/torch_allocator.cpp $(BUILD)/bench/torch/libc10.so | sim
	$(say) CXX $<
	@mkdir -p $(@D)
	$(Q)$(CXX) -std=gnu++17 -O2 -shared -fPIC -fvisibility=hidden -isystem $(CUDA_INCLUDE) -Wl,-soname,libc10_cuda.so -o $@ $< \
	    -L$(@D) -lc10 -L$(BUILD)/sim -lcudart '-Wl,-rpath,$$ORIGIN' -lpthread

bench-programs: $(BUILD)/bench/torch/libc10_cuda.so
