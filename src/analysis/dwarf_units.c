/*
 * The indices of units, functions and scopes; see dwarf_units.h. Units are found by their own ranges, not by
 * .debug_aranges, which clang does not write.
 */
#include "analysis/dwarf_units.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define BACK_MAX 16 /* ranges that start before an address and may still be the one that holds it */

/* One more element of an array that doubles when it is full, or NULL. */
static void *one_more(void **array, uint32_t count, uint32_t *room, size_t bytes)
{
    void *grown;

    if (count == *room) {
        *room = *room ? *room * 2 : 64;
        if (!(grown = realloc(*array, *room * bytes)))
            return NULL;
        *array = grown;
    }
    return (char *)*array + count * bytes;
}

static bool add_range(struct vt_units *u, uint32_t *room, uint64_t start, uint64_t end)
{
    struct vt_unit_range *range = one_more((void **)&u->ranges, u->range_count, room, sizeof *range);

    if (!range)
        return false;
    *range = (struct vt_unit_range){start, end, u->count};
    u->range_count++;
    return true;
}

static bool add_unit(struct vt_units *u, uint32_t *room, const Dwarf_Die *die)
{
    struct vt_unit *unit = one_more((void **)&u->units, u->count, room, sizeof *unit);

    if (!unit)
        return false;
    memset(unit, 0, sizeof *unit);
    unit->die = *die;
    u->count++;
    return true;
}

static int unit_by_start(const void *left, const void *right)
{
    const struct vt_unit_range *a = left, *b = right;

    return a->start < b->start ? -1 : a->start > b->start;
}

static void read_units(struct vt_units *u, const struct vt_elfutils *elf, Dwarf *dwarf)
{
    uint32_t unit_room = 0, range_room = 0;
    Dwarf_CU *unit = NULL;
    Dwarf_Die die, split;
    uint8_t type;

    u->read = true;
    while (!elf->dwarf_get_units(dwarf, unit, &unit, NULL, &type, &die, &split)) {
        Dwarf_Addr base, start, end;
        ptrdiff_t offset = 0;
        bool any = false;

        if (type != DW_UT_compile && type != DW_UT_skeleton)
            continue;
        while ((offset = elf->dwarf_ranges(&die, offset, &base, &start, &end)) > 0)
            if (start && start < end) /* functions that the linker dropped start at 0 */
                any |= add_range(u, &range_room, start, end);
        /* The split part, where it was found, holds the functions. */
        if (any && !add_unit(u, &unit_room, type == DW_UT_skeleton && split.addr ? &split : &die))
            break;
    }
    while (u->range_count && u->ranges[u->range_count - 1].unit >= u->count) /* of a unit that found no room */
        u->range_count--;
    if (u->range_count)
        qsort(u->ranges, u->range_count, sizeof *u->ranges, unit_by_start);
}

struct vt_unit *vt_units_find(struct vt_units *u, const struct vt_elfutils *elf, Dwarf *dwarf, uint64_t address)
{
    uint32_t low = 0, high, back;

