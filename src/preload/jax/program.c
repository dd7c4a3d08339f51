/*
 * Compiled programs: how many outputs a loaded executable has, which arguments its runs have taken over, and what the
 * compiler says of its memory. The recording has one record for all executables of a name: a function that is compiled for
 * a hundred shapes is one program.
 *
 * An executable is known from its first run on. What is said of it is asked then, once, without the lock; the table is kept
 * with the lock held.
 */
#include <errno.h>
#include <string.h>

#include "preload/jax/plugin.h"

#define LOOKED_AT 2   /* all arguments of the first runs are looked at, */
#define LOOK_EVERY 64 /* and of every so many later ones */

struct named {
    UT_hash_handle hh;
    uint64_t name; /* string id */
    uint32_t record;
};

static struct vt_jax_program *programs;
static struct named *names;
static uint32_t generation; /* both tables belong to it: the arena is dropped in the child of a fork */

static void check_generation(void)
{
    if (generation == vt_state.generation)
        return;
    programs = NULL;
    names = NULL;
    generation = vt_state.generation;
}

static struct vt_jax_program *find(const void *executable)
{
    struct vt_jax_program *p = NULL;
    uint64_t key = (uintptr_t)executable;
    check_generation();
    HASH_FIND(hh, programs, &key, sizeof key, p);
    return p;
}

/* What the plugin says of an executable. */
struct description {
    char name[256];
    uint32_t outputs;
    uint64_t temporary, code, arguments, outputs_bytes, aliased;
};

static void ask_name(const struct vt_jax_api *api, const void *executable, struct description *d)
{
    struct vt_pjrt_question q;
    if (!vt_jax_can(api, VT_PJRT_Executable_Name) || !vt_jax_ask(api, VT_PJRT_Executable_Name, executable, &q))
        return;
    uint64_t length = q.word[VT_PJRT_ANSWER_LENGTH];
    if (length >= sizeof d->name)
        length = sizeof d->name - 1;
    memcpy(d->name, (const char *)(uintptr_t)q.word[VT_PJRT_ANSWER], length);
}

static uint64_t size_of(const struct vt_pjrt_question *q, unsigned word)
{
    return (int64_t)q->word[word] > 0 ? q->word[word] : 0;
}

static void ask_memory(const struct vt_jax_api *api, const void *executable, struct description *d)
{
    struct vt_pjrt_question q;
    if (!vt_jax_can(api, VT_PJRT_Executable_GetCompiledMemoryStats) ||
        !vt_jax_ask(api, VT_PJRT_Executable_GetCompiledMemoryStats, executable, &q))
        return;
    d->code = size_of(&q, VT_PJRT_CompiledMemoryStats_code);
    d->arguments = size_of(&q, VT_PJRT_CompiledMemoryStats_arguments);
    d->outputs_bytes = size_of(&q, VT_PJRT_CompiledMemoryStats_outputs);
    d->aliased = size_of(&q, VT_PJRT_CompiledMemoryStats_aliased);
    d->temporary = size_of(&q, VT_PJRT_CompiledMemoryStats_temporary);
}

/* The executable behind a loaded one is made for us to ask it, and has to be given back. */
static bool ask(const struct vt_jax_api *api, const void *loaded, struct description *d)
{
    struct vt_pjrt_question q, end;
    if (!vt_jax_ask(api, VT_PJRT_LoadedExecutable_GetExecutable, loaded, &q) || !q.word[VT_PJRT_ANSWER])
        return false;
    const void *executable = (const void *)(uintptr_t)q.word[VT_PJRT_ANSWER];
    bool known = vt_jax_ask(api, VT_PJRT_Executable_NumOutputs, executable, &q);
    memset(d, 0, sizeof *d);
    d->outputs = (uint32_t)q.word[VT_PJRT_ANSWER];
    if (known) {
        ask_name(api, executable, d);
        ask_memory(api, executable, d);
    }
    vt_jax_ask(api, VT_PJRT_Executable_Destroy, executable, &end);
    return known;
}

/* --- with the lock held --- */

static struct vt_program *record_at(uint32_t index)
{
    return index == VT_NONE ? NULL : vt_writer_at(&vt_state.writer, VT_PROGRAMS, index);
}

