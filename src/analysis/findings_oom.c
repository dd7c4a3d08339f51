/*
 * Why an allocation failed for want of memory: the decision table. Its rows are in verdict_*.c, what would help in
 * advice.c; this file looks at a failure as it was then, asks the rows in order, and adds what every verdict shows.
 *
 * Two sorts of refusals look alike to a user. The driver refuses when the card has no room. A framework refuses by itself,
 * without a call, when a limit that it was given is reached; nobody tells that limit, but it lies below what was reserved
 * plus what was requested.
 */
#include <string.h>

#include "analysis/account.h"
#include "analysis/advice.h"
#include "analysis/modules.h"
#include "analysis/verdict.h"

#define FAILURES_MAX 2 /* failures that are explained: later ones mostly follow from the first */
#define LARGEST_MAX 64 /* sites that are added up to the largest places */
#define VERDICTS_MAX 2 /* per failure: more than two explanations explain nothing */

/* The first of these that applies excludes the others; only pieces may have a second cause beside them. */
static vt_verdict *const excluding[] = {vt_verdict_host, vt_verdict_huge, vt_verdict_pieces, vt_verdict_limit};

static vt_verdict *const causes[] = {vt_verdict_pending, vt_verdict_others, vt_verdict_private,
                                     vt_verdict_growth,  vt_verdict_arena,  vt_verdict_libraries};

static bool is_host_kind(unsigned kind)
{
    return kind == VT_KIND_PINNED || kind == VT_KIND_REGISTERED;
}

const struct vt_device_row *vt_refusal_device(const struct vt_model *m, const struct vt_failure *failure)
{
    uint32_t i;

    for (i = 0; m && i < m->device_count; i++)
        if (m->devices[i].record->ordinal == failure->device)
            return &m->devices[i];
    return NULL;
}

/* Everything as it was at the failure: the report may show a later moment. */
static void take_moment(struct vt_finding_builder *b, struct vt_refusal *r)
{
    const struct vt_model *m = b->model;
    const struct vt_moment *moment = vt_reading_moment(m->reading, r->failure->moment);
    char name[sizeof moment->name + 1] = "";

    if (!moment || !moment->name[0])
        return;
    if (moment == m->recorded) {
        r->then = m;
        return;
    }
    memcpy(name, moment->name, sizeof moment->name);
    if (vt_model_build(&r->built, m->reading, name)) {
        b->no_memory = true;
        memset(&r->built, 0, sizeof r->built);
        return;
    }
    vt_account_add_parts(&r->built, b->symbols);
    r->then = r->built.recorded == moment ? &r->built : NULL; /* a name that was used twice */
}

static uint64_t missing_bytes(const struct vt_failure *f)
{
    if (!f->total_bytes || vt_refused_by_framework(f) || f->free_bytes >= f->requested_bytes)
        return f->requested_bytes;
    return f->requested_bytes - f->free_bytes;
}

static void open_refusal(struct vt_finding_builder *b, struct vt_refusal *r, const struct vt_failure *failure)
{
    static const struct vt_fragmentation none;
    const struct vt_model *m = b->model;

    memset(r, 0, sizeof *r);
    r->failure = failure;
    take_moment(b, r);
    if (!(r->device = vt_refusal_device(r->then, failure)))
        r->device = vt_refusal_device(m, failure);
    r->segments = r->then ? &r->then->fragmentation : &none;
    r->pools = vt_fragmentation_of(r->segments, failure->device);
    r->total = failure->total_bytes ? failure->total_bytes : r->device ? r->device->record->total_bytes : 0;
    r->missing = missing_bytes(failure);
    r->frameworks = vt_frameworks_on(m, failure->device);
    r->host = is_host_kind(failure->memory_kind);
    r->by_framework = vt_refused_by_framework(failure);
    vt_frameworks_name(r->framework, r->frameworks);
    vt_format_bytes(r->asked, failure->requested_bytes);
}

bool vt_refused_by_limit(const struct vt_refusal *r)
{
    const struct vt_failure *f = r->failure;

    return r->by_framework || (f->total_bytes && f->free_bytes >= f->requested_bytes);
}

