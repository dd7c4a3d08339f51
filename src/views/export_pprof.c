/*
 * pprof's profile.proto, gzip'ed. The few messages are written by hand in protobuf's wire format: field numbers are those of
 * github.com/google/pprof/proto/profile.proto. Each message is put together in a buffer, because its length stands before
 * it, and goes through the compressor at once.
 *
 * Strings are numbered as they are written (duplicates are allowed, and compression takes them away). Native frames carry
 * address, mapping and build-id, so that pprof can look up what was not known here.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "analysis/modules.h"
#include "views/export.h"

enum profile {
    SAMPLE_TYPE = 1,
    SAMPLE,
    MAPPING,
    LOCATION,
    FUNCTION,
    STRINGS,
    TIME = 9,
    DURATION,
    COMMENT = 13,
    DEFAULT_TYPE
};

struct message {
    unsigned char *bytes;
    size_t used, room;
};

struct pprof {
    struct vt_export *x;
    z_stream zip;
    uint64_t strings;     /* written so far */
    struct message outer; /* the message that is being put together */
    struct message inner; /* one inside it */
    uint8_t *modules;     /* per module: 1 a frame is in it, 2 with a name, 4 with a file, 8 inlined */
    uint32_t module_count;
    uint32_t *module_of; /* per frame: index of the module; VT_NONE */
};

static void deflate_bytes(struct pprof *p, const void *bytes, size_t count, int flush)
{
    unsigned char packed[16384];
    int result;

    p->zip.next_in = (unsigned char *)bytes;
    p->zip.avail_in = (uInt)count;
    do {
        p->zip.next_out = packed;
        p->zip.avail_out = sizeof packed;
        result = deflate(&p->zip, flush);
        vt_out_bytes(&p->x->out, packed, sizeof packed - p->zip.avail_out);
    } while (p->zip.avail_in || (flush == Z_FINISH && result != Z_STREAM_END && result != Z_STREAM_ERROR));
}

static void put(struct pprof *p, struct message *m, const void *bytes, size_t count)
{
    if (m->used + count > m->room) {
        size_t room = (m->used + count) * 2 + 256;
        unsigned char *grown = realloc(m->bytes, room);

        if (!grown) {
            vt_export_fail(p->x, -ENOMEM);
            return;
        }
        m->bytes = grown;
        m->room = room;
    }
    if (count)
        memcpy(m->bytes + m->used, bytes, count);
    m->used += count;
}

static size_t varint(unsigned char to[10], uint64_t value)
{
    size_t used = 0;

    for (; value > 0x7f; value >>= 7)
        to[used++] = (unsigned char)(value | 0x80);
    to[used++] = (unsigned char)value;
    return used;
}

static void put_varint(struct pprof *p, struct message *m, uint64_t value)
{
    unsigned char bytes[10];

    put(p, m, bytes, varint(bytes, value));
}

/* A field of a number; 0 is what a missing one means. */
static void put_number(struct pprof *p, struct message *m, unsigned field, uint64_t value)
{
    if (!value)
        return;
    put_varint(p, m, field << 3);
    put_varint(p, m, value > INT64_MAX ? INT64_MAX : value);
}

static void put_bytes(struct pprof *p, struct message *m, unsigned field, const void *bytes, size_t count)
{
    put_varint(p, m, field << 3 | 2);
    put_varint(p, m, count);
    put(p, m, bytes, count);
}

/* Writes bytes as a field of the profile itself. */
static void write_field(struct pprof *p, unsigned field, const void *bytes, size_t count)
{
    unsigned char head[20];
    size_t used = varint(head, field << 3 | 2);

    used += varint(head + used, count);
    deflate_bytes(p, head, used, Z_NO_FLUSH);
    if (count)
        deflate_bytes(p, bytes, count, Z_NO_FLUSH);
}

static void write_number(struct pprof *p, unsigned field, uint64_t value)
{
    unsigned char bytes[20];
    size_t used = varint(bytes, field << 3);

    used += varint(bytes + used, value > INT64_MAX ? INT64_MAX : value);
    deflate_bytes(p, bytes, used, Z_NO_FLUSH);
}

static void write_outer(struct pprof *p, unsigned field)
{
    write_field(p, field, p->outer.bytes, p->outer.used);
    p->outer.used = 0;
}

/* Writes a string and returns its number; 0 for one that is empty or NULL. */
static uint64_t string(struct pprof *p, const char *text)
{
    const char *clean = vt_export_clean(p->x, text);

    if (!*clean)
        return 0;
    write_field(p, STRINGS, clean, strlen(clean));
    return p->strings++;
}

