/*
 * The indices of units, functions and scopes, against walking over everything: for each entry of a program that the test
 * compiles, with gcc's and with clang's debug information.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "analysis/dwarf_units.h"
#include "analysis/objfile.h"
#include "test_programs.h"

static const char source[] =
    "#include <functional>\n"
    "#include <map>\n"
    "#include <string>\n"
    "namespace empty {}\n"
    "namespace outer { int before(int x) { return x + 1; }\n"
    "  namespace { namespace inner { struct Box { struct Lid { int open(int); enum Kind { A, B }; }; int put(int); }; "
    "} }\n"
    "  inline namespace v2 { template <class T> struct Shelf { T take(T x) { auto f = [&](T y) { return x * y; }; "
    "return f(x) + f(2); } }; }\n"
    "  namespace { int inner::Box::Lid::open(int x) { struct Local { int twice(int y) { return y * x_; } int x_; } l = "
    "{x}; return l.twice(3); }\n"
    "              int inner::Box::put(int x) { Lid l; std::function<int(int)> g = [&](int y) { return l.open(y); }; "
    "return g(x); } }\n"
    "  int after(int x) { inner::Box b; return b.put(x) + Shelf<int>().take(x) + (int)Shelf<long>().take(x); }\n"
    "}\n"
    "struct Last { int value; int get() const; };\n"
    "int Last::get() const { std::map<std::string, int> m; m[\"a\"] = value; return m.begin()->second + "
    "outer::after(value); }\n"
    "extern \"C\" int second(int);\n"
    "int main(int n, char **) { Last l = {n}; return l.get() + outer::before(n) + second(n); }\n";
static const char other[] =
    "static int helper(int x) { return x * 5; }\nint second(int x) { int (*volatile f)(int) = helper; return f(x); }\n";

struct counts {
    unsigned entries, nested, functions;
};

/* The scopes of one entry, against the way that led to it. */
static void check_scopes(struct vt_object *o, struct vt_unit *unit, const Dwarf_Die *die, const Dwarf_Die *way,
                         uint32_t depth, struct counts *counts)
{
    Dwarf_Die found[VT_SCOPES_MAX];
    uint32_t count = vt_unit_scopes(unit, o->elf, die, found), i;

    assert_int_equal(count, depth);
    for (i = 0; i < count; i++)
        assert_ptr_equal(found[i].addr, way[i].addr);
    counts->entries++;
    counts->nested += count >= 3;
}

static void check_function(struct vt_object *o, struct vt_unit *unit, Dwarf_Die *die, struct counts *counts)
{
    Dwarf_Addr base, start, end;
    ptrdiff_t offset = 0;

    while ((offset = o->elf->dwarf_ranges(die, offset, &base, &start, &end)) > 0) {
        struct vt_unit *found;

        if (!start || start >= end)
            continue;
        found = vt_units_find(&o->units, o->elf, o->dwarf, start);
        assert_ptr_equal(found, unit);
        assert_ptr_equal(vt_unit_function(unit, o->elf, start)->addr, die->addr);
        assert_ptr_equal(vt_unit_function(unit, o->elf, end - 1)->addr, die->addr);
        counts->functions++;
    }
}

static void walk(struct vt_object *o, struct vt_unit *unit, Dwarf_Die *way, uint32_t depth, bool in_function,
                 struct counts *counts)
{
    Dwarf_Die die;

    if (o->elf->dwarf_child(depth ? &way[depth - 1] : &unit->die, &die))
        return;
    assert_true(depth < VT_SCOPES_MAX);
    do {
        bool function = o->elf->dwarf_tag(&die) == DW_TAG_subprogram;

        check_scopes(o, unit, &die, way, depth, counts);
        if (function && !in_function)
            check_function(o, unit, &die, counts);
        way[depth] = die;
        walk(o, unit, way, depth + 1, in_function || function, counts);
    } while (!o->elf->dwarf_siblingof(&die, &die));
}

static void check_program(const char *name)
{
    Dwarf_Die way[VT_SCOPES_MAX];
    struct counts counts = {0};
    struct vt_object object;
    uint32_t i;

    vt_object_open(&object, in_folder(name), NULL, 0);
    assert_null(object.problem);
    assert_non_null(object.dwarf);
    assert_null(vt_units_find(&object.units, object.elf, object.dwarf, 1)); /* no code there; and the units are read */
    assert_int_equal(object.units.count, 2);
    for (i = 0; i < object.units.count; i++)
        walk(&object, &object.units.units[i], way, 0, false, &counts);
    assert_in_range(counts.entries, 1000, 1000000);
    assert_in_range(counts.nested, 100, counts.entries);
    assert_in_range(counts.functions, 12, 10000);
    vt_object_close(&object);
}