bool vt_asked_by_framework(const struct vt_model *m, const struct vt_refusal *r)
{
    return r->failure->kind == VT_FAILURE_FRAMEWORK_OOM ||
           vt_module_class_at(m->reading, vt_owner_module(m->reading, r->failure->stack)) == VT_MODULE_FRAMEWORK;
}

/* The value of a variable in the recorded environment; NULL: it is not there. */
static const char *setting(const struct vt_reading *reading, const char *name, size_t *length_of)
{
    struct vt_text text = vt_reading_string(reading, vt_reading_header(reading)->environment);
    size_t start, length, key = strlen(name);

    for (start = 0; start < text.length; start += length + 1) {
        const char *entry = text.text + start;

        length = strnlen(entry, text.length - start);
        if (length > key && !memcmp(entry, name, key) && entry[key] == '=') {
            *length_of = length - key - 1;
            return entry + key + 1;
        }
    }
    return NULL;
}

bool vt_setting_has(const struct vt_reading *reading, const char *name, const char *word)
{
    size_t length;
    const char *value = setting(reading, name, &length);

    return value && memmem(value, length, word, strlen(word));
}

/* TensorFlow's allocator writes a map of its chunks when it refuses a request, if it is told where. */
static void show_tensorflow_dump(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_refusal *r)
{
    size_t length;
    const char *prefix = setting(b->model->reading, "TF_BFC_MEMORY_DUMP", &length);

    if (prefix && length && r->failure->kind == VT_FAILURE_FRAMEWORK_OOM &&
        r->frameworks & 1u << VT_FRAMEWORK_TENSORFLOW)
        vt_add_evidence(b, finding,
                        "TensorFlow wrote its own map of its memory (TF_BFC_MEMORY_DUMP): files that begin with "
                        "%.*s.",
                        (int)(length < 256 ? length : 256), prefix);
}

/* What this process held of the card at the failure: of a framework's own refusal, the record has only what that had reserved. */
static uint64_t held(const struct vt_refusal *r)
{
    uint64_t bytes = 0;
    uint32_t i;

    if (!r->then)
        return r->failure->reserved_bytes;
    for (i = 0; i < r->then->total_count; i++) {
        const struct vt_total *total = r->then->totals[i].record;

        if (total->level == VT_LEVEL_DRIVER && total->device == r->failure->device && vt_kind_is_memory(total->kind) &&
            vt_class_of((enum vt_kind)total->kind) == VT_CLASS_DEVICE)
            bytes += r->then->totals[i].live_bytes;
    }
    return bytes;
}

static void show_usage(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_refusal *r)
{
    const struct vt_failure *failure = r->failure;
    char one[VT_FORMAT_BYTES], two[VT_FORMAT_BYTES], three[VT_FORMAT_BYTES], four[VT_FORMAT_BYTES];
    uint64_t used = failure->total_bytes - failure->free_bytes, own = held(r), context;

    if (!failure->total_bytes || failure->free_bytes > failure->total_bytes || own > used)
        return;
    vt_format_bytes(one, used);
    vt_format_bytes(two, own);
    context = r->device && r->device->context_known ? r->device->context : 0;
    if (context && context <= used - own)
        vt_add_evidence(b, finding,
                        "Of the %s in use, this process had allocated %s; %s is CUDA's context and code, %s is other "
                        "processes and unaccounted.",
                        one, two, vt_format_bytes(three, context), vt_format_bytes(four, used - own - context));
    else
        vt_add_evidence(
            b, finding,
            "Of the %s in use, this process had allocated %s; %s is other processes, CUDA's context and code.", one,
            two, vt_format_bytes(three, used - own));
}

