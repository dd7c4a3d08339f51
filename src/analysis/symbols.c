/*
 * The symbolizer's files: modules opened once, answers kept by (module, address); see symbols.h. What elfutils has to say
 * is in objfile.c and dwarf.c; what else is known of a frame in symbols_frame.c.
 */
#include "analysis/symbols.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/perf_map.h"
#include "analysis/recorded_names.h"
#include "analysis/symbols_parts.h"

#define SPARE_BYTES (4u << 20) /* what must be free before elfutils is asked */
#define SPARE_EVERY 256        /* answers between two looks */

__attribute__((format(printf, 2, 3))) static void note(struct vt_symbols *s, const char *format, ...)
{
    char text[512];
    va_list arguments;
    uint32_t i;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (i = 0; i < s->note_count; i++)
        if (!strcmp(s->notes[i], text))
            return;
    if (s->note_count < VT_SYMBOLS_NOTES && (s->notes[s->note_count] = strdup(text)))
        s->note_count++;
}

struct vt_symbols *vt_symbols_open(void)
{
    return calloc(1, sizeof(struct vt_symbols));
}

bool vt_symbols_available(const struct vt_symbols *symbols)
{
    (void)symbols;
    return vt_elfutils() != NULL;
}

void vt_symbols_close(struct vt_symbols *s)
{
    uint64_t i;
    uint32_t j;

    if (!s)
        return;
    for (i = 0; i < s->room; i++) {
        for (j = 0; j < s->answers[i].count; j++)
            free((char *)s->answers[i].frames[j].function);
        free(s->answers[i].frames);
        if (s->answers[i].memory)
            free((char *)s->answers[i].memory->function);
        free(s->answers[i].memory);
    }
    for (j = 0; j < s->module_count; j++) {
        vt_object_close(&s->modules[j]->object);
        free(s->modules[j]->path);
        free(s->modules[j]);
    }
    for (j = 0; j < s->note_count; j++)
        free(s->notes[j]);
    for (j = 0; j < s->reading_count; j++)
        vt_recorded_names_close(s->readings[j].names);
    free(s->readings);
    vt_perf_map_free(s->perf_map);
    free(s->answers);
    free(s->modules);
    free(s);
}

static bool is_module(const struct vt_symbols_module *m, const char *path, const uint8_t *id, unsigned bytes)
{
    return m->build_id_bytes == bytes && !memcmp(m->build_id, id, bytes) && !strcmp(m->path, path);
}

static struct vt_symbols_module *add_module(struct vt_symbols *s, const char *path, const uint8_t *id, unsigned bytes)
{
    struct vt_symbols_module *m = calloc(1, sizeof *m), **grown;

    if (!m || !(m->path = strdup(path)) || !(grown = realloc(s->modules, (s->module_count + 1) * sizeof *grown))) {
        if (m)
            free(m->path);
        free(m);
        return NULL;
    }
    s->modules = grown;
    s->modules[s->module_count++] = m;
    memcpy(m->build_id, id, bytes);
    m->build_id_bytes = bytes;
    vt_object_open(&m->object, path, id, bytes);
    return m;
}

void vt_symbols_tell(struct vt_symbols *s, struct vt_symbols_module *m, const char *problem)
{
    if (m->told)
        return;
    m->told = true;
    if (!m->object.elf)
        note(s, "No function names: %s.", problem);
    else if (m->path[0] == '/')
        note(s, "No symbols of %.300s: %s.", m->path, problem);
}

static struct vt_symbols_module *find_module(struct vt_symbols *s, const char *path, const uint8_t *id, unsigned bytes)
{
    uint32_t i;

    for (i = 0; i < s->module_count; i++)
        if (is_module(s->modules[i], path, id, bytes))
            return s->modules[i];
    return add_module(s, path, id, bytes);
}

