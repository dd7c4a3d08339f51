/*
 * DWARF: from an address to the function that holds it, the functions inlined there, and the source lines.
 *
 * Compilation units are found by an index of all units' address ranges (not .debug_aranges, which clang does not
 * write). In a unit, the entries that contain the address are followed downwards; the chain from the function to the
 * innermost inlined call is the answer, where each inlined call says where in its caller it stands.
 *
 * When libdw runs out of memory it calls a handler that must not return, and its own one ends the process. Inside
 * somebody else's process that is out of the question: our handler jumps back to where libdw was entered.
 */
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/demangle.h"
#include "analysis/objfile.h"

#define DEPTH_MAX 128

/* The entries around an address: functions and inlined calls, outermost first. */
struct chain {
    Dwarf_Die die[VT_OBJECT_FRAMES];
    uint32_t count;
};

static int by_start(const void *left, const void *right)
{
    const struct vt_object_range *a = left, *b = right;

    return a->start < b->start ? -1 : a->start > b->start;
}

static bool add_range(struct vt_object *o, uint32_t *room, uint64_t start, uint64_t end)
{
    struct vt_object_range *grown;

    if (o->range_count == *room) {
        *room = *room ? *room * 2 : 256;
        if (!(grown = realloc(o->ranges, *room * sizeof *grown)))
            return false;
        o->ranges = grown;
    }
    o->ranges[o->range_count++] = (struct vt_object_range){start, end, o->unit_count};
    return true;
}

static bool add_unit(struct vt_object *o, uint32_t *room, const Dwarf_Die *die)
{
    Dwarf_Die *grown;

    if (o->unit_count == *room) {
        *room = *room ? *room * 2 : 64;
        if (!(grown = realloc(o->units, *room * sizeof *grown)))
            return false;
        o->units = grown;
    }
    o->units[o->unit_count++] = *die;
    return true;
}

static void read_units(struct vt_object *o)
{
    uint32_t unit_room = 0, range_room = 0;
    Dwarf_CU *unit = NULL;
    Dwarf_Die die, split;
    uint8_t type;

    o->units_read = true;
    while (!o->elf->dwarf_get_units(o->dwarf, unit, &unit, NULL, &type, &die, &split)) {
        Dwarf_Addr base, start, end;
        ptrdiff_t offset = 0;
        bool any = false;

        if (type != DW_UT_compile && type != DW_UT_skeleton)
            continue;
        while ((offset = o->elf->dwarf_ranges(&die, offset, &base, &start, &end)) > 0)
            if (start && start < end) /* functions that the linker dropped start at 0 */
                any |= add_range(o, &range_room, start, end);
        /* The split part, where it was found, holds the functions. */
        if (any && !add_unit(o, &unit_room, type == DW_UT_skeleton && split.addr ? &split : &die))
            break;
    }
    while (o->range_count && o->ranges[o->range_count - 1].unit >= o->unit_count) /* of a unit that found no room */
        o->range_count--;
    if (o->range_count)
        qsort(o->ranges, o->range_count, sizeof *o->ranges, by_start);
}

