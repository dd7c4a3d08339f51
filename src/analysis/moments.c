/*
 * Which moment a name means; see model.h. A name that a report printed can be given back: there, bytes that a terminal would
 * act on stand as \xNN (views/out.h), and nobody can type them.
 */
#include "analysis/model.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* A moment by name that was not withdrawn, or NULL. The newest one wins if a name was used twice. */
static const struct vt_moment *find_exact(const struct vt_reading *r, const char *name)
{
    uint64_t i = vt_reading_count(r, VT_MOMENTS);

    while (i--) {
        const struct vt_moment *moment = vt_reading_moment(r, i);

        if (moment && moment->name[0] && !strncmp(moment->name, name, sizeof moment->name) &&
            strlen(name) <= sizeof moment->name)
            return moment;
    }
    return NULL;
}

/* The value of \xNN at `text`, or -1. */
static int escaped_byte(const char *text)
{
    unsigned byte;

    if (text[0] != '\\' || text[1] != 'x' || !isxdigit((unsigned char)text[2]) || !isxdigit((unsigned char)text[3]))
        return -1;
    sscanf(text + 2, "%2x", &byte);
    return (int)byte;
}

const struct vt_moment *vt_model_find_moment(const struct vt_reading *r, const char *name)
{
    const struct vt_moment *moment = find_exact(r, name);
    char plain[sizeof moment->name + 1];
    size_t used = 0;

    if (moment || !strstr(name, "\\x"))
        return moment;
    while (*name && used < sizeof plain - 1) {
        int byte = escaped_byte(name);

        plain[used++] = byte < 0 ? *name : (char)byte;
        name += byte < 0 ? 1 : 4;
    }
    plain[used] = '\0';
    return *name ? NULL : find_exact(r, plain);
}

bool vt_model_has_moment(struct vt_reading *r, const char *name)
{
    return !name || !strcmp(name, "end") || !strcmp(name, "peak") || vt_model_find_moment(r, name);
}

bool vt_model_is_end(const struct vt_model *m)
{
    if (m->recorded)
        return m->recorded->kind == VT_MOMENT_END || m->recorded->kind == VT_MOMENT_FINALIZE;
    return strcmp(m->moment, "peak") != 0;
}
