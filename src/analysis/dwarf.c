/*
 * DWARF: from an address to the function that holds it, the functions inlined there, and the source lines.
 *
 * The unit and the function are found by address (dwarf_units.c). In the function, the entries that contain the address
 * are followed downwards; the chain from the function to the innermost inlined call is the answer, where each inlined
 * call says where in its caller it stands.
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
#define NESTED_MAX 8     /* functions in each other whose names make up one name */
#define MEMBERS_MAX 1000 /* looked at to tell what a type is */

/* The entries around an address: functions and inlined calls, outermost first. */
struct chain {
    Dwarf_Die die[VT_OBJECT_FRAMES];
    uint32_t count;
};

/* Follows the entries of a function that contain the address. */
static void descend(const struct vt_elfutils *elf, Dwarf_Die *parent, uint64_t address, struct chain *chain,
                    unsigned depth)
{
    Dwarf_Die die;

    if (depth > DEPTH_MAX || elf->dwarf_child(parent, &die))
        return;
    do {
        int tag = elf->dwarf_tag(&die);
        bool function = tag == DW_TAG_subprogram || tag == DW_TAG_inlined_subroutine;

        if (!function && tag != DW_TAG_lexical_block && tag != DW_TAG_try_block && tag != DW_TAG_catch_block)
            continue;
        if (elf->dwarf_haspc(&die, address) <= 0)
            continue;
        if (function && chain->count < VT_OBJECT_FRAMES)
            chain->die[chain->count++] = die;
        descend(elf, &die, address, chain, depth + 1);
        return;
    } while (!elf->dwarf_siblingof(&die, &die));
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

/* A lambda's type has no name; it is known by its call operator. */
static const char *unnamed_type(const struct vt_elfutils *elf, Dwarf_Die *type)
{
    Dwarf_Die member;
    const char *name;
    unsigned looked = 0;

    if (elf->dwarf_child(type, &member))
        return "{unnamed type}";
    do {
        name = elf->dwarf_tag(&member) == DW_TAG_subprogram ? elf->dwarf_diename(&member) : NULL;
        if (name && !strcmp(name, "operator()"))
            return "{lambda}";
    } while (++looked < MEMBERS_MAX && !elf->dwarf_siblingof(&member, &member));
    return "{unnamed type}";
}

/* The words are those of shortened C++ symbols; see demangle.h. */
static const char *scope_name(const struct vt_elfutils *elf, Dwarf_Die *scope)
{
    const char *name = elf->dwarf_diename(scope);

    if (name)
        return name;
    return elf->dwarf_tag(scope) == DW_TAG_namespace ? "(anonymous namespace)" : unnamed_type(elf, scope);
}

static char *function_name(const struct vt_elfutils *elf, struct vt_unit *unit, Dwarf_Die *die, unsigned depth);

/* Index + 1 of the innermost function that a type in `scopes` is local to; 0: none. A function right in a function
 * (Fortran) goes by its own name. */
static uint32_t last_function(const struct vt_elfutils *elf, Dwarf_Die *scopes, uint32_t count)
{
    bool type = false;

    for (; count; count--) {
        int tag = elf->dwarf_tag(&scopes[count - 1]);

        if (tag == DW_TAG_subprogram && type)
            return count;
        type |= has_scope_name(tag);
    }
    return 0;
}

/* "scope::name" from the entries around a declaration, outermost first, for functions without a linkage name. A function
 * among them stands for what is around it: its own name is qualified, and it may be defined elsewhere than declared. */
static char *qualified(const struct vt_elfutils *elf, struct vt_unit *unit, Dwarf_Die *scopes, uint32_t count,
                       const char *name, unsigned depth)
{
    uint32_t first = depth < NESTED_MAX ? last_function(elf, scopes, count) : 0, i;
    char *outer = first ? function_name(elf, unit, &scopes[first - 1], depth + 1) : NULL, *text;
    size_t bytes = strlen(name) + 1 + (outer ? strlen(outer) + 2 : 0);

    for (i = first; i < count; i++)
        if (has_scope_name(elf->dwarf_tag(&scopes[i])))
            bytes += strlen(scope_name(elf, &scopes[i])) + 2;
    if ((text = malloc(bytes))) {
        text[0] = '\0';
        if (outer)
            strcat(strcat(text, outer), "::");
        for (i = first; i < count; i++)
            if (has_scope_name(elf->dwarf_tag(&scopes[i])))
                strcat(strcat(text, scope_name(elf, &scopes[i])), "::");
        strcat(text, name);
    }
    free(outer);
    return text;
}

/* The same from a declaration of another unit (dwz, link-time optimization), which has no index. */
static char *qualified_elsewhere(const struct vt_elfutils *elf, struct vt_unit *unit, Dwarf_Die *declared,
                                 const char *name, unsigned depth)
{
    Dwarf_Die *scopes = NULL, outermost_first[VT_SCOPES_MAX];
    int found = elf->dwarf_getscopes_die(declared, &scopes), i;
    uint32_t count = 0;

    for (i = found - 1; i >= 1 && count < VT_SCOPES_MAX; i--)
        outermost_first[count++] = scopes[i];
    free(scopes);
    return qualified(elf, unit, outermost_first, count, name, depth);
}

/* The name of a function or inlined call, malloc'ed; NULL if it has none. depth: 0, or how many functions this one is
 * around of, each in the next. */
static char *function_name(const struct vt_elfutils *elf, struct vt_unit *unit, Dwarf_Die *die, unsigned depth)
{
    Dwarf_Attribute attribute;
    Dwarf_Die declared, scopes[VT_SCOPES_MAX];
    const char *name = NULL;
    char *text = NULL;

    if (elf->dwarf_attr_integrate(die, DW_AT_linkage_name, &attribute) ||
        elf->dwarf_attr_integrate(die, DW_AT_MIPS_linkage_name, &attribute))
        name = elf->dwarf_formstring(&attribute);
    if (name && (text = vt_demangle(name)) && !vt_is_mangled(text))
        return text;
    free(text);
    name = NULL; /* a mangling that nobody here can read: the scopes around the name say nearly as much */
    if (elf->dwarf_attr_integrate(die, DW_AT_name, &attribute))
        name = elf->dwarf_formstring(&attribute);
    if (!name)
        return NULL;
    if (is_c(elf->dwarf_srclang(&unit->die)))
        return strdup(name);
    declared = declaration(elf, die);
    if (declared.cu != unit->die.cu)
        return qualified_elsewhere(elf, unit, &declared, name, depth);
    return qualified(elf, unit, scopes, vt_unit_scopes(unit, elf, &declared, scopes), name, depth);
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

/* A DWARF of ours: when it runs out of memory, the process goes on. */
static Dwarf *begin(struct vt_object *o, Elf *file)
{
    Dwarf *dwarf = o->elf->dwarf_begin_elf(file, DWARF_C_READ, NULL);

    if (dwarf)
        o->elf->dwarf_new_oom_handler(dwarf, out_of_memory);
    return dwarf;
}

/* libdw looks for the dwz file at the place that the link names and under /usr/lib/debug. */
static void open_alt(struct vt_object *o)
{
    Dwarf *alt = o->elf->dwarf_getalt(o->dwarf);

    if (alt)
        o->elf->dwarf_new_oom_handler(alt, out_of_memory);
    else if (vt_object_find_alt(o) && (o->alt = begin(o, o->alt_elf)))
        o->elf->dwarf_setalt(o->dwarf, o->alt);
}

void vt_object_open_dwarf(struct vt_object *o, Elf *file)
{
    jmp_buf here;

    if (!vt_object_section(o->elf, file, ".debug_info") && !vt_object_section(o->elf, file, ".zdebug_info"))
        return; /* other sections alone would hide the debug file that has everything */
    escape = &here;
    if (setjmp(here))
        o->dwarf = NULL;
    else if ((o->dwarf = begin(o, file)))
        open_alt(o);
    escape = NULL;
}

/* The frames around an address of a unit that has it. */
static uint32_t find_frames(struct vt_object *o, uint64_t address, struct vt_object_frame *frames)
{
    struct vt_unit *found = vt_units_find(&o->units, o->elf, o->dwarf, address);
    Dwarf_Die *unit = found ? &found->die : NULL, *function;
    struct chain chain;
    uint32_t i;

    chain.count = 0;
    if (!unit)
        return 0;
    if ((function = vt_unit_function(found, o->elf, address))) {
        chain.die[chain.count++] = *function;
        descend(o->elf, function, address, &chain, 0);
    }
    memset(frames, 0, (chain.count ? chain.count : 1) * sizeof *frames);
    line_place(o->elf, unit, address, &frames[0]);
    for (i = 0; i < chain.count; i++) {
        Dwarf_Die *die = &chain.die[chain.count - 1 - i];

        frames[i].function = function_name(o->elf, found, die, 0);
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
