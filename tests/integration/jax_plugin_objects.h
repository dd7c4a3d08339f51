/* Part of jax_plugin.c: buffers, executables, and runs. */
#ifndef JAX_PLUGIN_OBJECTS_H
#define JAX_PLUGIN_OBJECTS_H

static struct error *refuse(uint64_t bytes)
{
    char text[200];
    snprintf(text, sizeof text, "Out of memory while trying to allocate %llu bytes.", (unsigned long long)bytes);
    return fail(8, text);
}

static uint64_t *used_of(const struct memory *m)
{
    return &the_client->device[m->device].used;
}

static bool on_device(const struct memory *m)
{
    return !strcmp(m->kind, "device");
}

/* An arena that grows asks for twice as much as it needs, then for what it needs. */
static bool grow(int device, uint64_t bytes)
{
    return take_arena(device, 2 * bytes) || take_arena(device, bytes);
}

static struct error *new_buffer(struct memory *m, uint64_t bytes, bool counted, struct buffer **out)
{
    struct error *e = NULL;
    pthread_mutex_lock(&lock);
    if (counted && on_device(m)) {
        if (*used_of(m) + bytes > capacity || (getenv("FAKE_GROWS") && !grow(m->device, bytes)))
            e = refuse(bytes);
        else
            *used_of(m) += bytes;
    }
    pthread_mutex_unlock(&lock);
    if (e)
        return e;
    *out = calloc(1, sizeof **out);
    **out = (struct buffer){MAGIC, bytes, m, false, counted};
    return NULL;
}

static void give_back(struct buffer *b)
{
    pthread_mutex_lock(&lock);
    if (!b->deleted && b->counted && on_device(b->memory))
        *used_of(b->memory) -= b->bytes;
    b->deleted = true;
    pthread_mutex_unlock(&lock);
}

static uint64_t size_of(const int64_t *dims, size_t count)
{
    uint64_t bytes = 1;
    for (size_t i = 0; i < count; i++)
        bytes *= (uint64_t)dims[i];
    return bytes;
}

static struct error *from_host(struct fake_from_host *a)
{
    CHECK(a, buffer);
    struct device *d = a->device ? a->device : the_client->devices[0];
    a->done = NULL;
    return new_buffer(a->memory ? a->memory : d->memories[0], size_of(a->dims, a->num_dims), true,
                      (struct buffer **)&a->buffer);
}

static struct error *uninitialized(struct fake_uninitialized *a)
{
    CHECK(a, buffer);
    struct device *d = a->device ? a->device : the_client->devices[0];
    return new_buffer(a->memory ? a->memory : d->memories[0], size_of(a->dims, a->num_dims), true,
                      (struct buffer **)&a->buffer);
}

static struct error *view(struct fake_view *a)
{
    CHECK(a, memory);
    struct device *d = a->device ? a->device : the_client->devices[0];
    return new_buffer(a->memory ? a->memory : d->memories[0], size_of(a->dims, a->num_dims), false,
                      (struct buffer **)&a->buffer);
}

static struct error *retrieve(struct fake_retrieve *a)
{
    CHECK(a, buffer);
    return new_buffer(the_client->devices[0]->memories[0], (uint64_t)a->buffer_index << 20, true,
                      (struct buffer **)&a->buffer);
}

static struct error *copy_to_device(struct fake_copy *a)
{
    CHECK(a, out);
    return new_buffer(((struct device *)a->where)->memories[0], ((struct buffer *)a->buffer)->bytes, true,
                      (struct buffer **)&a->out);
}

static struct error *copy_to_memory(struct fake_copy *a)
{
    CHECK(a, out);
    return new_buffer(a->where, ((struct buffer *)a->buffer)->bytes, true, (struct buffer **)&a->out);
}

/* The memory goes from one buffer to the other; the amount in use stays. */
static struct buffer *take_over(struct buffer *from)
{
    struct buffer *to = malloc(sizeof *to);
    *to = *from;
    from->deleted = true;
    return to;
}

static struct error *bitcast(struct fake_bitcast *a)
{
    CHECK(a, out);
    a->out = take_over(a->buffer);
    return NULL;
}

static struct error *donate_with_dependency(struct fake_donate *a)
{
    CHECK(a, out);
    a->out = take_over(a->buffer);
    return NULL;
}

static struct error *buffer_delete(struct fake_buffer_args *a)
{
    CHECK(a, buffer);
    give_back(a->buffer);
    return NULL;
}

