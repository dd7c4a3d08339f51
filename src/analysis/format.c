/*
 * Numbers and places as text, the same everywhere.
 */
#include "analysis/format.h"

#include <stdio.h>

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
    module = frame->module ? vt_basename(frame->module) : "?";
    if (frame->function && frame->file && frame->line)
        snprintf(buffer, bytes, "%s (%s:%u)", frame->function, vt_basename(frame->file), frame->line);
    else if (frame->function)
        snprintf(buffer, bytes, "%s (%s)", frame->function, module);
    else
        snprintf(buffer, bytes, "%s+0x%llx", module, (unsigned long long)frame->offset);
    return buffer;
}
