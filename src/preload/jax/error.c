/*
 * Errors that mean "out of memory". XLA's arena refuses without a call to the driver, so this is the only place where it
 * can be seen. An error comes back from the call that needed the memory, or later: work runs behind the caller's back, and
 * what became of it is handed out with the buffers, to everybody who waits for one. Whoever gets an error asks for its
 * code; so that is where the later ones are seen, once however many buffers say the same.
 */
#include <errno.h>

#include "preload/context.h"
#include "preload/failure.h"
#include "preload/jax/plugin.h"
#include "preload/report.h"

/* The error that this thread has been told of, until it is destroyed. */
static __thread const void *told;

/* The newest refusal: one that says the same a moment later is the same, seen through another buffer. */
#define SAME_NS 2000000000ull
static struct {
    uint64_t text, time_ns; /* with the lock */
} newest;

struct refusal {
    const struct vt_jax_api *api;
    struct vt_jax_place where;
    uint64_t text; /* hash of the message */
    uint64_t bytes;
    bool memory; /* that is what it is about */
    bool late;   /* not from the call that needed the memory */
};

/* Does the answer to PJRT_Error_GetCode say that something ran out? */
static bool exhausted(const uint64_t *answer)
{
    return (uint32_t)answer[VT_PJRT_Error_GetCode_code] == VT_PJRT_RESOURCE_EXHAUSTED;
}

static uint64_t hash_of(const char *text, uint64_t length)
{
    uint64_t h = 0xcbf29ce484222325ull;
    for (uint64_t i = 0; text && i < length; i++)
        h = (h ^ (unsigned char)text[i]) * 0x100000001b3ull;
    return h;
}

/* PJRT_Error_Message returns nothing, so what it leaves in the register means nothing. */
static void read_message(struct refusal *r, const void *error)
{
    struct vt_pjrt_question q = {.word = {[VT_PJRT_SIZE] = sizeof q, [VT_PJRT_OBJECT] = (uintptr_t)error}};
    vt_jax_real(r->api, VT_PJRT_Error_Message, &q);
    const char *text = (const char *)(uintptr_t)q.word[VT_PJRT_ANSWER];
    uint64_t length = text ? q.word[VT_PJRT_ANSWER_LENGTH] : 0;
    r->text = hash_of(text, length);
    r->memory = vt_jax_is_about_memory(text, length);
    r->bytes = vt_jax_requested_bytes(text, length);
}

/* With the lock held. */
static bool is_repeated(const struct refusal *r)
{
    uint64_t now = vt_now();
    bool same = r->late && newest.text == r->text && newest.time_ns && now - newest.time_ns < SAME_NS;
    newest.text = r->text;
    newest.time_ns = now;
    return same;
}

static void count(const struct refusal *r, uint8_t kind)
{
    uint32_t total = vt_total_index(VT_LEVEL_TENSOR, kind, r->where.device);
    if (total != VT_NONE)
        ((struct vt_total *)vt_writer_at(&vt_state.writer, VT_TOTALS, total))->failed_allocs++;
    struct vt_allocator *a = kind == VT_KIND_DEVICE ? vt_jax_record(r->api, r->where.device) : NULL;
    if (a)
        a->ooms++;
}

static void record(const struct refusal *r)
{
    struct vt_taken_stack t;
    struct vt_jax_arena arena = {0, 0};
    bool known = r->where.kind != VT_KIND_NONE;
    struct vt_failing f = {.api = VT_E_jax,
                           .kind = known ? r->where.kind : VT_KIND_DEVICE,
                           .level = VT_LEVEL_TENSOR,
                           .device = r->where.device,
                           .bytes = r->bytes};
    uint32_t report = VT_NONE;
    vt_take(&t);
    vt_locate(&t);
    if (r->where.device < 0 || vt_where_now().device == r->where.device) /* CUDA speaks of the current device only */
        vt_memory_info(&f.free_bytes, &f.total_bytes);
    vt_jax_note_arena(r->api, r->where.device, 0, &arena);
    f.allocated_bytes = arena.used;
    f.reserved_bytes = arena.reserved;
    if (!vt_state_lock(true))
        return;
    if (!is_repeated(r)) {
        if (known)
            count(r, f.kind);
        vt_failure_framework(&f, &t);
        report = vt_failure_due();
    }
    vt_state_unlock();
    if (report != VT_NONE)
        vt_report_oom(report);
}

static void consider(const struct vt_jax_api *api, const void *error, struct vt_jax_place where, bool late)
{
    struct refusal r = {.api = api, .where = where, .late = late};
    told = error;
    read_message(&r, error);
    if (r.memory)
        record(&r);
}

void vt_jax_failed(const struct vt_jax_api *api, const void *error, struct vt_jax_place where)
{
    struct vt_pjrt_question q;
    if (vt_jax_ask(api, VT_PJRT_Error_GetCode, error, &q) && exhausted(q.word))
        consider(api, error, where, false);
}

void *vt_jax_Error_GetCode(struct vt_jax_api *api, uint64_t *arguments)
{
    void *error = vt_jax_real(api, VT_PJRT_Error_GetCode, arguments);
    int saved = errno;
    if (!error && vt_jax_records(api) && vt_pjrt_has(arguments, VT_PJRT_OBJECT) && exhausted(arguments)) {
        const void *asked = (const void *)(uintptr_t)arguments[VT_PJRT_OBJECT];
        if (asked != told)
            consider(api, asked, vt_jax_place_on(NULL), true);
    }
    errno = saved;
    return error;
}

void *vt_jax_Error_Destroy(struct vt_jax_api *api, uint64_t *arguments)
{
    if (told && vt_pjrt_has(arguments, VT_PJRT_OBJECT) && (uintptr_t)told == arguments[VT_PJRT_OBJECT])
        told = NULL;
    return vt_jax_real(api, VT_PJRT_Error_Destroy, arguments);
}
