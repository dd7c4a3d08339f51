/*
 * Values of the JSON views: strings of any bytes, and how a value leaves. See json.h.
 */
#include "views/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DUMP (JSON_COMPACT | JSON_ENCODE_ANY)

json_t *vt_json_text(const char *bytes, size_t length)
{
    char *copy;
    size_t at = 0, used = 0;
    json_t *value;
    unsigned taken;

    if (!bytes)
        return json_null();
    if (!memmem(bytes, length, "\\x", 2) && (value = json_stringn(bytes, length)))
        return value;
    if (!(copy = malloc(length * 4 + VT_ESCAPED)))
        return NULL;
    for (; at < length; at += taken)
        used += vt_escaped(copy + used, bytes + at, length - at, true, &taken);
    value = json_stringn(copy, used);
    free(copy);
    return value;
}

json_t *vt_json_chars(const char *string)
{
    return vt_json_text(string, string ? strlen(string) : 0);
}

json_t *vt_json_chars_if(const char *string)
{
    return vt_json_chars(*string ? string : NULL);
}

static int sink(const char *buffer, size_t bytes, void *out)
{
    vt_out_bytes(out, buffer, bytes);
    return 0;
}

void vt_json_put(struct vt_out *out, json_t *value)
{
    if (!value || json_dump_callback(value, sink, out, DUMP))
        out->error = out->error ? out->error : -ENOMEM;
    json_decref(value);
}

void vt_json_put_key(struct vt_out *out, const char *key, json_t *value)
{
    vt_out_format(out, ",\n\"%s\":", key);
    vt_json_put(out, value);
}
