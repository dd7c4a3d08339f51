/*
 * The report as one page for a browser: the fixed text, and the block of JSON in the middle of it. See html.h.
 *
 * The block (schema vramtrack-page/1, for the page alone) has the report's own keys with their values (docs/vramtrack-report.1,
 * vramtrack-report/1), lists cut where a budget ends ("left_out" says by how many elements), and what is drawn: see the
 * files named in html.h.
 */
#include "views/html.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/format.h"
#include "views/json.h"

/* html_page.S: the page as the build has put it together, before and after the block. */
extern const char vt_html_head[], vt_html_head_end[], vt_html_tail[], vt_html_tail_end[];

static void put(struct vt_page *page, const char *key, json_t *value)
{
    struct vt_page_buffer b = {0};

    vt_page_put(&b, ",\n\"%s\":", key);
    vt_page_put_json(&b, value);
    vt_page_flush(page, &b);
}

/* A list of the report, as far as its budget reaches. */
static void put_list(struct vt_page *page, const char *key, uint64_t count,
                     json_t *(*element)(const struct vt_analysis *a, uint32_t index))
{
    struct vt_page_buffer b = {0};
    size_t before;
    uint32_t i;

    vt_out_format(&page->x.out, ",\n\"%s\":[", key);
    for (i = 0; i < count && !b.failed; i++) {
        before = b.used;
        vt_page_put(&b, "%s", i ? ",\n" : "\n");
        vt_page_put_json(&b, element(&page->x.a, i));
        if (b.used > VT_PAGE_LIST) {
            b.used = before;
            break;
        }
    }
    vt_page_lacks(page, key, count - i);
    vt_page_flush(page, &b);
    vt_out_text(&page->x.out, "]");
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
    put(page, "recording", *path ? vt_json_chars(path) : json_null());
    put(page, "program", vt_json_chars(vt_reading_header(m->reading)->program));
    put(page, "process", vt_json_process(m));
    put(page, "ended", ending(m, request));
    put(page, "all_frames", json_boolean(request->all_frames));
    put(page, "moment", vt_json_chars(m->moment));
    put(page, "moment_s", seconds(m->moment_ns));
    put(page, "training", vt_json_training(m));
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
    vt_out_text(&page->x.out, ",\n\"left_out\":{");
    vt_page_flush(page, &page->left_out);
    vt_out_text(&page->x.out, "}}\n");
}

static bool index_sites(struct vt_page *page)
{
    const struct vt_model *m = &page->x.a.model;
    uint32_t i;

    page->rows = calloc((size_t)m->site_count + 1, sizeof *page->rows);
    page->number_of = calloc((size_t)m->site_count + 1, sizeof *page->number_of);
    for (i = 0; page->rows && i < m->site_count; i++)
        if (m->sites[i].index < m->site_count)
            page->rows[m->sites[i].index] = &m->sites[i];
    return page->rows && page->number_of;
}

int vt_html_write(struct vt_reading *reading, const struct vt_report_request *request)
{
    struct vt_page page;
    int error;

    memset(&page, 0, sizeof page);
    if ((error = vt_view_open(&page.x.a, reading, request)))
        return error;
    vt_out_open(&page.x.out, request->fd, false);
    vt_out_bytes(&page.x.out, vt_html_head, (size_t)(vt_html_head_end - vt_html_head));
    if (index_sites(&page))
        put_report(&page, request);
    else
        vt_export_fail(&page.x, -ENOMEM);
    vt_out_bytes(&page.x.out, vt_html_tail, (size_t)(vt_html_tail_end - vt_html_tail));
    vt_page_stacks_free(&page);
    free(page.rows);
    free(page.number_of);
    return vt_export_close(&page.x);
}
