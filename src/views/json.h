/*
 * What the files of the JSON view share: values, and the elements that are made elsewhere. Internal to src/views/json*.c.
 *
 * A NULL from jansson means that memory ran out; json_object_set_new() takes it and fails, and the writer of the list
 * element notices.
 */
#ifndef VRAMTRACK_VIEWS_JSON_H
#define VRAMTRACK_VIEWS_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "analysis/analysis.h"

static inline json_t *number(uint64_t value)
{
    return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}

static inline json_t *number_if(bool known, uint64_t value)
{
    return known ? number(value) : json_null();
}

static inline json_t *seconds(uint64_t nanoseconds)
{
    return json_real((double)nanoseconds / 1e9);
}

static inline void set(json_t *object, const char *key, json_t *value)
{
    json_object_set_new(object, key, value);
}

/* A string as valid UTF-8: bytes that are not become \xNN. NULL becomes null. */
json_t *vt_json_chars(const char *string);

/* "tensors" of a GPU's account. */
json_t *vt_json_tensors(const struct vt_device_row *device);

/* Elements of "fragmentation", index in model.fragmentation.pools, and of "allocators", index in VT_ALLOCATORS. */
json_t *vt_json_fragmentation(const struct vt_analysis *a, uint32_t index);
json_t *vt_json_fragmentation_with_blocks(const struct vt_analysis *a, uint32_t index);
json_t *vt_json_allocator(const struct vt_analysis *a, uint32_t index);

/* Elements of "programs", index in VT_PROGRAMS. */
json_t *vt_json_program(const struct vt_analysis *a, uint32_t index);

#endif
