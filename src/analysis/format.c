/*
 * Numbers and places as text, the same everywhere.
 */
#include "analysis/format.h"

#include <stdio.h>
#include <string.h>

#include "analysis/modules.h"

const char *vt_format_bytes(char *buffer, uint64_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes / 1024;
    unsigned unit = 0;

    if (bytes < 1024) {
        snprintf(buffer, VT_FORMAT_BYTES, "%u B", (unsigned)bytes);
        return buffer;
    }
    for (; value >= 1023.995 && unit < 5; unit++) /* what would print as 1024.00 takes the next unit */
        value /= 1024;
    snprintf(buffer, VT_FORMAT_BYTES, "%.2f %s", value, units[unit]);
    return buffer;
}

const char *vt_format_range(char *buffer, uint64_t low, uint64_t high)
{
    char from[VT_FORMAT_BYTES], to[VT_FORMAT_BYTES], *unit;

    vt_format_bytes(from, low);
    vt_format_bytes(to, high);
    if (!strcmp(from, to)) {
        snprintf(buffer, VT_FORMAT_RANGE, "%s", to);
        return buffer;
    }
    unit = strchr(from, ' ');
    if (!strcmp(unit, strchr(to, ' ')))
        *unit = '\0';
    snprintf(buffer, VT_FORMAT_RANGE, "%s to %s", from, to);
    return buffer;
}

const char *vt_format_seconds(char *buffer, uint64_t nanoseconds)
{
    uint64_t seconds = nanoseconds / 1000000000u;

    if (seconds < 120)
        snprintf(buffer, VT_FORMAT_BYTES, "%.3f s", (double)nanoseconds / 1e9);
    else if (seconds < 7200)
        snprintf(buffer, VT_FORMAT_BYTES, "%u min %u s", (unsigned)(seconds / 60), (unsigned)(seconds % 60));
    else
        snprintf(buffer, VT_FORMAT_BYTES, "%llu h %u min", (unsigned long long)(seconds / 3600),
                 (unsigned)(seconds / 60 % 60));
    return buffer;
}

const char *vt_format_place(char *buffer, size_t bytes, const struct vt_display_frame *frame)
{
    const char *module;

    if (!frame) {
        snprintf(buffer, bytes, "(no stack)");
        return buffer;
    }
    if (frame->lang == VT_LANG_PYTHON && frame->file && !frame->line) {
        snprintf(buffer, bytes, "%s (%s)", frame->function ? frame->function : "?", vt_basename(frame->file));
        return buffer;
    }
    module = frame->origin                   ? frame->origin
             : frame->module                 ? vt_basename(frame->module)
             : frame->lang == VT_LANG_PYTHON ? "Python"
                                             : "?";
    if (frame->function && frame->function == frame->origin)
        snprintf(buffer, bytes, "%s", frame->function);
    else if (frame->function && frame->file && frame->line)
        snprintf(buffer, bytes, "%s (%s:%u)", frame->function, vt_basename(frame->file), frame->line);
    else if (frame->function)
        snprintf(buffer, bytes, "%s (%s)", frame->function, module);
    else if (frame->lang == VT_LANG_PYTHON && frame->file)
        snprintf(buffer, bytes, "? (%s:%u)", vt_basename(frame->file), frame->line);
    else if (frame->lang == VT_LANG_PYTHON)
        snprintf(buffer, bytes, "? (Python)");
    else if (frame->nearest)
        snprintf(buffer, bytes, "%s+0x%llx (after %s)", module, (unsigned long long)frame->offset, frame->nearest);
    else
        snprintf(buffer, bytes, "%s+0x%llx", module, (unsigned long long)frame->offset);
    return buffer;
}
