/*
 * The fixed texts of the pages around the block of JSON, as the build has put them together (html_page.S). Each is three
 * parts: what comes before the block, what comes behind it up to the library that all pages have, and the rest.
 */
#include "views/html.h"

#define PART(name) extern const char vt_html_##name[], vt_html_##name##_end[]
#define PAGE(name)                                                                                          \
    {                                                                                                       \
        vt_html_##name##_head, vt_html_##name##_head_end, vt_html_##name##_tail, vt_html_##name##_tail_end, \
            vt_html_##name##_rest, vt_html_##name##_rest_end                                                \
    }

PART(report_head);
PART(report_tail);
PART(report_rest);
PART(job_head);
PART(job_tail);
PART(job_rest);
PART(diff_head);
PART(diff_tail);
PART(diff_rest);
PART(d3);

static const struct text {
    const char *head, *head_end, *tail, *tail_end, *rest, *rest_end;
} texts[] = {
    [VT_PAGE_OF_RECORDING] = PAGE(report),
    [VT_PAGE_OF_JOB] = PAGE(job),
    [VT_PAGE_OF_DIFF] = PAGE(diff),
};

static void put(struct vt_page *page, const char *begin, const char *end)
{
    vt_out_bytes(&page->x.out, begin, (size_t)(end - begin));
}

void vt_page_begin(struct vt_page *page, enum vt_page_kind kind, int fd)
{
    vt_out_open(&page->x.out, fd, false);
    put(page, texts[kind].head, texts[kind].head_end);
}

void vt_page_end(struct vt_page *page, enum vt_page_kind kind)
{
    vt_out_text(&page->x.out, ",\n\"left_out\":{");
    vt_page_flush(page, &page->left_out);
    vt_out_text(&page->x.out, "}}\n");
    put(page, texts[kind].tail, texts[kind].tail_end);
    put(page, vt_html_d3, vt_html_d3_end);
    put(page, texts[kind].rest, texts[kind].rest_end);
}
