# The demo program, linked with the simulated runtime; tests/demo/run links it with the machine's own where there is a GPU.

$(BUILD)/demo/%.o: tests/demo/%.cpp $(FLAGS_FILE)
	$(say) CXX $<
	@mkdir -p $(@D)
	$(Q)$(CXX) -std=gnu++17 -O1 -g -Wall -Wextra -Werror -isystem $(CUDA_INCLUDE) $(DEPS) -c -o $@ $<

$(BUILD)/demo/train: $(BUILD)/demo/train.o | sim
	$(say) LINK $@
	$(Q)$(CXX) -o $@ $< -L$(BUILD)/sim -l:libcudart.so.13 -Wl,-rpath,$(ABS_BUILD)/sim

demo: $(BUILD)/demo/train
