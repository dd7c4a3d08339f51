/*
 * Growth as findings: one for what is likely, one for what is possible, each with a line per place (places.h) and advice by
 * the kind of retention.
 */
#include <stdlib.h>

#include "analysis/format.h"
#include "analysis/frameworks.h"
#include "analysis/growth_rules.h"
#include "analysis/trend.h"

#define EVIDENCE_MAX 8
#define WORTH (1ull << 20) /* growth below this is a list of numbers, and no likely finding */
#define SHARE_MIN 64       /* the same for a place, as a share of all likely growth */

/* What the places of a finding hold, by kinds of retention as well. */
struct sums {
    uint64_t bytes, of[VT_RETENTION_COUNT];
    double per_tick;
    uint32_t places;
    struct vt_place_sum *list; /* by place, largest first */
};

/* As an integer; a figure of a damaged file may exceed what that holds. */
static uint64_t whole(double bytes)
{
    return bytes < 9e18 ? (uint64_t)(bytes + 0.5) : 0;
}

static const char *clock_word(const struct vt_births *births)
{
    return births->clock == VT_CLOCK_PASSES ? "backward pass" : "step";
}

static bool takes(const struct vt_opinion *opinion, enum vt_confidence confidence)
{
    return opinion->grows && opinion->confidence == confidence;
}

/* The list is to be freed. */
static struct sums sum_up(struct vt_finding_builder *b, const struct vt_births *births,
                          const struct vt_row_places *places, const struct vt_opinion *opinions,
                          enum vt_confidence confidence)
{
    bool taken[VT_GROWTH_ROWS] = {false};
    struct sums sums = {0};
    uint32_t i;

    for (i = 0; i < births->rows && i < VT_GROWTH_ROWS; i++) {
        const struct vt_site_row *row = &births->model->sites[i];

        if (!(taken[i] = takes(&opinions[i], confidence)))
            continue;
        sums.bytes += row->live_bytes;
        sums.of[opinions[i].retention] += row->live_bytes;
        sums.per_tick += opinions[i].per_tick;
    }
    sums.list = vt_row_places_sum(b, places, taken, &sums.places);
    return sums;
}

static struct vt_finding *title(struct vt_finding_builder *b, const struct vt_births *births, const struct sums *sums,
                                enum vt_confidence confidence)
{
    const char *what = sums->of[VT_RETAINED_MEMORY] ? "Memory" : "Tensors", *plural = sums->places == 1 ? "" : "s";
    char live[VT_FORMAT_BYTES], step[VT_FORMAT_BYTES];

    vt_format_bytes(live, sums->bytes);
    if (sums->per_tick >= 1)
        return vt_new_finding(b, VT_FAMILY_GROWTH, confidence,
                              "%s grow%s with every %s: by %s a %s at %u place%s, to %s.", what,
                              *what == 'M' ? "s" : "", clock_word(births), vt_format_bytes(step, whole(sums->per_tick)),
                              births->clock == VT_CLOCK_PASSES ? "pass" : "step", sums->places, plural, live);
    return vt_new_finding(b, VT_FAMILY_GROWTH, confidence, "%s in %s of %u place%s that allocated again and again %s.",
                          live, *what == 'M' ? "memory" : "tensors", sums->places, plural,
                          confidence != VT_LIKELY       ? "and never freed any"
                          : sums->of[VT_RETAINED_GRAPH] ? "and never freed any: graphs are kept, round by round"
                                                        : "and kept growing");
}

/* One line for a place: what its rows grew by together, and how they are kept, by the largest of them. */
static void show(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_births *births,
                 const struct vt_row_places *places, const struct vt_place_sum *sum, const struct vt_opinion *opinions)
{
    char name[VT_PLACE_NAME], bytes[VT_FORMAT_BYTES], step[VT_FORMAT_BYTES];
    const char *each = clock_word(births);
    const struct vt_opinion *first = NULL;
    double per_tick = 0;
    uint64_t ticks = 0;
    uint32_t i;

    for (i = 0; i < births->rows; i++) {
        if (!takes(&opinions[i], finding->confidence) || vt_row_place(places, i)->name != sum->place->name)
            continue;
        first = first ? first : &opinions[i];
        per_tick += opinions[i].per_tick;
        ticks = opinions[i].ticks > ticks ? opinions[i].ticks : ticks;
    }
    if (!first || per_tick < 1) {
        vt_show_place(b, finding, sum);
        return;
    }
    vt_add_evidence(b, finding, "%s in %llu by %s: %s more per %s over %llu %s%s; %s.",
                    vt_format_bytes(bytes, sum->bytes), (unsigned long long)sum->count, vt_place_name(name, sum->place),
                    vt_format_bytes(step, whole(per_tick)), each, (unsigned long long)ticks, each,
                    births->clock == VT_CLOCK_PASSES ? "es" : "s", vt_retention_words(first->retention));
}

static void advise(struct vt_finding_builder *b, struct vt_finding *finding, const struct sums *sums)
{
    bool graphs = sums->of[VT_RETAINED_GRAPH] > 0;
    uint32_t i;

    if (graphs) /* keeps what was made beside it, too */
        vt_add_advice(b, finding, sums->of[VT_RETAINED_GRAPH] + sums->of[VT_RETAINED_RESULT], "%s",
                      vt_retention_advice(VT_RETAINED_GRAPH, 0));
    for (i = 0; i < VT_RETENTION_COUNT; i++)
        if (sums->of[i] && i != VT_RETAINED_GRAPH && !(graphs && i == VT_RETAINED_RESULT))
            vt_add_advice(b, finding, sums->of[i], "%s", vt_retention_advice(i, vt_frameworks_all(b->model)));
}