    if (!u->read)
        read_units(u, elf, dwarf);
    high = u->range_count;
    while (low < high) { /* the first range that starts behind the address */
        uint32_t middle = low + (high - low) / 2;

        if (u->ranges[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    for (back = 0; low && back < BACK_MAX; back++, low--)
        if (address < u->ranges[low - 1].end)
            return &u->units[u->ranges[low - 1].unit];
    return NULL;
}

/* How far inside functions are looked for. */
enum inside { INSIDE_NAMESPACES, INSIDE_TYPES, INSIDE_FUNCTIONS };

/* Entries that hold functions of their own, in C++ and Rust. A class of C++ only declares its methods, but one in a
 * function, as that of a lambda, has them inside. */
static bool holds_functions(int tag, enum inside inside)
{
    if (tag == DW_TAG_namespace || tag == DW_TAG_module)
        return true;
    if (inside == INSIDE_FUNCTIONS &&
        (tag == DW_TAG_subprogram || tag == DW_TAG_lexical_block || tag == DW_TAG_class_type))
        return true;
    return inside != INSIDE_NAMESPACES &&
           (tag == DW_TAG_structure_type || tag == DW_TAG_enumeration_type || tag == DW_TAG_union_type);
}

static void add_function(struct vt_unit *unit, uint32_t *room, const struct vt_elfutils *elf, Dwarf_Die *die)
{
    Dwarf_Addr base, start, end;
    ptrdiff_t offset = 0;

    while ((offset = elf->dwarf_ranges(die, offset, &base, &start, &end)) > 0) {
        struct vt_function_range *function;

        if (!start || start >= end)
            continue;
        function = one_more((void **)&unit->functions, unit->function_count, room, sizeof *function);
        if (!function)
            return;
        *function = (struct vt_function_range){start, end, *die};
        unit->function_count++;
    }
}

/* Walks over all that a unit declares but for what holds_functions() says no to. */
static void walk_functions(struct vt_unit *unit, uint32_t *room, const struct vt_elfutils *elf, enum inside inside)
{
    Dwarf_Die at[VT_SCOPES_MAX];
    unsigned depth = 0;

    if (elf->dwarf_child(&unit->die, &at[0]))
        return;
    for (;;) {
        int tag = elf->dwarf_tag(&at[depth]);

        if (tag == DW_TAG_subprogram)
            add_function(unit, room, elf, &at[depth]);
        if (holds_functions(tag, inside) && depth + 1 < VT_SCOPES_MAX &&
            !elf->dwarf_child(&at[depth], &at[depth + 1])) {
            depth++;
            continue;
        }
        while (elf->dwarf_siblingof(&at[depth], &at[depth]))
            if (!depth--)
                return;
    }
}

/* Inner ones, which start later or end earlier, behind outer ones. */
static int function_by_start(const void *left, const void *right)
{
    const struct vt_function_range *a = left, *b = right;

    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    return a->end > b->end ? -1 : a->end < b->end;
}

static void read_functions(struct vt_unit *unit, const struct vt_elfutils *elf, enum inside inside)
{
    uint32_t room = 0;

    free(unit->functions);
    unit->functions = NULL;
    unit->function_count = 0;
    walk_functions(unit, &room, elf, inside);
    if (unit->function_count)
        qsort(unit->functions, unit->function_count, sizeof *unit->functions, function_by_start);
}

static Dwarf_Die *find_function(struct vt_unit *unit, uint64_t address)
{
    uint32_t low = 0, high = unit->function_count, back;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (unit->functions[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    for (back = 0; low && back < BACK_MAX; back++, low--)
        if (address < unit->functions[low - 1].end)
            return &unit->functions[low - 1].die;
    return NULL;
}

Dwarf_Die *vt_unit_function(struct vt_unit *unit, const struct vt_elfutils *elf, uint64_t address)
{
    Dwarf_Die *found;

    if (!unit->functions_read) {
        unit->functions_read = true;
        read_functions(unit, elf, elf->dwarf_srclang(&unit->die) == DW_LANG_Rust ? INSIDE_TYPES : INSIDE_NAMESPACES);
    }
    if ((found = find_function(unit, address)) || unit->inner_read)
        return found;
    unit->inner_read = true; /* a second look only where it is needed: it goes over many times as many entries */
    read_functions(unit, elf, INSIDE_FUNCTIONS);
    return find_function(unit, address);
}

/* Adds an entry if it has children, which then begin at *child. 0: it has none, or there is no memory. */
static uint32_t add_scope(struct vt_unit *unit, uint32_t *room, const struct vt_elfutils *elf, Dwarf_Die *die,
                          uint32_t parent, Dwarf_Die *child)
{
    struct vt_scope_entry *scope;

    if (elf->dwarf_child(die, child))
        return 0;
    scope = one_more((void **)&unit->scopes, unit->scope_count, room, sizeof *scope);
    if (!scope)
        return 0;
    *scope = (struct vt_scope_entry){(uintptr_t)die->addr, UINTPTR_MAX, parent, *die};
    return ++unit->scope_count;
}

/* As walk_functions(): what is inside functions and classes is left to find_inside(). */
static void read_scopes(struct vt_unit *unit, const struct vt_elfutils *elf)
{
    Dwarf_Die at[VT_SCOPES_MAX], child;
    uint32_t number[VT_SCOPES_MAX], room = 0; /* of the scope around each level */
    unsigned depth = 0;

    unit->scopes_read = true;
    number[0] = 0;
    if (elf->dwarf_child(&unit->die, &at[0]))
        return;
    for (;;) {
        uint32_t added = add_scope(unit, &room, elf, &at[depth], number[depth], &child);

        if (added && holds_functions(elf->dwarf_tag(&at[depth]), INSIDE_NAMESPACES) && depth + 1 < VT_SCOPES_MAX) {
            at[++depth] = child;
            number[depth] = added;
            continue;
        }
        while (elf->dwarf_siblingof(&at[depth], &at[depth])) {
            if (!depth--)
                return;
            added = number[depth + 1];
        }
        if (added)
            unit->scopes[added - 1].end = (uintptr_t)at[depth].addr;
    }
}

/* Goes down from an entry to another one that is inside it. */
static uint32_t find_inside(const struct vt_elfutils *elf, const Dwarf_Die *from, const Dwarf_Die *target,
                            Dwarf_Die *scopes, uint32_t count)
{
    Dwarf_Die at = *from, next;

    while (count < VT_SCOPES_MAX && !elf->dwarf_child(&at, &next)) {
        do
            at = next;
        while (!elf->dwarf_siblingof(&at, &next) && next.addr <= target->addr);
        if (at.addr >= target->addr)
            break;
        scopes[count++] = at;
    }
    return count;
}

/* The index + 1 of the last scope that starts before the place; 0: none. */
static uint32_t last_before(const struct vt_unit *unit, uintptr_t place)
{
    uint32_t low = 0, high = unit->scope_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (unit->scopes[middle].start < place)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint32_t vt_unit_scopes(struct vt_unit *unit, const struct vt_elfutils *elf, const Dwarf_Die *die, Dwarf_Die *scopes)
{
    uint32_t line[VT_SCOPES_MAX], lines = 0, count = 0, number;
    uintptr_t place = (uintptr_t)die->addr;

    if (!unit->scopes_read)
        read_scopes(unit, elf);
    for (number = last_before(unit, place); number && lines < VT_SCOPES_MAX; number = unit->scopes[number - 1].parent)
        line[lines++] = number;
    while (lines && place < unit->scopes[line[lines - 1] - 1].end) /* the outermost that ends before it ends the line */
        scopes[count++] = unit->scopes[line[--lines] - 1].die;
    return lines || !count ? count : find_inside(elf, &scopes[count - 1], die, scopes, count);
}

void vt_units_free(struct vt_units *u)
{
    uint32_t i;

    for (i = 0; i < u->count; i++) {
        free(u->units[i].functions);
        free(u->units[i].scopes);
    }
    free(u->units);
    free(u->ranges);
    memset(u, 0, sizeof *u);
}
