/*
 * Steps of a training loop in TensorFlow, as its C API sees them: Keras' fit, and loops that people write, run one compiled
 * function (tf.function) per step, which Python executes with TFE_Execute as the operation
 * "__inference_<name of the Python function>_<number>". The end of one whose name speaks of a step ends the step.
 *
 * Names: "one_step_on_iterator" and "multi_step_on_iterator" (Keras 3), "train_function" (Keras 2), "train_step" and the like.
 * Keras 3 calls the function for evaluation by the same name as that for training, so steps of an evaluation count too.
 */
#include <string.h>

#include "preload/loaded.h"
#include "preload/options.h"
#include "preload/phase.h"
#include "preload/resolve.h"
#include "preload/stack.h"
#include "preload/state.h"
#include "preload/tensorflow/table.h"

typedef void execute_fn(void *operation, void **results, int *count, void *status);
typedef const char *name_fn(const void *operation, void *status);

VT_EXPORT execute_fn TFE_Execute;

static struct {
    execute_fn *execute;
    name_fn *name;
    uint64_t salt; /* what vt_stack_salt() was when they were found */
} real;

/* Every thread finds the same. */
static execute_fn *real_execute(void)
{
    if (__atomic_load_n(&real.salt, __ATOMIC_ACQUIRE) != vt_stack_salt() ||
        !__atomic_load_n(&real.execute, __ATOMIC_RELAXED)) {
        uint64_t salt = vt_stack_salt();
        __atomic_store_n(&real.execute, (execute_fn *)vt_loaded_symbol("", "TFE_Execute"), __ATOMIC_RELAXED);
        __atomic_store_n(&real.name, (name_fn *)vt_loaded_symbol("", "TFE_OpGetName"), __ATOMIC_RELAXED);
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

void TFE_Execute(void *operation, void **results, int *count, void *status)
{
    char name[64];
    execute_fn *execute = real_execute();
    name_fn *ask = __atomic_load_n(&real.name, __ATOMIC_RELAXED);
    if (!execute) /* nobody but us has it, so nobody can have meant it */
        return;
    /* asked before: running it may end the operation's life */
    bool step = ask && !vt_options()->off && vt_state_recording() && is_step(ask(operation, status), name, sizeof name);
    execute(operation, results, count, status);
    if (step)
        vt_step_end(VT_STEP_OPTIMIZER, name);
}
