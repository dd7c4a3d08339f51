/*
 * The report of one recording as a page for a browser: what of it is the report's own. See html.h.
 *
 * The block (schema vramtrack-page/1, for the page alone) has the report's own keys with their values (docs/vramtrack-report.1,
 * vramtrack-report/1), lists cut where a budget ends ("left_out" says by how many elements), and what is drawn: see the
 * files named in html.h.
 */
#include "views/html.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/account.h"
#include "analysis/format.h"
#include "views/common.h"
#include "views/json.h"
#include "views/moments.h"

/* A list of the report, as far as its budget reaches. */
struct list {
    const struct vt_analysis *a;
    json_t *(*element)(const struct vt_analysis *a, uint32_t index);
};

static json_t *element_of(const void *of, uint32_t index)
{
    const struct list *list = of;

    return list->element(list->a, index);
}

static void put_list(struct vt_page *page, const char *key, uint64_t count,
                     json_t *(*element)(const struct vt_analysis *a, uint32_t index))
{
    vt_page_put_list(page, key, count, VT_PAGE_LIST, element_of, &(struct list){&page->x.a, element});
}

/* What the recording lacks: "missing" names it, "incomplete" says it as the text report does. Null: it is whole. */
static void put_gaps(struct vt_page *page)
{
    const struct vt_model *m = &page->x.a.model;
    char words[sizeof m->missing + 80];

    snprintf(words, sizeof words, "The recording is incomplete: %s %s, what follows may be too little.", m->missing,
             vt_view_are_missing(m));
    vt_page_put_key(page, "missing", m->missing[0] ? vt_json_chars(m->missing) : json_null());
    vt_page_put_key(page, "incomplete", m->missing[0] ? vt_json_chars(words) : json_null());
}

static json_t *account_moment(const struct vt_model *m, bool same)
{
    json_t *object = json_object();

    set(object, "name", vt_json_chars(m->moment));
    set(object, "time_s", seconds(m->moment_ns));
    set(object, "when", json_string(vt_view_when(m)));
    set(object, "same", json_boolean(same));
    return object;
}

/* The account of the moment at which memory ran out, if another one is shown that nobody asked for, as the text report has it:
 * "then" says when that was and if this process held the same as at the shown moment; "then_devices" are the GPUs then. */
static void put_accounts(struct vt_page *page, const struct vt_report_request *request)
{
    const struct vt_moment *moment = request->moment ? NULL : vt_view_oom_moment(&page->x.a.model);
    struct vt_analysis then = page->x.a; /* the symbols are shared */
    char name[sizeof moment->name + 1] = "";
    uint32_t count;

    vt_page_put_key(page, "shown", account_moment(&page->x.a.model, true));
    if (moment)
        memcpy(name, moment->name, sizeof moment->name);
    if (!moment || vt_model_build(&then.model, page->x.a.model.reading, name)) {
        vt_page_put_key(page, "then", json_null());
        vt_page_put_key(page, "then_devices", json_array());
        return;
    }
    vt_account_add_parts(&then.model, then.symbols);
    count = then.model.device_count;
    vt_page_put_key(page, "then", account_moment(&then.model, vt_view_holds_the_same(&then.model, &page->x.a.model)));
    vt_page_put_list(page, "then_devices", count, VT_PAGE_LIST, element_of, &(struct list){&then, vt_json_device});
    vt_model_free(&then.model);
}

static json_t *note(const struct vt_analysis *a, uint32_t i)
{
    return vt_json_chars(a->model.notes[i]);
}

static json_t *ending(const struct vt_model *m, const struct vt_report_request *request)
{
    char words[VT_END_WORDS];

    return vt_json_chars(vt_model_end_words(words, m, request->status_known, request->status));
}

static void put_report(struct vt_page *page, const struct vt_report_request *request)
{
    struct vt_analysis *a = &page->x.a;
    const struct vt_model *m = &a->model;
    const char *path = request->recording_path ? request->recording_path : vt_reading_name(m->reading);

    vt_out_text(&page->x.out, "{\"schema\":\"vramtrack-page/1\",\"version\":\"" VT_VERSION "\"");
    vt_page_put_key(page, "recording", *path ? vt_json_chars(path) : json_null());
    vt_page_put_key(page, "program", vt_json_chars(vt_reading_header(m->reading)->program));
    vt_page_put_key(page, "process", vt_json_process(m));
    vt_page_put_key(page, "ended", ending(m, request));
    vt_page_put_key(page, "all_frames", json_boolean(request->all_frames));
    vt_page_put_key(page, "moment", vt_json_chars(m->moment));
    vt_page_put_key(page, "moment_s", seconds(m->moment_ns));
    vt_page_put_key(page, "earlier", json_boolean(vt_view_is_earlier(m))); /* than the end: calls came after it */
    vt_page_put_key(page, "training", vt_json_training(m));
    put_gaps(page);
    put_accounts(page, request);
    put_list(page, "devices", m->device_count, vt_json_device);
    put_list(page, "totals", m->total_count, vt_json_total);
    put_list(page, "moments", m->moment_count, vt_json_moment);
    put_list(page, "fragmentation", m->fragmentation.pool_count, vt_json_fragmentation);
    put_list(page, "allocators", vt_reading_count(m->reading, VT_ALLOCATORS), vt_json_allocator);
    put_list(page, "programs", vt_reading_count(m->reading, VT_PROGRAMS), vt_json_program);
    put_list(page, "findings", a->findings.count, vt_json_finding);
    vt_page_write_stacks(page);
    vt_page_write_timeline(page);
    vt_page_write_map(page);
    vt_analysis_take_notes(a);
    put_list(page, "notes", m->note_count, note);
}

static bool index_sites(struct vt_page *page)
{
    const struct vt_model *m = &page->x.a.model;
    uint32_t i;

    page->rows = calloc((size_t)m->site_count + 1, sizeof *page->rows);
    page->number_of = calloc((size_t)m->site_count + 1, sizeof *page->number_of);
    page->names = calloc((size_t)m->site_count + 1, sizeof *page->names);
    for (i = 0; page->rows && i < m->site_count; i++)
        if (m->sites[i].index < m->site_count)
            page->rows[m->sites[i].index] = &m->sites[i];
    return page->rows && page->number_of && page->names;
}

int vt_html_write(struct vt_reading *reading, const struct vt_report_request *request)
{
    struct vt_page page;
    int error;

    memset(&page, 0, sizeof page);
    if ((error = vt_view_open(&page.x.a, reading, request)))
        return error;
    vt_page_begin(&page, VT_PAGE_OF_RECORDING, request->fd);
    if (index_sites(&page))
        put_report(&page, request);
    else
        vt_export_fail(&page.x, -ENOMEM);
    vt_page_end(&page, VT_PAGE_OF_RECORDING);
    vt_page_stacks_free(&page);
    vt_page_names_free(&page);
    free(page.rows);
    free(page.number_of);
    return vt_export_close(&page.x);
}
