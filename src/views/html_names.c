/*
 * What the page calls its places. Many read alike by the line that is to blame (one helper allocates for everybody), so the
 * places that matter most are named as in the text report, with the caller in which they differ: "zeros (train.py:6) <
 * validate (train.py:15)". The table, the timeline and the map of segments use these names. Of the others, the line alone.
 */
#include <stdlib.h>
#include <string.h>

#include "analysis/places.h"
#include "views/html.h"

#define NAMED 600u /* telling places apart costs the square of their number */

void vt_page_name_sites(struct vt_page *page, const struct vt_site_row *const *list, uint32_t count)
{
    uint32_t named = count < NAMED ? count : NAMED, i;
    const struct vt_site **sites = calloc((size_t)named + 1, sizeof *sites);
    char name[VT_PLACE_NAME];
    struct vt_places places;

    if (!sites)
        return; /* lines have to do */
    for (i = 0; i < named; i++)
        sites[i] = list[i]->record;
    if (!vt_places_build(&places, page->x.a.model.reading, page->x.a.symbols, &page->x.a.style, sites, named))
        for (i = 0; i < named && i < places.count; i++)
            if (places.list[i].caller && list[i]->index < page->x.a.model.site_count && !page->names[list[i]->index])
                page->names[list[i]->index] = strdup(vt_place_name(name, &places.list[i]));
    vt_places_free(&places);
    free(sites);
}

void vt_page_names_free(struct vt_page *page)
{
    uint32_t i;

    for (i = 0; page->names && i < page->x.a.model.site_count; i++)
        free(page->names[i]);
    free(page->names);
    page->names = NULL;
}
