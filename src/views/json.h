/*
 * What the files of the JSON view and of the page share: values, and the elements that are made elsewhere. Internal to
 * src/views/json*.c and html*.c.
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
#include "views/out.h"

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

/* A string as valid UTF-8: bytes that are not become \xNN, by the rule in out.h. NULL becomes null; for vt_json_chars_if, which
 * takes no NULL, the empty string does. */
json_t *vt_json_text(const char *bytes, size_t length);
json_t *vt_json_chars(const char *string);
json_t *vt_json_chars_if(const char *string);

/* The report's parts that other views show as well: "process" and "training", and elements of the lists, by their index in
 * the model or the findings. A site's figures are all of its keys but those of its stack. */
json_t *vt_json_process(const struct vt_model *m);
json_t *vt_json_training(const struct vt_model *m);
json_t *vt_json_device(const struct vt_analysis *a, uint32_t index);
json_t *vt_json_total(const struct vt_analysis *a, uint32_t index);
json_t *vt_json_moment(const struct vt_analysis *a, uint32_t index);
json_t *vt_json_failure(const struct vt_analysis *a, uint32_t index);
json_t *vt_json_finding(const struct vt_analysis *a, uint32_t index);
json_t *vt_json_site_figures(const struct vt_analysis *a, uint32_t index);

/* Writes a value, alone or as `,"key":value`, and lets go of it. NULL is an error of `out`. */
void vt_json_put(struct vt_out *out, json_t *value);
void vt_json_put_key(struct vt_out *out, const char *key, json_t *value);

/* The frames of a stack. *user: where the user frame is among them, or -1. `of` gets "cut"; NULL: nobody does. */
json_t *vt_json_frames(const struct vt_trace *trace, int *user, json_t *of);

/* "tensors" of a GPU's account. */
json_t *vt_json_tensors(const struct vt_device_row *device);

/* Elements of "fragmentation", index in model.fragmentation.pools, and of "allocators", index in VT_ALLOCATORS. */
json_t *vt_json_fragmentation(const struct vt_analysis *a, uint32_t index);
json_t *vt_json_fragmentation_with_blocks(const struct vt_analysis *a, uint32_t index);
json_t *vt_json_allocator(const struct vt_analysis *a, uint32_t index);

/* Elements of "ranks", "helpers" and "findings" of a job's report. */
struct vt_job;
struct vt_job_rank;
struct vt_job_finding;
json_t *vt_json_job_process(const struct vt_job_rank *rank);
json_t *vt_json_job_finding(const struct vt_job *job, const struct vt_job_finding *finding);

/* What the JSON and the page of a comparison have in common: pairs of before and after, a side, and elements of lists. */
struct vt_diff;
struct vt_diff_side;
struct vt_diff_total;
struct vt_diff_rank;
json_t *vt_json_diff_pair(const uint64_t bytes[2]);
json_t *vt_json_diff_side(const struct vt_diff_side *side);
json_t *vt_json_diff_total(const struct vt_diff_total *total);
json_t *vt_json_diff_categories(const struct vt_diff *diff);
json_t *vt_json_diff_rank(const struct vt_diff_rank *rank);

/* Elements of "programs", index in VT_PROGRAMS. */
json_t *vt_json_program(const struct vt_analysis *a, uint32_t index);

#endif