void vt_show_pools(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_refusal *r)
{
    char one[VT_FORMAT_BYTES], two[VT_FORMAT_BYTES], three[VT_FORMAT_BYTES], largest[VT_FORMAT_BYTES];
    const struct vt_pools *p = r->pools;

    if (!p || !p->reserved)
        return;
    if (p->known && p->free)
        vt_add_evidence(b, finding,
                        "%s had reserved %s, %s of it in %s; %s were cached but unused, the largest piece %s.",
                        r->framework, vt_format_bytes(one, p->reserved), vt_format_bytes(two, p->allocated),
                        vt_frameworks_tensors(r->frameworks), vt_format_bytes(three, p->free),
                        vt_format_bytes(largest, p->largest_free));
    else
        vt_add_evidence(b, finding, "%s had reserved %s, %s of it in %s.", r->framework,
                        vt_format_bytes(one, p->reserved), vt_format_bytes(two, p->allocated),
                        vt_frameworks_tensors(r->frameworks));
    if (p->private_bytes)
        vt_add_evidence(b, finding, "%s of it belong to CUDA graphs, %s of these unused.",
                        vt_format_bytes(one, p->private_bytes), vt_format_bytes(two, p->private_free));
}

/* Memory of somebody in particular: a framework's driver calls are its pool, which its tensors are in. */
static bool is_holder(const struct vt_reading *reading, const struct vt_refusal *r, uint32_t index,
                      const struct vt_site *site)
{
    if (r->host)
        return vt_class_of((enum vt_kind)site->kind) == VT_CLASS_HOST;
    if (site->device != r->failure->device || !vt_kind_is_memory(site->kind) ||
        vt_class_of((enum vt_kind)site->kind) != VT_CLASS_DEVICE)
        return false;
    if (site->level == VT_LEVEL_TENSOR)
        return true;
    if (r->pools && vt_fragmentation_is_pool(r->segments, index))
        return false;
    return r->pools || vt_module_class_at(reading, vt_owner_module(reading, site->stack)) != VT_MODULE_FRAMEWORK;
}

/* The largest sites at the moment that was taken at the failure; returns how many. */
static uint32_t largest_at_failure(const struct vt_reading *reading, const struct vt_refusal *r,
                                   struct vt_moment_site *largest)
{
    const struct vt_moment *moment = vt_reading_moment(reading, r->failure->moment);
    const struct vt_moment_site *entry;
    const struct vt_site *site;
    uint32_t count = 0, at;
    uint64_t i;

    for (i = 0; moment && i < moment->sites; i++) {
        if (!(entry = vt_reading_moment_site(reading, moment->first_site + i)))
            break;
        if (!entry->live_bytes || (count == LARGEST_MAX && entry->live_bytes <= largest[count - 1].live_bytes) ||
            !(site = vt_reading_site(reading, entry->site)) || !is_holder(reading, r, entry->site, site))
            continue;
        count += count < LARGEST_MAX;
        for (at = count - 1; at && largest[at - 1].live_bytes < entry->live_bytes; at--)
            largest[at] = largest[at - 1];
        largest[at] = *entry;
    }
    return count;
}

/* Adds up what reads alike, in the entry of the first of each name. The others hold nothing then. */
static void join_names(struct vt_moment_site *largest, uint32_t count, const struct vt_places *places)
{
    uint32_t i;

    for (i = 0; i < count; i++)
        if (places->list[i].name != i) {
            largest[places->list[i].name].live_bytes += largest[i].live_bytes;
            largest[places->list[i].name].live_count += largest[i].live_count;
            largest[i].live_bytes = 0;
        }
}

/* The index of the largest one; the caller empties it. */
static uint32_t take_largest(const struct vt_moment_site *largest, uint32_t count)
{
    uint32_t i, best = 0;

    for (i = 1; i < count; i++)
        if (largest[i].live_bytes > largest[best].live_bytes)
            best = i;
    return best;
}

