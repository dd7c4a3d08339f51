/*
 * Words to a limit, and a comparison against it; see growth_limit.h.
 */
#include "cli/growth_limit.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/diff.h"
#include "analysis/format.h"
#include "cli/cli.h"

#define VERB "diff"

/* What is behind the number. Returns its end, which is not the text's if the unit is none. */
static const char *apply_unit(struct vt_growth_limit *limit, const char *end)
{
    static const char units[] = "kmgt";
    const char *unit = *end ? strchr(units, tolower((unsigned char)*end)) : NULL;

    if (*end == '%') {
        limit->is_share = true;
        return end + 1;
    }
    if (unit) {
        for (; unit >= units; unit--)
            limit->value *= 1024;
        end++;
        end += *end == 'i' || *end == 'I';
    }
    return end + (*end == 'b' || *end == 'B');
}

int vt_growth_limit_parse(struct vt_growth_limit *limit, const char *text)
{
    bool decimal = strspn(text, "0123456789.") &&
                   !strpbrk(text, "xX"); /* strtod takes hexadecimal numbers and "inf" too */
    char *number_end;
    const char *end;

    *limit = (struct vt_growth_limit){.given = true, .text = text};
    limit->value = decimal ? strtod(text, &number_end) : 0;
    end = decimal && number_end != text ? apply_unit(limit, number_end) : NULL;
    if (!end || *end || limit->value > 1e18)
        return vt_fail(VERB, "--fail-on-growth %s: bytes (1048576, 64M, 1.5GiB) or a share (5%%) is needed", text);
    return 0;
}

/* Is there an answer? Returns 0, or VT_EXIT_ERROR after saying which side lacks something. */
static int check_whole(const struct vt_diff *diff)
{
    for (unsigned s = 0; s < 2; s++) {
        const struct vt_diff_side *side = &diff->side[s];

        if (side->incomplete)
            return vt_fail(VERB, "%s is incomplete (%s), so --fail-on-growth has no answer", side->path, side->missing);
        if (side->unreadable)
            return vt_fail(VERB, "not all of %s can be read, so --fail-on-growth has no answer", side->path);
    }
    return 0;
}

int vt_growth_limit_check(const struct vt_growth_limit *limit, const struct vt_diff *diff)
{
    uint64_t before, growth = vt_diff_growth(diff, &before);
    double most = limit->is_share ? (double)before * limit->value / 100 : limit->value;
    char grown[VT_FORMAT_BYTES], from[VT_FORMAT_BYTES];

    if (!limit->given)
        return VT_EXIT_OK;
    if (check_whole(diff))
        return VT_EXIT_ERROR;
    if ((double)growth <= most)
        return VT_EXIT_OK;
    vt_fail(VERB, "memory grew by %s from %s, more than --fail-on-growth %s allows", vt_format_bytes(grown, growth),
            vt_format_bytes(from, before), limit->text);
    return VT_EXIT_FOUND;
}