static void write_types(struct pprof *p)
{
    static const char *const names[VT_EXPORT_TYPES][2] = {{"live_objects", "live_space"},
                                                          {"at_peak_objects", "at_peak_space"},
                                                          {"allocated_objects", "allocated_space"},
                                                          {"leaked_objects", "leaked_space"}};
    uint64_t count = string(p, "count"), bytes = string(p, "bytes"), first = 0;
    unsigned type, unit;

    for (type = 0; type < VT_EXPORT_TYPES; type++)
        for (unit = 0; unit < 2; unit++) {
            uint64_t name = string(p, names[type][unit]);

            if (unit && type == p->x->request->type)
                first = name;
            p->outer.used = 0;
            put_number(p, &p->outer, 1, name);
            put_number(p, &p->outer, 2, unit ? bytes : count);
            write_outer(p, SAMPLE_TYPE);
        }
    write_number(p, DEFAULT_TYPE, first);
}

/* The module of a native frame: of that path, and with that address in its range where there are several. */
static uint32_t module_of(const struct pprof *p, const struct vt_display_frame *frame)
{
    const struct vt_reading *reading = p->x->a.model.reading;
    uint32_t i, any = VT_NONE;

    for (i = 0; frame->module && i < p->module_count; i++) {
        const struct vt_module *module = vt_reading_module(reading, i);
        const char *path = module ? vt_reading_chars(reading, module->path) : NULL;
        uint64_t address = module ? frame->offset + module->bias : 0;

        if (!path || (path != frame->module && strcmp(path, frame->module) != 0))
            continue;
        any = any == VT_NONE ? i : any;
        if (address >= module->start && address < module->end)
            return i;
    }
    return any;
}

static void find_modules(struct pprof *p, const struct vt_export_frames *f)
{
    uint32_t i;

    for (i = 0; i < f->count; i++) {
        const struct vt_display_frame *frame = &f->list[i];
        uint32_t module = frame->lang == VT_LANG_NATIVE ? module_of(p, frame) : VT_NONE;

        p->module_of[i] = module;
        if (module != VT_NONE)
            p->modules[module] |= (uint8_t)(1 | (frame->function ? 2 : 0) | (frame->file ? 4 : 0) |
                                            (frame->inlined ? 8 : 0));
    }
}

static void write_mapping(struct pprof *p, uint32_t index)
{
    static const char digits[] = "0123456789abcdef";
    const struct vt_module *module = vt_reading_module(p->x->a.model.reading, index);
    uint64_t path = string(p, vt_reading_chars(p->x->a.model.reading, module->path)), id;
    char build_id[2 * sizeof module->build_id + 1] = "";
    unsigned i,
        count = module->build_id_bytes < sizeof module->build_id ? module->build_id_bytes : sizeof module->build_id;

    for (i = 0; i < count; i++) {
        build_id[2 * i] = digits[module->build_id[i] >> 4];
        build_id[2 * i + 1] = digits[module->build_id[i] & 15];
    }
    id = string(p, build_id);
    p->outer.used = 0;
    put_number(p, &p->outer, 1, (uint64_t)index + 1);
    put_number(p, &p->outer, 2, module->start);
    put_number(p, &p->outer, 3, module->end);
    put_number(p, &p->outer, 4,
               module->start - module->bias <= module->end - module->start ? module->start - module->bias : 0);
    put_number(p, &p->outer, 5, path);
    put_number(p, &p->outer, 6, id);
    put_number(p, &p->outer, 7, p->modules[index] & 2);
    put_number(p, &p->outer, 8, p->modules[index] & 4);
    put_number(p, &p->outer, 9, p->modules[index] & 4);
    put_number(p, &p->outer, 10, p->modules[index] & 8);
    write_outer(p, MAPPING);
}

/* Functions are frames without their lines. Numbers are kept: of a frame's function in `functions`, from 1. */
static void write_locations(struct pprof *p, const struct vt_export_frames *f)
{
    struct vt_export_frames functions = {.list = NULL};
    uint32_t i, known = 0;

    for (i = 0; i < f->count && !p->x->out.error; i++) {
        const struct vt_display_frame *frame = &f->list[i];
        struct vt_display_frame plain = {.lang = frame->lang, .function = frame->function, .file = frame->file};
        char label[VT_EXPORT_LABEL];
        uint32_t function;
        const struct vt_module *module = p->module_of[i] == VT_NONE
                                             ? NULL
                                             : vt_reading_module(p->x->a.model.reading, p->module_of[i]);

        if (!frame->function) /* told apart by what stands for the name */
            plain = *frame;
        if ((function = vt_export_frame(&functions, &plain)) == VT_NONE) {
            vt_export_fail(p->x, -ENOMEM);
            break;
        }
        if (function == known) {
            uint64_t name = string(p, frame->function ? frame->function : vt_export_label(label, frame));
            uint64_t file = string(p, frame->file);

            known++;
            p->outer.used = 0;
            put_number(p, &p->outer, 1, known);
            put_number(p, &p->outer, 2, name);
            put_number(p, &p->outer, 3, name);
            put_number(p, &p->outer, 4, file);
            write_outer(p, FUNCTION);
        }
        p->inner.used = p->outer.used = 0;
        put_number(p, &p->inner, 1, (uint64_t)function + 1);
        put_number(p, &p->inner, 2, frame->line);
        put_number(p, &p->outer, 1, (uint64_t)i + 1);
        put_number(p, &p->outer, 2, module ? (uint64_t)p->module_of[i] + 1 : 0);
        put_number(p, &p->outer, 3, frame->lang == VT_LANG_NATIVE ? frame->offset + (module ? module->bias : 0) : 0);
        put_bytes(p, &p->outer, 4, p->inner.bytes, p->inner.used);
        write_outer(p, LOCATION);
    }
    vt_export_frames_free(&functions);
}

