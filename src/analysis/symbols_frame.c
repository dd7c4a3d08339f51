/*
 * What is known of a frame of a recording: by its file, by the recording, by the process itself; see symbols.h.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "analysis/demangle.h"
#include "analysis/perf_map.h"
#include "analysis/recorded_names.h"
#include "analysis/symbols_parts.h"
#include "recording/reader.h"

#define OWN_EXECUTABLE "/proc/self/exe" /* the program that runs, whatever has become of its file */

const char *vt_symbols_generated(struct vt_symbols *s, int32_t pid, uint64_t start_ticks, uint64_t address)
{
    if (pid != getpid())
        return NULL;
    if (!s->perf_map_read)
        s->perf_map = vt_perf_map_own(pid, start_ticks);
    s->perf_map_read = true;
    return s->perf_map ? vt_perf_map_find(s->perf_map, address) : NULL;
}

void vt_symbols_use_memory(struct vt_symbols *s, vt_symbols_memory *memory)
{
    s->memory = memory;
}

/* The names that a recording brings along, indexed when they are first wanted; NULL: none. */
static const struct vt_recorded_names *names_of(struct vt_symbols *s, const struct vt_reading *reading)
{
    struct vt_symbols_reading *grown;
    uint32_t i;

    for (i = s->reading_count; i--;)
        if (s->readings[i].reading == reading)
            return s->readings[i].names;
    if (!(grown = realloc(s->readings, (s->reading_count + 1) * sizeof *grown)))
        return NULL;
    s->readings = grown;
    grown[s->reading_count] = (struct vt_symbols_reading){reading, vt_recorded_names_open(reading)};
    return grown[s->reading_count++].names;
}

void vt_symbols_forget(struct vt_symbols *s, const struct vt_reading *reading)
{
    uint32_t i;

    for (i = s->reading_count; i--;)
        if (s->readings[i].reading == reading) {
            vt_recorded_names_close(s->readings[i].names);
            s->readings[i] = s->readings[--s->reading_count];
        }
}

bool vt_symbols_recorded(struct vt_symbols *s, const struct vt_reading *reading, const struct vt_frame *frame)
{
    struct vt_symbol unused;

    return vt_recorded_names_find(names_of(s, reading), frame->module, frame->where, &unused);
}

static unsigned id_bytes_of(const struct vt_module *module)
{
    return module->build_id_bytes <= sizeof module->build_id ? module->build_id_bytes : 0;
}

bool vt_symbols_asked(struct vt_symbols *s, const struct vt_reading *reading, const struct vt_frame *frame)
{
    const struct vt_module *module = vt_reading_module(reading, frame->module);

    return module && vt_symbols_answer_at_hand(s, vt_reading_chars(reading, module->path), module->build_id,
                                               id_bytes_of(module), frame->where - 1);
}

/* How much an answer says: a line most, then a name. */
static unsigned worth(const struct vt_symbol *symbol)
{
    unsigned most = 0, one;
    uint32_t i;

    for (i = 0; i < symbol->count; i++) {
        const struct vt_symbol_frame *frame = &symbol->frames[i];

        one = (frame->line ? 4 : 0) + (!frame->function ? 0 : frame->nearest ? 1 : 2);
        most = one > most ? one : most;
    }
    return most;
}

static struct vt_symbol find_generated(struct vt_symbols *s, const struct vt_reading *reading,
                                       const struct vt_module *mapping, const struct vt_frame *frame, bool *known)
{
    const struct vt_header *header = vt_reading_header(reading);
    uint64_t address = frame->where + (mapping ? mapping->bias : 0);
    struct vt_symbol symbol = {NULL, 0};

    *known = vt_recorded_names_find(names_of(s, reading), frame->module, frame->where, &symbol);
    if (*known || !address)
        return symbol;
    s->generated.function = vt_symbols_generated(s, header->pid, header->process_start_ticks, address - 1);
    *known = s->generated.function != NULL;
    return *known ? (struct vt_symbol){&s->generated, 1} : symbol;
}

/* What the process has in its memory. Asked once per address. */
static const struct vt_symbol_frame *find_in_memory(struct vt_symbols *s, const struct vt_module *module,
                                                    const char *path, uint64_t address)
{
    struct vt_symbols_answer *answer = vt_symbols_answer_at_hand(s, path, module->build_id, id_bytes_of(module),
                                                                 address);
    char *name;

    if (!answer || answer->asked_memory)
        return answer ? answer->memory : NULL;
    answer->asked_memory = true;
    if (!(name = s->memory(module, address)))
        return NULL;
    if ((answer->memory = calloc(1, sizeof *answer->memory)))
        answer->memory->function = vt_demangle(name);
    free(name);
    return answer->memory;
}

/* The module's file is of no use, but this may be the process that has it open or loaded. True if somebody knows. */
static bool find_in_process(struct vt_symbols *s, const struct vt_reading *reading, const struct vt_module *module,
                            uint64_t address, struct vt_symbol *symbol)
{
    const struct vt_symbols_answer *own = NULL;
    const struct vt_symbol_frame *frame;

    if (!s->memory)
        return false;
    if (module->path == vt_reading_header(reading)->exe && id_bytes_of(module))
        own = vt_symbols_answer(s, OWN_EXECUTABLE, module->build_id, id_bytes_of(module), address);
    if (own && !own->module->object.problem) {
        *symbol = (struct vt_symbol){own->frames, own->count};
        return true;
    }
    if ((frame = find_in_memory(s, module, vt_reading_chars(reading, module->path), address)))
        *symbol = (struct vt_symbol){frame, 1};
    return frame != NULL;
}

static struct vt_symbol find_in_file(struct vt_symbols *s, const struct vt_reading *reading,
                                     const struct vt_module *module, const struct vt_frame *frame, bool *known)
{
    uint64_t used_ns = vt_reading_header(reading)->start_unix_ns + module->seen_ns;
    struct vt_symbol recorded = {NULL, 0}, symbol = {NULL, 0};
    bool has_recorded = vt_recorded_names_find(names_of(s, reading), frame->module, frame->where, &recorded);
    const struct vt_symbols_answer *answer;
    struct vt_symbols_module *file;
    const char *problem = NULL;

    *known = true;
    if (has_recorded && !id_bytes_of(module))
        return recorded;
    answer = vt_symbols_answer(s, vt_reading_chars(reading, module->path), module->build_id, id_bytes_of(module),
                               frame->where - 1);
    if (answer && !(problem = vt_symbols_problem(answer, used_ns)))
        symbol = (struct vt_symbol){answer->frames, answer->count};
    if (has_recorded)
        return !answer || problem || worth(&recorded) > worth(&symbol) ? recorded : symbol;
    *known = answer && !problem;
    if (!problem)
        return symbol;
    file = answer->module; /* the next question may move the answer */
    *known = find_in_process(s, reading, module, frame->where - 1, &symbol);
    if (!*known)
        vt_symbols_tell(s, file, problem);
    return symbol;
}

struct vt_symbol vt_symbols_frame(struct vt_symbols *s, const struct vt_reading *reading, const struct vt_frame *frame,
                                  bool *known)
{
    const struct vt_module *module = vt_reading_module(reading, frame->module);
    bool unused;

    known = known ? known : &unused;
    *known = false;
    if (!module || module->flags & VT_MODULE_MAPPING)
        return find_generated(s, reading, module, frame, known);
    if (!frame->where)
        return (struct vt_symbol){NULL, 0};
    return find_in_file(s, reading, module, frame, known);
}
