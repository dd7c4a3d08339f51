/*
 * What all exports share: opening, names made harmless, which places and figures are asked for. See export.h.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/category.h"
#include "analysis/format.h"
#include "analysis/modules.h"
#include "views/export.h"

const char *vt_export_type_name(enum vt_export_type type)
{
    static const char *const names[VT_EXPORT_TYPES] = {"live", "at-peak", "allocated", "leaked"};

    return names[type];
}

int vt_export_open(struct vt_export *x, struct vt_reading *reading, const struct vt_export_request *request)
{
    const struct vt_stack_style style = vt_stack_style_for(reading, request->stacks, request->user_paths);
    int error;

    memset(x, 0, sizeof *x);
    x->request = request;
    if ((error = vt_analysis_open(&x->a, reading, request->moment, request->symbols != NULL, request->symbols, &style)))
        return error;
    vt_out_open(&x->out, request->fd, false);
    return 0;
}

static bool has_nothing(const struct vt_export *x)
{
    uint32_t i;

    for (i = 0; i < x->a.model.site_count; i++)
        if (vt_export_shows(x, &x->a.model.sites[i]) && vt_export_value(&x->a.model.sites[i], x->request->type).bytes)
            return false;
    return true;
}

int vt_export_close(struct vt_export *x)
{
    if (x->request && x->request->nothing) /* a page has no request */
        *x->request->nothing = has_nothing(x);
    vt_analysis_close(&x->a);
    free(x->clean);
    return vt_out_close(&x->out);
}

void vt_export_fail(struct vt_export *x, int error)
{
    if (!x->out.error)
        x->out.error = error;
}

const char *vt_export_clean(struct vt_export *x, const char *text)
{
    size_t length = text ? strlen(text) : 0, at = 0, used = 0;

    unsigned taken;

    if (x->clean_bytes < length * 4 + VT_ESCAPED) {
        char *grown = realloc(x->clean, length * 4 + 64);

        if (!grown) {
            vt_export_fail(x, -ENOMEM);
            return "";
        }
        x->clean = grown;
        x->clean_bytes = length * 4 + 64;
    }
    for (; at < length; at += taken)
        used += vt_escaped(x->clean + used, text + at, length - at, false, &taken);
    x->clean[used] = '\0';
    return x->clean;
}

void vt_export_json(struct vt_export *x, const char *text)
{
    const char *at = vt_export_clean(x, text), *from = at;

    vt_out_text(&x->out, "\"");
    for (; *at; at++)
        if (*at == '"' || *at == '\\') {
            vt_out_bytes(&x->out, from, (size_t)(at - from));
            vt_out_text(&x->out, "\\");
            from = at;
        }
    vt_out_bytes(&x->out, from, (size_t)(at - from));
    vt_out_text(&x->out, "\"");
}

bool vt_export_shows(const struct vt_export *x, const struct vt_site_row *row)
{
    const struct vt_site *site = row->record;

    if (!vt_kind_is_memory(site->kind))
        return false;
    if (x->request->level == VT_EXPORT_ALL)
        return vt_view_is_shown(&x->a, row);
    return site->level == (x->request->level == VT_EXPORT_TENSOR ? VT_LEVEL_TENSOR : VT_LEVEL_DRIVER);
}

static struct vt_export_value leaked(const struct vt_site_row *row)
{
    const struct vt_growth *g = &row->growth;

    if (row->verdict && !strcmp(row->verdict, vt_family_name(VT_FAMILY_LEAK)))
        return (struct vt_export_value){row->live_bytes, row->live_count};
    if (row->verdict && !strcmp(row->verdict, vt_family_name(VT_FAMILY_GROWTH)) && g->bytes > 0) {
        uint64_t bytes = (uint64_t)g->bytes, count = g->allocs > 0 ? (uint64_t)g->allocs : 0;

        return (struct vt_export_value){bytes < row->live_bytes ? bytes : row->live_bytes,
                                        count < row->live_count ? count : row->live_count};
    }
    return (struct vt_export_value){0, 0};
}

struct vt_export_value vt_export_value(const struct vt_site_row *row, enum vt_export_type type)
{
    switch (type) {
    case VT_EXPORT_AT_PEAK:
        return (struct vt_export_value){row->at_peak_bytes, row->at_peak_count};
    case VT_EXPORT_ALLOCATED:
        return (struct vt_export_value){row->record->total_bytes, row->record->alloc_calls};
    case VT_EXPORT_LEAKED:
        return leaked(row);
    default:
        return (struct vt_export_value){row->live_bytes, row->live_count};
    }
}

bool vt_export_has_frame(const struct vt_export *x, const struct vt_display_frame *frame)
{
    return !frame->ours && !frame->replaced && (x->request->all_frames || !frame->hidden);
}

const char *vt_export_label(char buffer[VT_EXPORT_LABEL], const struct vt_display_frame *frame)
{
    return vt_format_place(buffer, VT_EXPORT_LABEL, frame);
}

const char *vt_export_device(char buffer[VT_EXPORT_ROOT], int device)
{
    snprintf(buffer, VT_EXPORT_ROOT, device < 0 ? "host" : "GPU %d", device);
    return buffer;
}

const char *vt_export_kind(const struct vt_site_row *row)
{
    return row->record->level == VT_LEVEL_TENSOR ? "tensors" : vt_kind_name(row->record->kind);
}

const char *vt_export_category(const struct vt_export *x, const struct vt_site_row *row)
{
    const struct vt_module *module;

    if (row->record->level == VT_LEVEL_TENSOR)
        return vt_category_name(vt_category_of(&x->a.model, row, x->a.symbols).main);
    if (row->owner == VT_OWNER_LIBRARY && (module = vt_reading_module(x->a.model.reading, row->module)))
        return vt_basename(vt_reading_chars(x->a.model.reading, module->path));
    return vt_owner_name(row->owner);
}
