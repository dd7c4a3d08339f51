/*
 * Prints the layout of recordings as this compiler sees recording.h, as one JSON object, for a reader in Python that must
 * never go stale: {"struct": {"size": N, "field": [offset, bytes], ...}, ..., "enum": {...}}.
 */
#include <stddef.h>
#include <stdio.h>

#include "vramtrack/recording.h"

#define STRUCT(name) printf("\"%s\": {\"size\": %zu", #name, sizeof(struct vt_##name))
#define FIELD(name, field) \
    printf(", \"%s\": [%zu, %zu]", #field, offsetof(struct vt_##name, field), sizeof(((struct vt_##name *)0)->field))
#define END printf("}, ")
#define NUMBER(name) printf("\"%s\": %d, ", #name, (int)VT_##name)

int main(void)
{
    printf("{");
    STRUCT(header);
    FIELD(header, magic), FIELD(header, pid), FIELD(header, end), FIELD(header, flags), FIELD(header, section);
    FIELD(header, limit_bytes), FIELD(header, used_bytes), FIELD(header, oom_count), FIELD(header, missed_events), END;
    STRUCT(section_entry);
    FIELD(section_entry, record_bytes), FIELD(section_entry, first), FIELD(section_entry, count),
        FIELD(section_entry, limit);
    FIELD(section_entry, lost), FIELD(section_entry, extent), END;
    STRUCT(total);
    FIELD(total, level), FIELD(total, kind), FIELD(total, device), FIELD(total, live_bytes), FIELD(total, live_count);
    FIELD(total, alloc_calls), FIELD(total, free_calls), END;
    STRUCT(slot);
    FIELD(slot, address), FIELD(slot, bytes), FIELD(slot, site), FIELD(slot, kind), END;
    STRUCT(site);
    FIELD(site, level), FIELD(site, kind), FIELD(site, device), FIELD(site, live_bytes), FIELD(site, live_count), END;
    printf("\"number\": {");
    NUMBER(SITES), NUMBER(TOTALS), NUMBER(LIVE), NUMBER(KIND_NONE), NUMBER(MAX_EXTENTS), NUMBER(SECTION_COUNT);
    NUMBER(END_RUNNING), NUMBER(FLAG_NO_SPACE), NUMBER(FLAG_BOUND_REACHED), NUMBER(FLAG_STOPPED);
    printf("\"end\": 0}}\n");
    return 0;
}
