# The simulated GPU: libcuda.so.1, libcudart.so.13, a static runtime and libnvidia-ml.so.1, without any CUDA installation
# but its headers.
#
# Included by the top Makefile, or used alone:
#   make -f tests/sim/sim.mk sim BUILD=build CC=gcc CUDA_INCLUDE=/usr/local/cuda/include
# Targets: sim (build everything), sim-check (build and run the self-test).

BUILD ?= build
CUDA_INCLUDE ?= /usr/local/cuda/include

SIM_DIR := $(patsubst %/,%,$(dir $(lastword $(MAKEFILE_LIST))))
SIM_OUT := $(BUILD)/sim
SIM_CFLAGS := -std=gnu11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Werror -isystem $(CUDA_INCLUDE) -idirafter $(SIM_DIR)/fallback $(SIM_SANITIZE)
SIM_HEADERS := $(wildcard $(SIM_DIR)/*.h $(SIM_DIR)/driver/*.h $(SIM_DIR)/runtime/*.h $(SIM_DIR)/nvml/*.h)

SIM_DRIVER_SRC := $(wildcard $(SIM_DIR)/driver/*.c)
SIM_DRIVER_OBJ := $(SIM_DRIVER_SRC:$(SIM_DIR)/driver/%.c=$(SIM_OUT)/obj/driver/%.o)
SIM_BEHIND_OBJ := $(SIM_OUT)/obj/driver/state-behind-stub.o $(filter-out %/state.o,$(SIM_DRIVER_OBJ))
SIM_RUNTIME_SRC := $(wildcard $(SIM_DIR)/runtime/*.c)
SIM_SHARED_OBJ := $(SIM_RUNTIME_SRC:$(SIM_DIR)/runtime/%.c=$(SIM_OUT)/obj/shared/%.o)
SIM_STATIC_OBJ := $(SIM_RUNTIME_SRC:$(SIM_DIR)/runtime/%.c=$(SIM_OUT)/obj/static/%.o)

SIM_LIBS := $(SIM_OUT)/libcuda.so.1 $(SIM_OUT)/libcuda.so.1.1 $(SIM_OUT)/libcuda.so \
            $(SIM_OUT)/libcudart.so.13 $(SIM_OUT)/libcudart.so $(SIM_OUT)/libcudart_static.a \
            $(SIM_OUT)/libnvidia-ml.so.1 $(SIM_OUT)/old/libnvidia-ml.so.1

.PHONY: sim sim-check sim-clean
sim: $(SIM_LIBS)

$(SIM_OUT)/obj/driver/%.o: $(SIM_DIR)/driver/%.c $(SIM_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(SIM_CFLAGS) -fPIC -fvisibility=hidden -c $< -o $@

$(SIM_OUT)/obj/driver/state-behind-stub.o: $(SIM_DIR)/driver/state.c $(SIM_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(SIM_CFLAGS) -fPIC -fvisibility=hidden -DSIM_BEHIND_STUB -c $< -o $@

$(SIM_OUT)/obj/shared/%.o: $(SIM_DIR)/runtime/%.c $(SIM_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(SIM_CFLAGS) -fPIC -c $< -o $@

$(SIM_OUT)/obj/static/%.o: $(SIM_DIR)/runtime/%.c $(SIM_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(SIM_CFLAGS) -fPIC -fvisibility=hidden -c $< -o $@

# -Bsymbolic: calls and address tables inside the driver never reach an interposer, as in the real one.
$(SIM_OUT)/libcuda.so.1: $(SIM_DRIVER_OBJ)
	$(CC) $(SIM_CFLAGS) -shared -Wl,-Bsymbolic -Wl,-soname,libcuda.so.1 $^ -o $@ -ldl -lpthread

$(SIM_OUT)/libcuda.so.1.1: $(SIM_BEHIND_OBJ)
	$(CC) $(SIM_CFLAGS) -shared -Wl,-Bsymbolic -Wl,-soname,libcuda.so.1.1 $^ -o $@ -ldl -lpthread

$(SIM_OUT)/libcudart.so.13: $(SIM_SHARED_OBJ) $(SIM_DIR)/runtime/libcudart.map
	$(CC) $(SIM_CFLAGS) -shared -Wl,-Bsymbolic -Wl,-soname,libcudart.so.13 \
	    -Wl,--version-script=$(SIM_DIR)/runtime/libcudart.map $(SIM_SHARED_OBJ) -o $@ -ldl -lpthread

$(SIM_OUT)/libcudart_static.a: $(SIM_STATIC_OBJ)
	rm -f $@
	$(AR) rcs $@ $^

$(SIM_OUT)/libcuda.so: $(SIM_OUT)/libcuda.so.1
	ln -sf libcuda.so.1 $@

$(SIM_OUT)/libcudart.so: $(SIM_OUT)/libcudart.so.13
	ln -sf libcudart.so.13 $@

$(SIM_OUT)/libnvidia-ml.so.1: $(SIM_DIR)/nvml/nvml.c $(SIM_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(SIM_CFLAGS) -fPIC -fvisibility=hidden -shared -Wl,-soname,libnvidia-ml.so.1 $< -o $@ -ldl

$(SIM_OUT)/old/libnvidia-ml.so.1: $(SIM_DIR)/nvml/nvml.c $(SIM_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(SIM_CFLAGS) -DSIM_NVML_OLD -fPIC -fvisibility=hidden -shared -Wl,-soname,libnvidia-ml.so.1 $< -o $@ -ldl

# The self-test, once against each runtime.  The driver is found as programs find it: by name, through the search path.
SIM_TEST_SRC := $(SIM_DIR)/sim_selftest.c $(SIM_DIR)/selftest_memory.c $(SIM_DIR)/selftest_objects.c \
                $(SIM_DIR)/selftest_runtime.c

$(SIM_OUT)/sim_selftest: $(SIM_TEST_SRC) $(SIM_HEADERS) $(SIM_LIBS)
	$(CC) $(SIM_CFLAGS) $(SIM_TEST_SRC) -o $@ -L$(SIM_OUT) -lcudart -lcuda -ldl -lpthread

$(SIM_OUT)/sim_selftest_static: $(SIM_TEST_SRC) $(SIM_HEADERS) $(SIM_LIBS)
	$(CC) $(SIM_CFLAGS) $(SIM_TEST_SRC) -o $@ $(SIM_OUT)/libcudart_static.a -L$(SIM_OUT) -lcuda -ldl -lpthread

sim-check: $(SIM_OUT)/sim_selftest $(SIM_OUT)/sim_selftest_static
	LD_LIBRARY_PATH=$(SIM_OUT) $(SIM_OUT)/sim_selftest
	LD_LIBRARY_PATH=$(SIM_OUT) $(SIM_OUT)/sim_selftest_static

sim-clean:
	rm -rf $(SIM_OUT)