static uint64_t hash_of(const char *path, const uint8_t *id, unsigned bytes, uint64_t address)
{
    uint64_t hash = 0xcbf29ce484222325u;

    for (; *path; path++)
        hash = (hash ^ (uint8_t)*path) * 0x100000001b3u;
    for (; bytes; bytes--)
        hash = (hash ^ *id++) * 0x100000001b3u;
    hash ^= address * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

/* Doubles the table when it is two thirds full. False when memory ran out. */
static bool make_room(struct vt_symbols *s)
{
    uint64_t room = s->room ? s->room * 2 : 1024, i, at;
    struct vt_symbols_answer *grown;

    if (s->used * 3 < s->room * 2)
        return true;
    if (!(grown = calloc(room, sizeof *grown)))
        return false;
    for (i = 0; i < s->room; i++) {
        if (!s->answers[i].module)
            continue;
        for (at = s->answers[i].hash & (room - 1); grown[at].module; at = (at + 1) & (room - 1))
            ;
        grown[at] = s->answers[i];
    }
    free(s->answers);
    s->answers = grown;
    s->room = room;
    return true;
}

/*
 * elfutils does not survive a lack of memory in all places, and in the recorded process that would be fatal: so there
 * must be plenty before it is asked. Looked at now and then, as looking is not free.
 */
static bool may_ask(struct vt_symbols *s)
{
    void *volatile spare;

    if (s->no_memory || s->used % SPARE_EVERY)
        return !s->no_memory;
    spare = malloc(SPARE_BYTES);
    s->no_memory = !spare;
    free(spare);
    if (s->no_memory)
        note(s, "There was too little memory to look up function names.");
    return !s->no_memory;
}

/* Asks the module's file. An answer that finds no memory is an empty one. */
static void ask(struct vt_symbols_answer *answer)
{
    struct vt_object_frame found[VT_OBJECT_FRAMES];
    uint32_t i, count = vt_object_find(&answer->module->object, answer->address, found);

    if (!count)
        return;
    if (!(answer->frames = calloc(count, sizeof *answer->frames))) {
        for (i = 0; i < count; i++)
            free(found[i].function);
        return;
    }
    answer->count = count;
    for (i = 0; i < count; i++)
        answer->frames[i] = (struct vt_symbol_frame){found[i].function, found[i].file, found[i].line, found[i].nearest};
}

/* The answer that is there already, or the free place where it belongs. */
static struct vt_symbols_answer *place_of(struct vt_symbols *s, uint64_t hash, const char *path, const uint8_t *id,
                                          unsigned bytes, uint64_t address)
{
    uint64_t at = hash & (s->room - 1);

    for (; s->answers[at].module; at = (at + 1) & (s->room - 1))
        if (s->answers[at].hash == hash && s->answers[at].address == address &&
            is_module(s->answers[at].module, path, id, bytes))
            break;
    return &s->answers[at];
}

struct vt_symbols_answer *vt_symbols_answer_at_hand(struct vt_symbols *s, const char *path, const uint8_t *id,
                                                    unsigned bytes, uint64_t address)
{
    struct vt_symbols_answer *answer;

    if (bytes > sizeof s->modules[0]->build_id || !s->room)
        return NULL;
    if (!bytes)
        id = (const uint8_t *)"";
    answer = place_of(s, hash_of(path, id, bytes, address), path, id, bytes, address);
    return answer->module ? answer : NULL;
}

struct vt_symbols_answer *vt_symbols_answer(struct vt_symbols *s, const char *path, const uint8_t *id, unsigned bytes,
                                            uint64_t address)
{
    struct vt_symbols_answer *answer;
    uint64_t hash;

    if (bytes > sizeof s->modules[0]->build_id || !make_room(s))
        return NULL;
    if (!bytes)
        id = (const uint8_t *)"";
    hash = hash_of(path, id, bytes, address);
    answer = place_of(s, hash, path, id, bytes, address);
    if (answer->module)
        return answer;
    if (!may_ask(s))
        return NULL;
    if (s->watch) {
        s->watch->path = path;
        s->watch->asked++;
    }
    answer->address = address;
    answer->hash = hash;
    if (!(answer->module = find_module(s, path, id, bytes)))
        return NULL;
    s->used++;
    ask(answer);
    return answer;
}

const char *vt_symbols_problem(const struct vt_symbols_answer *answer, uint64_t used_ns)
{
    if (answer->module->object.problem)
        return answer->module->object.problem;
    return answer->module->object.changed_ns > used_ns ? "it was changed after the recording saw it in use" : NULL;
}

struct vt_symbol vt_symbols_find_used(struct vt_symbols *s, const char *path, const uint8_t *id, unsigned bytes,
                                      uint64_t used_ns, uint64_t address)
{
    const struct vt_symbols_answer *answer = vt_symbols_answer(s, path, id, bytes, address);
    const char *problem;

    if (!answer)
        return (struct vt_symbol){NULL, 0};
    if ((problem = vt_symbols_problem(answer, used_ns)))
        vt_symbols_tell(s, answer->module, problem);
    return problem ? (struct vt_symbol){NULL, 0} : (struct vt_symbol){answer->frames, answer->count};
}

struct vt_symbol vt_symbols_find(struct vt_symbols *s, const char *path, const uint8_t *id, unsigned bytes,
                                 uint64_t address)
{
    return vt_symbols_find_used(s, path, id, bytes, UINT64_MAX, address);
}

void vt_symbols_watch(struct vt_symbols *s, struct vt_symbols_watch *watch)
{
    s->watch = watch;
}

uint32_t vt_symbols_notes(const struct vt_symbols *s)
{
    return s->note_count;
}

const char *vt_symbols_note(const struct vt_symbols *s, uint32_t index)
{
    return index < s->note_count ? s->notes[index] : "";
}
