/*
 * Categories of tensors under wrappers that train on several GPUs (src/analysis/category_code.c): what they make themselves,
 * and what the model inside them makes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_category_fixture.h"

#define DDP TORCH "nn/parallel/distributed.py"
#define FSDP TORCH "distributed/fsdp/_fully_shard/"
#define ZERO "/env/lib/python3.12/site-packages/deepspeed/runtime/zero/"
#define ENGINE LOOP, "DeepSpeedEngine.__init__", "/env/lib/python3.12/site-packages/deepspeed/runtime/engine.py"

/* What a place with this Python stack is, in `phase`, if its earlier tensors ended so. */
#define EXPECT(category, phase, ended, ...)                                      \
    do {                                                                         \
        begin();                                                                 \
        expect(site(phase, stack(__VA_ARGS__, NULL), CACHING, ended), category); \
        fixture_end(&f);                                                         \
    } while (0)

static void test_data_parallel(void **state)
{
    (void)state;
    EXPECT(VT_CATEGORY_OTHER, 0, NOTHING, LOOP, "Reducer", DDP);
    /* it stands around the model whose forward it is */
    EXPECT(VT_CATEGORY_ACTIVATIONS, 0, IN_BACKWARD, LOOP, CALL, "DistributedDataParallel.forward", DDP, FORWARD);
    EXPECT(VT_CATEGORY_ACTIVATIONS, 0, NOTHING, LOOP, CALL, "DistributedDataParallel.forward", DDP, FORWARD);
    /* its buckets anew */
    EXPECT(VT_CATEGORY_OTHER, 0, NOTHING, LOOP, CALL, "DistributedDataParallel._pre_forward", DDP);
    EXPECT(VT_CATEGORY_OTHER, VT_PHASE_BACKWARD, NOTHING, LOOP, BACKWARD, "allreduce_hook",
           TORCH "distributed/algorithms/ddp_comm_hooks/default_hooks.py");
    /* DataParallel's copies of the parameters, for one forward */
    EXPECT(VT_CATEGORY_OTHER, 0, IN_BACKWARD, LOOP, CALL, "DataParallel.forward", TORCH "nn/parallel/data_parallel.py",
           "replicate", TORCH "nn/parallel/replicate.py");
}

/* Divides the parameters when it wraps, gathers them in forward, and leaves its part of the gradients behind backward. */
static void test_fsdp(void **state)
{
    (void)state;
    EXPECT(VT_CATEGORY_PARAMETERS, 0, NOTHING, LOOP, "fully_shard", FSDP "_fully_shard.py",
           "FSDPParam._init_sharded_param", FSDP "_fsdp_param.py");
    EXPECT(VT_CATEGORY_OTHER, 0, IN_BACKWARD, LOOP, CALL, "FSDPState._pre_forward", FSDP "_fsdp_state.py",
           "DefaultAllocMixin.allocate", FSDP "_fsdp_collectives.py");
    EXPECT(VT_CATEGORY_ACTIVATIONS, 0, IN_BACKWARD, LOOP, CALL, "FSDPState._pre_forward", FSDP "_fsdp_state.py",
           FORWARD);
#define POST_BACKWARD                                                                              \
    LOOP, BACKWARD, "FSDPParamGroup.post_backward", FSDP "_fsdp_param_group.py", "foreach_reduce", \
        FSDP "_fsdp_collectives.py"
    EXPECT(VT_CATEGORY_GRADIENTS, VT_PHASE_BACKWARD, NOTHING, POST_BACKWARD);
    EXPECT(VT_CATEGORY_GRADIENTS, VT_PHASE_BACKWARD, LATER, POST_BACKWARD);
    EXPECT(VT_CATEGORY_OTHER, VT_PHASE_BACKWARD, IN_BACKWARD, POST_BACKWARD);
}

/* DeepSpeed: the parameters in one piece, again in 32 bits for the optimizer, buckets, its part of the gradients. */
static void test_zero(void **state)
{
    (void)state;
    EXPECT(VT_CATEGORY_PARAMETERS, 0, NOTHING, ENGINE, "DeepSpeedZeroOptimizer.__init__", ZERO "stage_1_and_2.py",
           "DeepSpeedZeroOptimizer.flatten_dense_tensors_aligned", ZERO "stage_1_and_2.py", "_flatten_dense_tensors",
           TORCH "_utils.py");
    EXPECT(VT_CATEGORY_OPTIMIZER, 0, NOTHING, ENGINE, "DeepSpeedZeroOptimizer.__init__", ZERO "stage_1_and_2.py");
    EXPECT(VT_CATEGORY_OTHER, 0, NOTHING, ENGINE, "DeepSpeedZeroOptimizer_Stage3._setup_for_real_optimizer",
           ZERO "stage3.py");
    EXPECT(VT_CATEGORY_OPTIMIZER, 0, NOTHING, ENGINE, "DeepSpeedZeroOptimizer_Stage3._setup_for_real_optimizer",
           ZERO "stage3.py", "DeepSpeedZeroOptimizer_Stage3._create_fp32_partitions", ZERO "stage3.py");
    EXPECT(VT_CATEGORY_PARAMETERS, 0, NOTHING, ENGINE, "DeepSpeedZeroOptimizer_Stage3.__init__", ZERO "stage3.py",
           "DeepSpeedZeroOptimizer_Stage3._create_fp16_partitions_with_defragmentation", ZERO "stage3.py");
    EXPECT(VT_CATEGORY_GRADIENTS, VT_PHASE_BACKWARD, LATER, LOOP, BACKWARD,
           "DeepSpeedZeroOptimizer.reduce_ready_partitions_and_remove_grads", ZERO "stage_1_and_2.py");
    EXPECT(VT_CATEGORY_OTHER, VT_PHASE_BACKWARD, LATER, LOOP, BACKWARD, "DeepSpeedZeroOptimizer.process_gradients",
           ZERO "stage_1_and_2.py", "DeepSpeedZeroOptimizer.setup_buckets", ZERO "stage_1_and_2.py");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_data_parallel),
        cmocka_unit_test(test_fsdp),
        cmocka_unit_test(test_zero),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