static void check_compiler(const char *c, const char *cplus, const char *flags)
{
    put("main.cpp", source);
    put("other.c", other);
    if (!vt_elfutils() || shell("%s -g %s -c -o other.o other.c && %s -g %s -std=c++17 -o program main.cpp other.o", c,
                                flags, cplus, flags))
        skip();
    check_program("program");
}

static void test_gcc(void **state)
{
    (void)state;
    check_compiler("gcc", "g++", "-O1");
}

static void test_gcc_dwarf4(void **state)
{
    (void)state;
    check_compiler("gcc", "g++", "-O2 -gdwarf-4");
}

static void test_clang(void **state)
{
    (void)state;
    check_compiler("clang", "clang++", "-O0");
}

/* Each label must be there once: what is inlined may leave no copy behind. */
static const char local_source[] =
    "#define NOINLINE __attribute__((noinline))\n"
    "#define LABEL(name) asm volatile(#name \": nop\")\n"
    "struct A { NOINLINE int member(int x) const; struct { NOINLINE int go(int x) { LABEL(in_unnamed); return x; } } "
    "u; };\n"
    "int A::member(int x) const {\n"
    "  auto f = [x](int y) { LABEL(in_member);\n"
    "    auto k = [y](int z) { LABEL(in_nested); return y + z; }; return x * k(y); };\n"
    "  return f(3); }\n"
    "namespace real { namespace { int free(int x) {\n"
    "    auto f = [](int y) { LABEL(in_free); return y + 1; }; return f(x); } }\n"
    "  NOINLINE int with_local(int x) {\n"
    "    struct Local { int twice(int y) { LABEL(in_local); return 2 * y; } } l; return l.twice(x); }\n"
    "  auto global = [](int x) { LABEL(in_global); return x - 1; }; }\n"
    "int main(int n, char **) { A a; auto f = [&](int y) { LABEL(in_main); return y + n; };\n"
    "  return a.member(n) + a.u.go(n) + real::free(n) + real::with_local(n) + real::global(n) + f(n); }\n";

/* clang's symbols count what has no name in the whole unit: "$_1". */
static const char *with_lambda(const char *from, char to[256])
{
    char *end = to;

    while (*from && end < to + 240) {
        if (strncmp(from, "$_", 2)) {
            *end++ = *from++;
            continue;
        }
        end = stpcpy(end, "{lambda}");
        from += 2 + strspn(from + 2, "0123456789");
    }
    *end = '\0';
    return to;
}

static void check_local(const char *flags)
{
    static const char *const names[][2] = {
        {"in_unnamed", "A::{unnamed type}::go"},
        {"in_member", "A::member::{lambda}::operator()"},
        {"in_nested", "A::member::{lambda}::operator()::{lambda}::operator()"},
        {"in_free", "real::(anonymous namespace)::free::{lambda}::operator()"},
        {"in_local", "real::with_local::Local::twice"},
        {"in_global", "real::global::{lambda}::operator()"},
        {"in_main", "main::{lambda}::operator()"},
    };
    struct vt_object_frame frames[VT_OBJECT_FRAMES];
    struct vt_object object;
    uint32_t i, count;
    char name[256];

    put("local.cpp", local_source);
    if (!vt_elfutils() || shell("command -v %s >/dev/null", strtok(strcpy(name, flags), " ")))
        skip();
    assert_int_equal(shell("%s local.cpp -o local", flags), 0);
    vt_object_open(&object, in_folder("local"), NULL, 0);
    assert_non_null(object.dwarf);
    for (i = 0; i < sizeof names / sizeof names[0]; i++) {
        uint64_t address = address_of(names[i][0], "local");

        if (!strcmp(names[i][0], "in_global") && !strncmp(flags, "clang", 5))
            continue; /* not named after its variable */
        assert_true(address);
        assert_true((count = vt_object_dwarf(&object, address, frames)) > 0);
        assert_non_null(frames[0].function);
        assert_string_equal(with_lambda(frames[0].function, name), names[i][1]);
        while (count--)
            free(frames[count].function);
    }
    vt_object_close(&object);
}

/* What is in a function is named by it: the types of lambdas have no name, and gcc gives lambdas no linkage name. */
static void test_local_gcc(void **state)
{
    (void)state;
    check_local("g++ -g -O0");
    check_local("g++ -g -O1");
    check_local("g++ -g -O2 -gdwarf-4");
    check_local("g++ -g -O2 -flto");
}

static void test_local_clang(void **state)
{
    (void)state;
    check_local("clang++ -g -O0"); /* else it keeps second copies of what it inlined, and so of the labels */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gcc),       cmocka_unit_test(test_gcc_dwarf4),  cmocka_unit_test(test_clang),
        cmocka_unit_test(test_local_gcc), cmocka_unit_test(test_local_clang),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