static Dwarf_Die *find_unit(struct vt_object *o, uint64_t address)
{
    uint32_t low = 0, high, back;

    if (!o->units_read)
        read_units(o);
    high = o->range_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (o->ranges[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    for (back = 0; low && back < 16; back++, low--)
        if (address < o->ranges[low - 1].end)
            return &o->units[o->ranges[low - 1].unit];
    return NULL;
}

/* Follows the entries that contain the address. True once a function was found. */
static bool descend(const struct vt_elfutils *elf, Dwarf_Die *parent, uint64_t address, struct chain *chain,
                    unsigned depth)
{
    Dwarf_Die die;

    if (depth > DEPTH_MAX || elf->dwarf_child(parent, &die))
        return false;
    do {
        int tag = elf->dwarf_tag(&die);
        bool function = tag == DW_TAG_subprogram || tag == DW_TAG_inlined_subroutine;

        if (tag == DW_TAG_namespace || tag == DW_TAG_module) {
            if (descend(elf, &die, address, chain, depth + 1))
                return true;
            continue;
        }
        if (!function && tag != DW_TAG_lexical_block && tag != DW_TAG_try_block && tag != DW_TAG_catch_block)
            continue;
        if (elf->dwarf_haspc(&die, address) <= 0)
            continue;
        if (function && chain->count < VT_OBJECT_FRAMES)
            chain->die[chain->count++] = die;
        descend(elf, &die, address, chain, depth + 1);
        return chain->count > 0;
    } while (!elf->dwarf_siblingof(&die, &die));
    return false;
}

/* The entry that declares what `die` is an instance or the definition of. */
static Dwarf_Die declaration(const struct vt_elfutils *elf, const Dwarf_Die *die)
{
    static const unsigned links[] = {DW_AT_abstract_origin, DW_AT_specification};
    Dwarf_Die at = *die, next;
    Dwarf_Attribute attribute;
    unsigned hops, i;

    for (hops = 0; hops < 8; hops++) {
        for (i = 0; i < 2; i++)
            if (elf->dwarf_attr(&at, links[i], &attribute) && elf->dwarf_formref_die(&attribute, &next))
                break;
        if (i == 2)
            break;
        at = next;
    }
    return at;
}

static bool is_c(int language)
{
    return language == DW_LANG_C89 || language == DW_LANG_C || language == DW_LANG_C99 || language == DW_LANG_C11;
}

static bool has_scope_name(int tag)
{
    return tag == DW_TAG_namespace || tag == DW_TAG_class_type || tag == DW_TAG_structure_type ||
           tag == DW_TAG_union_type;
}

/* "scope::name" from the entries around a declaration, for functions without a linkage name. */
static char *qualified(const struct vt_elfutils *elf, Dwarf_Die *declared, const char *name)
{
    Dwarf_Die *scopes = NULL;
    int count = elf->dwarf_getscopes_die(declared, &scopes), i;
    size_t bytes = strlen(name) + 1;
    const char *part;
    char *text;

    for (i = 1; i < count; i++)
        if (has_scope_name(elf->dwarf_tag(&scopes[i])))
            bytes += ((part = elf->dwarf_diename(&scopes[i])) ? strlen(part) : 21) + 2;
    if ((text = malloc(bytes))) {
        text[0] = '\0';
        for (i = count - 1; i >= 1; i--)
            if (has_scope_name(elf->dwarf_tag(&scopes[i]))) {
                part = elf->dwarf_diename(&scopes[i]);
                strcat(strcat(text, part ? part : "(anonymous namespace)"), "::");
            }
        strcat(text, name);
    }
    free(scopes);
    return text;
}

/* The name of a function or inlined call, malloc'ed; NULL if it has none. */
static char *function_name(const struct vt_elfutils *elf, Dwarf_Die *unit, Dwarf_Die *die)
{
    Dwarf_Attribute attribute;
    Dwarf_Die declared;
    const char *name = NULL;

    if (elf->dwarf_attr_integrate(die, DW_AT_linkage_name, &attribute) ||
        elf->dwarf_attr_integrate(die, DW_AT_MIPS_linkage_name, &attribute))
        name = elf->dwarf_formstring(&attribute);
    if (name)
        return vt_demangle(name);
    if (elf->dwarf_attr_integrate(die, DW_AT_name, &attribute))
        name = elf->dwarf_formstring(&attribute);
    if (!name)
        return NULL;
    if (is_c(elf->dwarf_srclang(unit)))
        return strdup(name);
    declared = declaration(elf, die);
    return qualified(elf, &declared, name);
}

/* Where the inlined call stands in its caller. */
static void call_place(const struct vt_elfutils *elf, Dwarf_Die *unit, Dwarf_Die *die, struct vt_object_frame *frame)
{
    Dwarf_Attribute attribute;
    Dwarf_Word value;
    Dwarf_Files *files;
    size_t count;

    if (elf->dwarf_attr(die, DW_AT_call_line, &attribute) && !elf->dwarf_formudata(&attribute, &value))
        frame->line = (uint32_t)value;
    if (elf->dwarf_attr(die, DW_AT_call_file, &attribute) && !elf->dwarf_formudata(&attribute, &value) &&
        !elf->dwarf_getsrcfiles(unit, &files, &count) && value < count)
        frame->file = elf->dwarf_filesrc(files, value, NULL, NULL);
}

static void line_place(const struct vt_elfutils *elf, Dwarf_Die *unit, uint64_t address, struct vt_object_frame *frame)
{
    Dwarf_Line *line = elf->dwarf_getsrc_die(unit, address);
    int number = 0;

    if (!line)
        return;
    frame->file = elf->dwarf_linesrc(line, NULL, NULL);
    if (!elf->dwarf_lineno(line, &number) && number > 0)
        frame->line = (uint32_t)number;
}

static __thread jmp_buf *escape; /* where to go when libdw is out of memory */

static void __attribute__((noreturn)) out_of_memory(void)
{
    if (escape)
        longjmp(*escape, 1);
    for (;;) /* libdw is called from here only */
        __builtin_trap();
}

void vt_object_open_dwarf(struct vt_object *o, Elf *file)
{
    jmp_buf here;

    escape = &here;
    if (setjmp(here))
        o->dwarf = NULL;
    else if ((o->dwarf = o->elf->dwarf_begin_elf(file, DWARF_C_READ, NULL)))
        o->elf->dwarf_new_oom_handler(o->dwarf, out_of_memory);
    escape = NULL;
}

/* The frames around an address of a unit that has it. */
static uint32_t find_frames(struct vt_object *o, uint64_t address, struct vt_object_frame *frames)
{
    Dwarf_Die *unit = find_unit(o, address);
    struct chain chain;
    uint32_t i;

    chain.count = 0;
    if (!unit)
        return 0;
    descend(o->elf, unit, address, &chain, 0);
    memset(frames, 0, (chain.count ? chain.count : 1) * sizeof *frames);
    line_place(o->elf, unit, address, &frames[0]);
    for (i = 0; i < chain.count; i++) {
        Dwarf_Die *die = &chain.die[chain.count - 1 - i];

        frames[i].function = function_name(o->elf, unit, die);
        if (i + 1 < chain.count)
            call_place(o->elf, unit, die, &frames[i + 1]);
    }
    return chain.count ? chain.count : frames[0].file ? 1 : 0;
}

uint32_t vt_object_dwarf(struct vt_object *o, uint64_t address, struct vt_object_frame *frames)
{
    jmp_buf here;
    uint32_t count = 0;

    escape = &here;
    if (setjmp(here))
        o->dwarf = NULL; /* in an unknown state: never touched again */
    else
        count = find_frames(o, address, frames);
    escape = NULL;
    return o->dwarf ? count : 0;
}