void vt_show_largest(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_refusal *r)
{
    struct vt_moment_site largest[LARGEST_MAX];
    const struct vt_site *sites[LARGEST_MAX];
    uint32_t count = largest_at_failure(b->model->reading, r, largest), i, at;
    char name[VT_PLACE_NAME], bytes[VT_FORMAT_BYTES];
    struct vt_places places;

    for (i = 0; i < count; i++) {
        sites[i] = vt_reading_site(b->model->reading, largest[i].site);
        if (i < VT_HOLDERS_MAX)
            vt_add_site(b, finding, largest[i].site);
    }
    if (vt_places_build(&places, b->model->reading, b->symbols, b->style, sites, count))
        b->no_memory = true; /* what is shown then is thrown away */
    else
        join_names(largest, count, &places);
    for (i = 0; i < VT_SHOWN_MAX && count && !b->no_memory; i++) {
        at = take_largest(largest, count);
        if (!largest[at].live_bytes)
            break;
        vt_add_evidence(b, finding, "%s in %llu held by %s.", vt_format_bytes(bytes, largest[at].live_bytes),
                        (unsigned long long)largest[at].live_count, vt_place_name(name, &places.list[at]));
        largest[at].live_bytes = 0;
    }
    vt_places_free(&places);
}

/*
 * Asks the rows. Findings may move when one is added, so what is returned is how many were; they are the newest. If no
 * cause is more than possible, capacity is the other verdict.
 */
static unsigned ask(struct vt_finding_builder *b, const struct vt_refusal *r)
{
    struct vt_finding *finding = NULL;
    unsigned count = 0;
    bool likely = false;
    size_t i;

    for (i = 0; !finding && i < sizeof excluding / sizeof excluding[0]; i++)
        finding = excluding[i](b, r);
    count = finding != NULL;
    likely = finding != NULL;
    /* What fills an arena, or lies in pieces in it, is still to be said. */
    if (finding && finding->family != VT_FAMILY_FRAGMENTATION && finding->family != VT_FAMILY_CAPACITY)
        return count;
    for (i = 0; i < sizeof causes / sizeof causes[0] && count < VERDICTS_MAX; i++)
        if ((finding = causes[i](b, r))) {
            likely |= finding->confidence != VT_POSSIBLE;
            count++;
        }
    if (!likely && count < VERDICTS_MAX) {
        vt_verdict_capacity(b, r);
        count++;
    }
    return count;
}

/* What every first verdict says: what was in use, who held most, and the request; views have told that before. */
static void show_request(struct vt_finding_builder *b, struct vt_finding *finding, const struct vt_refusal *r,
                         const struct vt_oom_group *group)
{
    char place[VT_PLACE_BYTES], range[VT_FORMAT_RANGE];

    if (!r->host) {
        show_usage(b, finding, r);
        if (!finding->site_count)
            vt_show_largest(b, finding, r);
    }
    vt_add_evidence(b, finding, "%s were requested by %s, %llu time%s.",
                    vt_format_range(range, group->low, group->high),
                    vt_place_of(b, place, r->failure->stack, r->failure->python_stack),
                    (unsigned long long)group->times, group->times == 1 ? "" : "s");
    show_tensorflow_dump(b, finding, r);
}

/* An out-of-memory failure, the first of its group, becomes one or two findings. */
static void explain_oom(struct vt_finding_builder *b, const struct vt_failure *f, const struct vt_oom_group *group)
{
    uint32_t first = b->findings->count, i;
    struct vt_refusal r;

    open_refusal(b, &r, f);
    ask(b, &r);
    for (i = first; i < b->findings->count; i++) {
        if (i == first)
            show_request(b, &b->findings->list[i], &r, group);
        vt_advice_order(&b->findings->list[i], r.host || r.missing > r.total ? 0 : r.missing);
    }
    vt_model_free(&r.built);
}

void vt_find_ooms(struct vt_finding_builder *b)
{
    const struct vt_model *m = b->model;
    bool at_oom = m->recorded && m->recorded->kind == VT_MOMENT_OOM;
    unsigned explained = 0;
    uint32_t i;

    for (i = 0; i < m->failure_count && explained < FAILURES_MAX; i++) {
        const struct vt_failure *f = m->failures[i].record;
        struct vt_oom_group group = {f->count, f->requested_bytes, f->requested_bytes, true};

        if (!vt_failure_is_oom(f->kind) || (at_oom && m->recorded->failure != m->failures[i].index))
            continue;
        if (!at_oom)
            group = vt_model_oom_group(m, i);
        if (!group.first)
            continue;
        explain_oom(b, f, &group);
        explained++;
    }
}
