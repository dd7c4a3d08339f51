/*
 * The account of each GPU, which adds up to its size, and who holds most of what this process has. Where the process ran out
 * of memory, both are told of that moment first, unless another one was asked for: when a program ends, the exception has let
 * go of what filled the card.
 */
#include <string.h>

#include "analysis/account.h"
#include "analysis/format.h"
#include "analysis/modules.h"
#include "views/moments.h"
#include "views/text.h"

#define OTHERS 5   /* processes that are named one by one */
#define HOLDERS 10 /* places; their stacks are in a section of their own */

static void account_bytes(struct vt_out *out, uint64_t bytes)
{
    char text[VT_FORMAT_BYTES];

    vt_out_format(out, "  %12s  ", vt_format_bytes(text, bytes));
}

static void account_line(struct vt_out *out, uint64_t bytes, const char *label)
{
    account_bytes(out, bytes);
    vt_view_name(out, label, 0);
    vt_out_text(out, "\n");
}

/* The largest other processes, and the rest in one line. */
static void write_others(struct vt_out *out, const struct vt_device_row *d)
{
    uint64_t rest = 0;
    uint32_t i;

    for (i = 0; i < d->other_count; i++) {
        if (i >= OTHERS && d->other_count > OTHERS + 1) {
            rest += d->others[i].bytes;
            continue;
        }
        account_bytes(out, d->others[i].bytes);
        vt_view_name(out, d->others[i].name[0] ? d->others[i].name : "another process", 64);
        vt_out_format(out, " (pid %u)\n", d->others[i].pid);
    }
    if (d->other_count > OTHERS + 1) {
        account_bytes(out, rest);
        vt_out_format(out, "%u more processes\n", d->other_count - OTHERS);
    }
}

static void write_libraries(struct vt_out *out, const struct vt_model *m, const struct vt_device_row *d)
{
    uint32_t i;

    for (i = 0; i < d->library_count; i++) {
        const struct vt_module *module = vt_reading_module(m->reading, d->libraries[i].module);

        account_line(out, d->libraries[i].bytes,
                     module ? vt_basename(vt_reading_chars(m->reading, module->path)) : "?");
    }
}

/* What a training consisted of is gone by its end: then the end alone would say nothing of it. peak: NULL: not to be told. */
static void write_peak(struct vt_out *out, const struct vt_model *peak, const struct vt_device_row *now)
{
    uint32_t i;

    for (i = 0; peak && i < peak->device_count; i++) {
        const struct vt_device_row *d = &peak->devices[i];

        if (d->record->ordinal == now->record->ordinal && d->tensors_known && d->tensors > now->tensors)
            vt_view_tensors_at_peak(out, d);
    }
}

static void write_device(struct vt_out *out, const struct vt_model *m, const struct vt_device_row *d,
                         const struct vt_model *peak)
{
    char text[VT_FORMAT_BYTES];

    vt_out_text(out, "\n");
    vt_out_colour(out, VT_BOLD);
    vt_out_format(out, "GPU %d: ", d->record->ordinal);
    vt_out_name(out, d->record->name, strnlen(d->record->name, sizeof d->record->name), 0);
    if (d->record->total_bytes)
        vt_out_format(out, ", %s", vt_format_bytes(text, d->record->total_bytes));
    vt_out_colour(out, VT_PLAIN);
    vt_out_format(out, "; %s (", vt_view_when(m));
    vt_view_name(out, m->moment, 0);
    vt_out_format(out, ", %s)\n", vt_format_seconds(text, m->moment_ns));
    vt_view_account(out, d);
    write_libraries(out, m, d);
    if (d->context_known)
        account_line(out, d->context, "CUDA context and code");
    write_others(out, d);
    if (d->reserved)
        account_line(out, d->reserved, "reserved by the driver");
    if (d->unaccounted_known)
        account_line(out, d->unaccounted, d->others_known ? "unaccounted" : "other processes and unaccounted");
    if (d->free_known)
        account_line(out, d->free, d->free_computed ? "free (computed)" : "free");
    if (d->card_known && d->card_reserved > d->reserved)
        vt_out_format(out, "  (beyond what CUDA offers, the driver reserves another %s)\n",
                      vt_format_bytes(text, d->card_reserved - d->reserved));
    vt_view_reserved(out, m, d);
    write_peak(out, peak, d);
}

static bool holds_anything(const struct vt_model *m)
{
    uint32_t i;

    for (i = 0; i < m->total_count; i++)
        if (m->totals[i].live_bytes)
            return true;
    return false;
}

static void write_moment(struct vt_out *out, const struct vt_analysis *a, const struct vt_model *peak)
{
    uint32_t i;

    for (i = 0; i < a->model.device_count; i++)
        write_device(out, &a->model, &a->model.devices[i], peak);
    vt_text_heading(out, "Who holds it");
    if (!holds_anything(&a->model))
        vt_out_text(out, *a->model.missing      ? "  not in the recording\n"
                         : a->model.total_count ? "  nothing is live\n"
                                                : "  nothing was allocated\n");
    vt_view_holders(out, a, HOLDERS);
}

static void write_both(struct vt_out *out, const struct vt_analysis *then, const struct vt_analysis *a)
{
    bool same = vt_view_holds_the_same(&then->model, &a->model);

    write_moment(out, then, NULL);
    if (!same) {
        write_moment(out, a, NULL);
        return;
    }
    vt_out_format(out, "  (it held the same %s)\n", vt_view_when(&a->model));
}

/* The account at the end, or at the moment that was asked for. */
static void write_last(struct vt_out *out, const struct vt_analysis *a)
{
    struct vt_model peak;

    if (!vt_model_is_end(&a->model) || vt_model_build(&peak, a->model.reading, "peak")) {
        write_moment(out, a, NULL);
        return;
    }
    vt_account_add_parts(&peak, a->symbols);
    write_moment(out, a, &peak);
    vt_model_free(&peak);
}

/* Whoever asks for a moment by its name gets that one alone. */
void vt_text_accounts(struct vt_out *out, const struct vt_analysis *a, const struct vt_report_request *request)
{
    const struct vt_moment *moment = request->moment ? NULL : vt_view_oom_moment(&a->model);
    char name[sizeof moment->name + 1] = "";
    struct vt_analysis then = *a; /* names and style are shared; findings are not looked at */

    if (moment)
        memcpy(name, moment->name, sizeof moment->name);
    if (!moment) {
        write_last(out, a);
        return;
    }
    if (vt_model_build(&then.model, a->model.reading, name)) {
        write_moment(out, a, NULL);
        return;
    }
    vt_account_add_parts(&then.model, then.symbols);
    write_both(out, &then, a);
    vt_model_free(&then.model);
}
