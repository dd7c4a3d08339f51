/*
 * A run of a compiled program: it takes over (donates) arguments, and makes outputs. What is donated ends before the
 * outputs begin, because they are mostly put into it: the other way round each training step would look as if it needed
 * its parameters twice.
 *
 * Which arguments are donated is not said; it is asked of each argument afterwards (IsDeleted). A program takes over the
 * same ones every time, nearly: so all of them are asked about only at the first runs and then now and then, and else
 * those that were donated before. One that is missed ends when its buffer is destroyed, a moment later.
 */
#include <errno.h>

#include "preload/jax/plugin.h"

/* Buffers [device][number]. */
static uint64_t *const *lists(const uint64_t *arguments, unsigned word)
{
    return (uint64_t *const *)(uintptr_t)arguments[word];
}

static bool is_deleted(const struct vt_jax_api *api, uint64_t buffer)
{
    struct vt_pjrt_question q;
    return buffer && vt_jax_ask(api, VT_PJRT_Buffer_IsDeleted, (const void *)(uintptr_t)buffer, &q) &&
           q.word[VT_PJRT_ANSWER] & 0xff;
}

/* Ends those of a device's arguments that are gone. `bits`: which of 64 arguments to look at; returns which are gone. */
static uint64_t end_gone(const struct vt_jax_api *api, const uint64_t *list, uint64_t bits)
{
    uint64_t gone[64], taken = 0;
    unsigned count = 0;
    for (; bits; bits &= bits - 1) {
        unsigned i = (unsigned)__builtin_ctzll(bits);
        if (!is_deleted(api, list[i]))
            continue;
        gone[count++] = list[i];
        taken |= 1ull << i;
    }
    vt_jax_end(gone, count);
    return taken;
}

static void end_donated(const struct vt_jax_api *api, const uint64_t *arguments, struct vt_jax_program *p, bool all)
{
    uint64_t *const *list = lists(arguments, VT_PJRT_Execute_arguments);
    for (uint64_t d = 0; list && d < arguments[VT_PJRT_Execute_devices]; d++)
        for (uint32_t first = 0; list[d] && p->taken && first < p->arguments; first += 64) {
            uint64_t *known = &p->taken[first / 64], mask = __atomic_load_n(known, __ATOMIC_RELAXED);
            if (all)
                mask = p->arguments - first < 64 ? (1ull << (p->arguments - first)) - 1 : ~0ull;
            uint64_t taken = mask ? end_gone(api, list[d] + first, mask) : 0;
            if (taken)
                __atomic_fetch_or(known, taken, __ATOMIC_RELAXED);
        }
}

static void book_outputs(const struct vt_jax_api *api, const uint64_t *arguments, uint32_t outputs,
                         struct vt_taken_stack *t)
{
    uint64_t *const *list = lists(arguments, VT_PJRT_Execute_outputs);
    struct vt_jax_batch batch = {.count = 0};
    uint64_t devices = 0;
    for (uint64_t d = 0; list && d < arguments[VT_PJRT_Execute_devices]; d++)
        for (uint32_t i = 0; list[d] && i < outputs; i++)
            if (list[d][i]) {
                vt_jax_gather(api, &batch, list[d][i], VT_KIND_NONE, t);
                if (batch.count && batch.place.device >= 0)
                    devices |= 1ull << batch.place.device;
            }
    vt_jax_book(&batch, t);
    for (; batch.booked_ns && devices; devices &= devices - 1)
        vt_jax_note_arena(api, __builtin_ctzll(devices), batch.booked_ns, NULL);
}

/* Where the program was to run: where its first argument lies. */
static struct vt_jax_place place_of_run(const struct vt_jax_api *api, const uint64_t *arguments)
{
    uint64_t *const *list = lists(arguments, VT_PJRT_Execute_arguments);
    bool any = list && arguments[VT_PJRT_Execute_devices] && list[0] && arguments[VT_PJRT_Execute_argument_count];
    struct vt_jax_place place = vt_jax_place_on(NULL);
    if (place.kind == VT_KIND_NONE && any)
        place = vt_jax_place_of_buffer(api, (const void *)(uintptr_t)list[0][0]);
    return place;
}

static inline __attribute__((always_inline)) void ran(const struct vt_jax_api *api, const uint64_t *arguments)
{
    struct vt_taken_stack t;
    bool all;
    struct vt_jax_program *p = vt_jax_program_runs(api, (const void *)(uintptr_t)arguments[VT_PJRT_OBJECT],
                                                   arguments[VT_PJRT_Execute_argument_count], &all);
    if (!p)
        return;
    end_donated(api, arguments, p, all);
    vt_take_tensor(&t);
    vt_jax_served();
    book_outputs(api, arguments, p->outputs, &t);
}

void *vt_jax_LoadedExecutable_Execute(struct vt_jax_api *api, uint64_t *arguments)
{
    bool all;
    void *error = vt_jax_allocate(api, VT_PJRT_LoadedExecutable_Execute, arguments);
    int saved = errno;
    if (!vt_jax_records(api) || !vt_pjrt_has(arguments, VT_PJRT_Execute_outputs))
        return error;
    if (!error)
        ran(api, arguments);
    else {
        struct vt_jax_program *p = vt_jax_program_runs(api, (const void *)(uintptr_t)arguments[VT_PJRT_OBJECT],
                                                       arguments[VT_PJRT_Execute_argument_count], &all);
        if (p)
            end_donated(api, arguments, p, true);
        vt_jax_failed(api, error, place_of_run(api, arguments));
    }
    errno = saved;
    return error;
}