/* Labels of a sample: their strings are written before it. */
struct labels {
    uint64_t key[6], value[6];
    unsigned count;
};

static void label(struct pprof *p, struct labels *labels, const char *key, const char *value)
{
    uint64_t name, text;

    if (!value || !*value)
        return;
    name = string(p, key);
    if (!(text = string(p, value)))
        return;
    labels->key[labels->count] = name;
    labels->value[labels->count++] = text;
}

static void write_sample(struct pprof *p, const struct vt_export_stacks *s, const struct vt_export_stack *stack)
{
    const struct vt_site_row *row = stack->row;
    struct labels labels = {.count = 0};
    char device[VT_EXPORT_ROOT];
    uint64_t any = 0;
    unsigned type, i;

    for (type = 0; type < VT_EXPORT_TYPES; type++)
        any |= vt_export_value(row, type).bytes | vt_export_value(row, type).count;
    if (!any)
        return;
    label(p, &labels, "device", vt_export_device(device, row->record->device));
    label(p, &labels, "level", vt_level_name(row->record->level));
    label(p, &labels, "kind", vt_kind_name(row->record->kind));
    label(p, &labels, "category", vt_export_category(p->x, row));
    label(p, &labels, "range", vt_reading_chars(p->x->a.model.reading, row->record->range));
    label(p, &labels, "verdict", row->verdict);
    p->outer.used = p->inner.used = 0;
    for (i = 0; i < stack->count; i++)
        put_varint(p, &p->inner, (uint64_t)s->numbers[stack->first + i] + 1);
    put_bytes(p, &p->outer, 1, p->inner.bytes, p->inner.used);
    p->inner.used = 0;
    for (type = 0; type < VT_EXPORT_TYPES; type++) {
        put_varint(p, &p->inner, vt_export_value(row, type).count);
        put_varint(p, &p->inner, vt_export_value(row, type).bytes);
    }
    put_bytes(p, &p->outer, 2, p->inner.bytes, p->inner.used);
    for (i = 0; i < labels.count; i++) {
        p->inner.used = 0;
        put_number(p, &p->inner, 1, labels.key[i]);
        put_number(p, &p->inner, 2, labels.value[i]);
        put_bytes(p, &p->outer, 3, p->inner.bytes, p->inner.used);
    }
    write_outer(p, SAMPLE);
}

static void write_about(struct pprof *p)
{
    const struct vt_model *m = &p->x->a.model;
    const struct vt_header *h = vt_reading_header(m->reading);
    uint64_t program = string(p, h->program), moment = string(p, m->moment);

    write_number(p, TIME, h->start_unix_ns);
    write_number(p, DURATION, m->duration_ns);
    write_number(p, COMMENT, program);
    write_number(p, COMMENT, moment);
}

static void write_all(struct pprof *p, const struct vt_export_stacks *s)
{
    uint32_t i;

    p->module_count = (uint32_t)vt_reading_count(p->x->a.model.reading, VT_MODULES);
    p->modules = calloc((size_t)p->module_count + 1, 1);
    p->module_of = calloc((size_t)s->frames.count + 1, sizeof *p->module_of);
    if (!p->modules || !p->module_of) {
        vt_export_fail(p->x, -ENOMEM);
        return;
    }
    write_field(p, STRINGS, "", 0);
    p->strings = 1;
    find_modules(p, &s->frames);
    write_types(p);
    write_about(p);
    for (i = 0; i < p->module_count; i++)
        if (p->modules[i])
            write_mapping(p, i);
    write_locations(p, &s->frames);
    for (i = 0; i < s->count && !p->x->out.error; i++)
        write_sample(p, s, &s->stacks[i]);
    deflate_bytes(p, "", 0, Z_FINISH);
}

int vt_pprof_write(struct vt_reading *reading, const struct vt_export_request *request)
{
    struct vt_export_stacks stacks;
    struct vt_export x;
    struct pprof p = {.x = &x};
    int error = vt_export_open(&x, reading, request);

    if (error)
        return error;
    error = vt_export_stacks_build(&stacks, &x);
    if (!error && deflateInit2(&p.zip, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        error = -ENOMEM;
    if (error) {
        vt_export_fail(&x, error);
    } else {
        write_all(&p, &stacks);
        deflateEnd(&p.zip);
    }
    vt_export_stacks_free(&stacks);
    free(p.modules);
    free(p.module_of);
    free(p.outer.bytes);
    free(p.inner.bytes);
    return vt_export_close(&x);
}
