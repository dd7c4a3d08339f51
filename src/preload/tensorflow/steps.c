/*
 * TFE_Execute, the function of TensorFlow's C API by which Python runs every operation. While a thread is inside, others may
 * allocate for it (caller.h), and some of its ends are the ends of steps.
 *
 * Steps of a training loop: Keras' fit, and loops that people write, run one compiled
 * function (tf.function) per step, which Python executes as the operation
 * "__inference_<name of the Python function>_<number>". The end of one whose name speaks of a step ends the step.
 *
 * Names: "one_step_on_iterator" and "multi_step_on_iterator" (Keras 3), "train_function" (Keras 2), "train_step" and the like.
 * Keras 3 calls the function for evaluation by the same name as that for training, so steps of an evaluation count too.
 *
 * An exception or pthread_exit may pass through our frame and must end the call. A personality routine that only looks on
 * sees it without making this library depend on the C++ exception runtime (unwound.h).
 */
#include <string.h>

#include "preload/loaded.h"
#include "preload/options.h"
#include "preload/phase.h"
#include "preload/resolve.h"
#include "preload/stack.h"
#include "preload/state.h"
#include "preload/tensorflow/caller.h"
#include "preload/tensorflow/table.h"
#include "preload/unwound.h"

typedef void execute_fn(void *operation, void **results, int *count, void *status);
typedef const char *name_fn(const void *operation, void *status);

VT_EXPORT execute_fn TFE_Execute;

static struct {
    execute_fn *execute;
    name_fn *name;
    uint64_t salt; /* what vt_stack_salt() was when they were found */
} real;

/* A function of the library that has the allocators and the threads, which is another one than the C API's. */
static const void *framework(void)
{
    const void *found = vt_loaded_symbol("libtensorflow_framework", "_ZN3tsl12BFCAllocator13DeallocateRawEPv");
    return found ? found
                 : vt_loaded_symbol("libtensorflow_framework", "_ZN10tensorflow12BFCAllocator13DeallocateRawEPv");
}

/* Every thread finds the same. */
static execute_fn *real_execute(void)
{
    if (__atomic_load_n(&real.salt, __ATOMIC_ACQUIRE) != vt_stack_salt() ||
        !__atomic_load_n(&real.execute, __ATOMIC_RELAXED)) {
        uint64_t salt = vt_stack_salt();
        execute_fn *execute = (execute_fn *)vt_loaded_symbol("", "TFE_Execute");
        __atomic_store_n(&real.execute, execute, __ATOMIC_RELAXED);
        __atomic_store_n(&real.name, (name_fn *)vt_loaded_symbol("", "TFE_OpGetName"), __ATOMIC_RELAXED);
        vt_tensorflow_note_code((const void *)execute, framework());
        __atomic_store_n(&real.salt, salt, __ATOMIC_RELEASE);
    }
    return __atomic_load_n(&real.execute, __ATOMIC_RELAXED);
}

static bool has(const char *name, const char *word)
{
    return strstr(name, word);
}

/* Copies the name of the Python function if the operation is a step of training. */
static bool is_step(const char *operation, char *name, size_t size)
{
    static const char prefix[] = "__inference_";
    if (!operation || strncmp(operation, prefix, sizeof prefix - 1))
        return false;
    strncpy(name, operation + sizeof prefix - 1, size - 1);
    name[size - 1] = '\0';
    size_t length = strlen(name);
    while (length && name[length - 1] >= '0' && name[length - 1] <= '9')
        name[--length] = '\0';
    if (length && name[length - 1] == '_')
        name[--length] = '\0';
    return (has(name, "step") || has(name, "train")) && !has(name, "test") && !has(name, "eval") &&
           !has(name, "predict") && !has(name, "valid");
}

VT_WATCH_UNWINDING(vt_tensorflow_unwound, vt_tensorflow_leave())

/* Only what runs inside `execute` can throw, so whenever this frame is unwound its call is open. */
static __attribute__((noinline)) VT_UNSANITIZED void inside(execute_fn *execute, void *operation, void **results,
                                                            int *count, void *status)
{
    VT_UNWOUND_BY(vt_tensorflow_unwound);
    execute(operation, results, count, status);
    vt_tensorflow_leave();
}

void TFE_Execute(void *operation, void **results, int *count, void *status)
{
    char name[64];
    execute_fn *execute = real_execute();
    name_fn *ask = __atomic_load_n(&real.name, __ATOMIC_RELAXED);
    if (!execute) /* nobody but us has it, so nobody can have meant it */
        return;
    /* asked before: running it may end the operation's life */
    bool step = ask && !vt_options()->off && vt_state_recording() && is_step(ask(operation, status), name, sizeof name);
    if (vt_options()->python && !vt_options()->off && !vt_state.stopped) {
        vt_tensorflow_enter(__builtin_frame_address(0));
        inside(execute, operation, results, count, status);
    } else
        execute(operation, results, count, status);
    if (step)
        vt_step_end(VT_STEP_OPTIMIZER, name);
}