/* One finding for all places of one confidence. */
static void report(struct vt_finding_builder *b, const struct vt_births *births, const struct vt_row_places *places,
                   const struct vt_opinion *opinions, enum vt_confidence confidence)
{
    struct sums sums = sum_up(b, births, places, opinions, confidence);
    struct vt_finding *finding;
    uint32_t i;

    if (sums.places) {
        finding = title(b, births, &sums, confidence);
        for (i = 0; i < sums.places && i < EVIDENCE_MAX; i++)
            show(b, finding, births, places, &sums.list[i], opinions);
        if (sums.places > EVIDENCE_MAX)
            vt_add_evidence(b, finding, "and %u more places.", sums.places - EVIDENCE_MAX);
        for (i = 0; i < births->rows; i++)
            if (takes(&opinions[i], confidence))
                vt_add_site(b, finding, b->model->sites[i].index);
        advise(b, finding, &sums);
    }
    free(sums.list);
}

/* What a place made in one tick of what is live. */
struct made {
    uint64_t tick, bytes;
};

static int by_tick(const void *left, const void *right)
{
    const struct made *a = left, *b = right;

    return (a->tick > b->tick) - (a->tick < b->tick);
}

static int by_bytes(const void *left, const void *right)
{
    const struct made *a = left, *b = right;

    return (a->bytes < b->bytes) - (a->bytes > b->bytes);
}

/* The births of the likely rows of a name, tick by tick; NULL: no memory, or not all are known. To be freed. */
static struct made *made_by(const struct vt_births *births, const struct vt_row_places *places,
                            const struct vt_opinion *opinions, const struct vt_place_sum *sum, uint64_t *count)
{
    struct made *made = calloc(sum->count ? sum->count : 1, sizeof *made);
    uint64_t found = 0, k, i, ticks = 0;

    for (i = 0; made && i < births->rows; i++) {
        if (!takes(&opinions[i], VT_LIKELY) || vt_row_place(places, (uint32_t)i)->name != sum->place->name)
            continue;
        for (k = 0; k < vt_births_count(births, (uint32_t)i) && found < sum->count; k++) {
            const struct vt_birth *birth = &vt_births_of(births, (uint32_t)i)[k];

            made[found++] = (struct made){vt_births_tick(births, birth->time_ns), birth->bytes};
        }
    }
    if (!made || found < sum->count) {
        free(made);
        return NULL;
    }
    qsort(made, found, sizeof *made, by_tick);
    for (i = 0; i < found; i++)
        if (ticks && made[ticks - 1].tick == made[i].tick)
            made[ticks - 1].bytes += made[i].bytes;
        else
            made[ticks++] = made[i];
    *count = ticks;
    return made;
}

/* Where births are not known: by how much the curves of the likely rows of a name have risen from their first points on. */
static uint64_t risen(const struct vt_births *births, const struct vt_row_places *places,
                      const struct vt_opinion *opinions, const struct vt_place_sum *sum)
{
    const struct vt_model *m = births->model;
    uint64_t bytes = 0, end, before;
    uint32_t i;

    for (i = 0; i < births->rows; i++) {
        const struct vt_site_row *row = &m->sites[i];

        if (!takes(&opinions[i], VT_LIKELY) || vt_row_place(places, i)->name != sum->place->name)
            continue;
        before = vt_births_known(births, i)
                     ? 0
                     : vt_model_live_at(row->record, row->record->first_ns, m->moment_ns, row->live_bytes, &end);
        bytes += row->live_bytes > before ? row->live_bytes - before : 0;
    }
    return bytes;
}

/*
 * How many of a place's bytes the births carry, of which it is said that they are steady: a tick counts for no more than the
 * sixth largest of them. So a large block or two, made once among many small ones, are no growth, and what leaks a large one
 * in six ticks and more is counted whole.
 */
static uint64_t carried(const struct vt_births *births, const struct vt_row_places *places,
                        const struct vt_opinion *opinions, const struct vt_place_sum *sum)
{
    uint64_t count, i, bytes = 0, most;
    struct made *made = made_by(births, places, opinions, sum, &count);

    if (!made)
        return risen(births, places, opinions, sum);
    if (count < VT_TREND_BIRTHS_MIN) {
        free(made);
        return sum->bytes;
    }
    qsort(made, count, sizeof *made, by_bytes);
    most = made[VT_TREND_BIRTHS_MIN - 1].bytes;
    for (i = 0; i < count; i++)
        bytes += made[i].bytes < most ? made[i].bytes : most;
    free(made);
    return bytes;
}

/* A few numbers per step are no alarm, and none beside one. */
static void weigh(struct vt_finding_builder *b, const struct vt_births *births, const struct vt_row_places *places,
                  struct vt_opinion *opinions)
{
    struct sums all = sum_up(b, births, places, opinions, VT_LIKELY);
    uint64_t of[VT_GROWTH_ROWS], bytes = 0;
    uint32_t i, k;

    for (k = 0; k < all.places; k++)
        bytes += of[k] = carried(births, places, opinions, &all.list[k]);
    for (k = 0; k < all.places; k++)
        for (i = 0; i < births->rows && (bytes < WORTH || of[k] < bytes / SHARE_MIN); i++)
            if (takes(&opinions[i], VT_LIKELY) && vt_row_place(places, i)->name == all.list[k].place->name) {
                opinions[i].confidence = VT_POSSIBLE;
                opinions[i].per_tick *= all.list[k].bytes ? (double)of[k] / (double)all.list[k].bytes : 0;
            }
    free(all.list);
}

void vt_growth_report(struct vt_finding_builder *b, const struct vt_births *births, const struct vt_row_places *places,
                      struct vt_opinion *opinions)
{
    weigh(b, births, places, opinions);
    report(b, births, places, opinions, VT_LIKELY);
    report(b, births, places, opinions, VT_POSSIBLE);
}