static struct error *buffer_destroy(struct fake_buffer_args *a)
{
    CHECK(a, buffer);
    struct buffer *b = a->buffer;
    if (!b)
        return NULL;
    if (b->magic != MAGIC)
        abort();
    give_back(b);
    b->magic = 0;
    free(b);
    return NULL;
}

struct size_args {
    HEAD;
    struct buffer *buffer;
    size_t bytes;
};
struct memory_args {
    HEAD;
    struct buffer *buffer;
    struct memory *memory;
};
struct deleted_args {
    HEAD;
    struct buffer *buffer;
    bool deleted;
};

static struct error *buffer_size(struct size_args *a)
{
    CHECK(a, bytes);
    a->bytes = a->buffer->magic == MAGIC ? a->buffer->bytes : (abort(), 0);
    return NULL;
}

static struct error *buffer_memory(struct memory_args *a)
{
    CHECK(a, memory);
    a->memory = a->buffer->magic == MAGIC ? a->buffer->memory : (abort(), NULL);
    return NULL;
}

static struct error *buffer_is_deleted(struct deleted_args *a)
{
    CHECK(a, deleted);
    __atomic_fetch_add(&asked[VT_PJRT_Buffer_IsDeleted], 1, __ATOMIC_RELAXED);
    pthread_mutex_lock(&lock);
    a->deleted = a->buffer->magic == MAGIC ? a->buffer->deleted : (abort(), false);
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* --- executables --- */

struct get_executable_args {
    HEAD;
    struct loaded *loaded;
    struct executable *executable;
};
struct executable_args {
    HEAD;
    struct executable *executable;
    size_t number;
};
struct compiled_args {
    HEAD;
    struct executable *executable;
    int64_t code, arguments, outputs, aliased, temporary, host[5], peak, total, more[3];
};

static struct error *get_executable(struct get_executable_args *a)
{
    CHECK(a, executable);
    a->executable = malloc(sizeof *a->executable);
    a->executable->program = a->loaded->program;
    __atomic_fetch_add(&executables, 1, __ATOMIC_RELAXED);
    return NULL;
}

static struct error *executable_destroy(struct executable_args *a)
{
    free(a->executable);
    __atomic_fetch_sub(&executables, 1, __ATOMIC_RELAXED);
    return NULL;
}

static struct error *executable_name(struct text_args *a)
{
    CHECK(a, size);
    a->text = ((const struct executable *)a->object)->program->name;
    a->size = strlen(a->text);
    return NULL;
}

static struct error *executable_outputs(struct executable_args *a)
{
    CHECK(a, number);
    __atomic_fetch_add(&asked[VT_PJRT_Executable_NumOutputs], 1, __ATOMIC_RELAXED);
    a->number = a->executable->program->outputs;
    return NULL;
}

static struct error *executable_memory(struct compiled_args *a)
{
    CHECK(a, more); /* a struct that has grown: whoever brings an older one gets nothing */
    const struct fake_program *p = a->executable->program;
    a->code = 1000;
    a->temporary = (int64_t)p->temporary;
    for (size_t i = 0; i < p->outputs; i++)
        a->outputs += (int64_t)p->bytes[i];
    return NULL;
}

static struct error *loaded_destroy(struct get_executable_args *a)
{
    free(a->loaded);
    return NULL;
}

static bool kept(const struct fake_options *options, size_t argument)
{
    for (size_t i = 0; options && i < options->num_kept; i++)
        if ((size_t)options->kept[i] == argument)
            return true;
    return false;
}

static struct error *execute(struct fake_execute *a)
{
    CHECK(a, outputs);
    struct loaded *l = a->executable;
    const struct fake_program *p = l->program;
    if (p->error)
        return fail(p->code ? p->code : 8, p->error);
    for (size_t d = 0; d < a->num_devices; d++)
        for (size_t i = 0; i < a->num_args; i++)
            if (i < 64 && p->donated >> i & 1 && !kept(a->options, i))
                give_back(a->arguments[d][i]);
    for (size_t d = 0; d < a->num_devices; d++)
        for (size_t i = 0; i < p->outputs; i++) {
            struct memory *m = l->client->devices[d]->memories[p->pinned >> i & 1];
            struct error *e = new_buffer(m, p->bytes[i], true, (struct buffer **)&a->outputs[d][i]);
            if (e)
                return e;
        }
    return NULL;
}

#endif
