/*
 * speedscope's own format: frames once, and a sampled profile per type whose samples are places and whose weights are
 * bytes. The device and the kind of memory are the two outermost frames. Types without anything are left out, but live.
 */
#include <string.h>

#include "analysis/modules.h"
#include "views/export.h"

/* The outermost frames; they stand behind all others in the table. */
struct roots {
    struct {
        char name[VT_EXPORT_ROOT];
    } list[256];
    uint32_t count;
};

static uint32_t root(struct roots *roots, const char *name)
{
    uint32_t i;

    for (i = 0; i < roots->count; i++)
        if (!strcmp(roots->list[i].name, name))
            return i;
    if (roots->count == sizeof roots->list / sizeof roots->list[0])
        return roots->count - 1; /* a damaged recording: no machine has so many GPUs */
    strncpy(roots->list[roots->count].name, name, VT_EXPORT_ROOT - 1);
    return roots->count++;
}

static void put_sample(struct vt_export *x, const struct vt_export_stacks *s, const struct vt_export_stack *stack,
                       struct roots *roots)
{
    char device[VT_EXPORT_ROOT];
    uint32_t i = stack->count;

    vt_out_format(&x->out, "[%u,%u",
                  s->frames.count + root(roots, vt_export_device(device, stack->row->record->device)),
                  s->frames.count + root(roots, vt_export_kind(stack->row)));
    while (i-- > 0)
        vt_out_format(&x->out, ",%u", s->numbers[stack->first + i]);
    vt_out_text(&x->out, "]");
}

/* True if there is anything of the type. */
static bool put_profile(struct vt_export *x, const struct vt_export_stacks *s, enum vt_export_type type,
                        struct roots *roots, bool first)
{
    uint64_t sum = 0, bytes;
    uint32_t i;
    bool any = false;

    for (i = 0; i < s->count; i++)
        sum += vt_export_value(s->stacks[i].row, type).bytes;
    if (!sum && type != VT_EXPORT_LIVE)
        return false;
    vt_out_format(
        &x->out,
        "%s{\"type\":\"sampled\",\"name\":\"%s\",\"unit\":\"bytes\",\"startValue\":0,\"endValue\":%llu,\n\"samples\":[",
        first ? "" : ",\n", vt_export_type_name(type), (unsigned long long)sum);
    for (i = 0; i < s->count; i++)
        if (vt_export_value(s->stacks[i].row, type).bytes) {
            vt_out_text(&x->out, any ? ",\n" : "");
            put_sample(x, s, &s->stacks[i], roots);
            any = true;
        }
    vt_out_text(&x->out, "],\n\"weights\":[");
    for (any = false, i = 0; i < s->count; i++)
        if ((bytes = vt_export_value(s->stacks[i].row, type).bytes)) {
            vt_out_format(&x->out, any ? ",%llu" : "%llu", (unsigned long long)bytes);
            any = true;
        }
    vt_out_text(&x->out, "]}");
    return true;
}

static void put_frames(struct vt_export *x, const struct vt_export_frames *f, const struct roots *roots)
{
    char label[VT_EXPORT_LABEL];
    uint32_t i;

    for (i = 0; i < f->count; i++) {
        vt_out_text(&x->out, i ? ",\n{\"name\":" : "{\"name\":");
        vt_export_json(x, f->list[i].function ? f->list[i].function : vt_export_label(label, &f->list[i]));
        if (f->list[i].file) {
            vt_out_text(&x->out, ",\"file\":");
            vt_export_json(x, f->list[i].file);
        }
        if (f->list[i].line)
            vt_out_format(&x->out, ",\"line\":%u", f->list[i].line);
        vt_out_text(&x->out, "}");
    }
    for (i = 0; i < roots->count; i++) {
        vt_out_text(&x->out, i || f->count ? ",\n{\"name\":" : "{\"name\":");
        vt_export_json(x, roots->list[i].name);
        vt_out_text(&x->out, "}");
    }
}

static void put_all(struct vt_export *x, const struct vt_export_stacks *s)
{
    struct roots roots = {.count = 0};
    unsigned type, profiles = 0, active = 0;

    vt_out_text(&x->out, "{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\n\"profiles\":[");
    for (type = 0; type < VT_EXPORT_TYPES; type++)
        if (put_profile(x, s, type, &roots, !profiles)) {
            if (type == x->request->type)
                active = profiles;
            profiles++;
        }
    vt_out_text(&x->out, "],\n\"shared\":{\"frames\":[");
    put_frames(x, &s->frames, &roots);
    vt_out_format(&x->out,
                  "]},\n\"activeProfileIndex\":%u,\"exporter\":\"vramtrack@" VT_VERSION "\",\"name\":", active);
    vt_export_json(x, vt_basename(vt_reading_name(x->a.model.reading)));
    vt_out_text(&x->out, "}\n");
}

int vt_speedscope_write(struct vt_reading *reading, const struct vt_export_request *request)
{
    struct vt_export_stacks stacks;
    struct vt_export x;
    int error = vt_export_open(&x, reading, request);

    if (error)
        return error;
    if ((error = vt_export_stacks_build(&stacks, &x)))
        vt_export_fail(&x, error);
    else
        put_all(&x, &stacks);
    vt_export_stacks_free(&stacks);
    return vt_export_close(&x);
}