/* The record of a name, made at its first use. */
static uint32_t record_of(const char *name)
{
    struct named *n = NULL;
    uint64_t id = vt_intern(*name ? name : "?"), index;
    HASH_FIND(hh, names, &id, sizeof id, n);
    if (n)
        return n->record;
    struct vt_program *r = vt_writer_append(&vt_state.writer, VT_PROGRAMS, &index);
    if (!r)
        return VT_NONE;
    r->name = (uint32_t)id;
    r->framework = VT_FRAMEWORK_JAX;
    r->first_ns = vt_now();
    vt_writer_publish(&vt_state.writer, VT_PROGRAMS);
    if ((n = vt_arena_take(sizeof *n))) {
        n->name = id;
        n->record = (uint32_t)index;
        HASH_ADD(hh, names, name, sizeof n->name, n);
    }
    return (uint32_t)index;
}

static void describe(struct vt_program *r, const struct description *d)
{
    r->executables++;
    r->loaded++;
    if (r->executables > 1 && d->temporary <= r->temporary_bytes)
        return;
    r->temporary_bytes = d->temporary;
    r->code_bytes = d->code;
    r->argument_bytes = d->arguments;
    r->output_bytes = d->outputs_bytes;
    r->aliased_bytes = d->aliased;
}

static size_t bitmap_bytes(uint32_t arguments)
{
    return (arguments + 63) / 64 * sizeof(uint64_t);
}

static struct vt_jax_program *add(const void *executable, uint32_t arguments, const struct description *d)
{
    struct vt_jax_program *p = vt_arena_take(sizeof *p);
    if (!p)
        return NULL;
    p->executable = (uintptr_t)executable;
    p->outputs = d->outputs;
    p->arguments = arguments;
    p->taken = arguments ? vt_arena_take(bitmap_bytes(arguments)) : NULL;
    p->record = record_of(d->name);
    if (record_at(p->record))
        describe(record_at(p->record), d);
    HASH_ADD(hh, programs, executable, sizeof p->executable, p);
    return p;
}

static void drop(struct vt_jax_program *p)
{
    struct vt_program *r = record_at(p->record);
    if (r)
        r->loaded--;
    HASH_DEL(programs, p);
    if (p->taken)
        vt_arena_give(p->taken, bitmap_bytes(p->arguments));
    vt_arena_give(p, sizeof *p);
}

/* --- without --- */

struct vt_jax_program *vt_jax_program_runs(const struct vt_jax_api *api, const void *executable, uint64_t arguments,
                                           bool *all)
{
    struct description d;
    if (!vt_state_lock(true))
        return NULL;
    struct vt_jax_program *p = find(executable);
    if (p && p->arguments != arguments) { /* another one lies there now */
        drop(p);
        p = NULL;
    }
    if (!p) {
        vt_state_unlock();
        if (arguments > UINT32_MAX / 2 || !ask(api, executable, &d) || !vt_state_lock(true))
            return NULL;
        if (!(p = find(executable))) /* another thread may have been faster */
            p = add(executable, (uint32_t)arguments, &d);
    }
    if (p) {
        struct vt_program *r = record_at(p->record);
        p->runs++;
        *all = p->runs <= LOOKED_AT || p->runs % LOOK_EVERY == 0;
        if (r)
            r->runs++;
    }
    vt_state_unlock();
    return p;
}

static void forget(const void *executable)
{
    if (!vt_state_lock(false))
        return;
    struct vt_jax_program *p = find(executable);
    if (p)
        drop(p);
    vt_state_unlock();
}

void vt_jax_forget_programs(void)
{
    struct vt_jax_program *p, *next;
    if (!vt_state_recording() || !vt_state_lock(false))
        return;
    check_generation();
    HASH_ITER(hh, programs, p, next)
    {
        drop(p);
    }
    vt_state_unlock();
}

void *vt_jax_LoadedExecutable_Destroy(struct vt_jax_api *api, uint64_t *arguments)
{
    int saved = errno;
    if (vt_jax_records(api) && vt_state_recording() && vt_pjrt_has(arguments, VT_PJRT_OBJECT))
        forget((const void *)(uintptr_t)arguments[VT_PJRT_OBJECT]);
    errno = saved;
    return vt_jax_real(api, VT_PJRT_LoadedExecutable_Destroy, arguments);
}
