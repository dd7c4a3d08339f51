/*
 * Merging the native and the Python stack of one instant: every shape that can be told and those that can't, on frames
 * written as words.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "analysis/modules.h"
#include "analysis/stack_rules.h"

#define WORDS 64

/*
 * A native stack from words, innermost first:
 *   E  the evaluation loop        U  an unnamed frame of the interpreter     J  code without a module
 *   i:NAME  another function of the interpreter      s:NAME  one linked into a program that is not called python
 *   +NAME  inlined in the next    NAME  a function of an extension
 */
static void native_of(struct vt_trace *trace, char *words)
{
    char *word, *rest;

    memset(trace, 0, sizeof *trace);
    trace->frames = calloc(WORDS, sizeof *trace->frames);
    for (word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        struct vt_display_frame *frame = &trace->frames[trace->count++];
        bool inlined = *word == '+';

        word += inlined;
        frame->inlined = inlined;
        frame->module = "/env/ext.so";
        frame->function = word;
        if (!strcmp(word, "E") || !strcmp(word, "U") || !strncmp(word, "i:", 2)) {
            frame->module = "/usr/bin/python3.11";
            frame->function = *word == 'E' ? "_PyEval_EvalFrameDefault" : *word == 'U' ? NULL : word + 2;
        } else if (!strncmp(word, "s:", 2)) {
            frame->module = "/opt/uwsgi";
            frame->function = word + 2;
        } else if (!strcmp(word, "J")) {
            frame->module = frame->function = NULL;
        }
    }
}

/* A Python stack: a word that ends in '.' is the outermost frame of an evaluation, a '-' before it an evaluation without. */
static void python_of(struct vt_trace *trace, char *words)
{
    char *word, *rest;

    memset(trace, 0, sizeof *trace);
    trace->frames = calloc(WORDS, sizeof *trace->frames);
    for (word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        struct vt_display_frame *frame = &trace->frames[trace->count++];

        *frame = (struct vt_display_frame){.lang = VT_LANG_PYTHON, .file = "/home/me/train.py", .line = 1};
        for (; *word == '-'; word++)
            frame->empty++;
        frame->function = word;
        frame->entry = word[strlen(word) - 1] == '.';
        if (frame->entry)
            word[strlen(word) - 1] = 0;
    }
}

/* What is left of the merged stack without the frames that were replaced must be `expected`. */
static void check_merge(const char *native, const char *python, unsigned minor, const char *expected)
{
    char native_words[512], python_words[512], text[1024] = "";
    struct vt_trace n, p, merged = {0};
    uint32_t i, pythons = 0;

    strcpy(native_words, native);
    strcpy(python_words, python);
    native_of(&n, native_words);
    python_of(&p, python_words);
    vt_mark_interpreter(&n);
    vt_fold_native(&n);
    assert_int_equal(vt_trace_merge(&merged, &n, &p, minor), 0);
    assert_int_equal(merged.count, n.count + p.count);
    for (i = 0; i < merged.count; i++) {
        const struct vt_display_frame *frame = &merged.frames[i];

        if (frame->lang == VT_LANG_PYTHON) /* all of them, in their order */
            assert_ptr_equal(frame->function, p.frames[pythons++].function);
        if (frame->replaced)
            assert_true(frame->hidden);
        else
            sprintf(text + strlen(text), "%s%s", *text ? " " : "", frame->function ? frame->function : "J");
    }
    assert_int_equal(pythons, p.count);
    assert_string_equal(text, expected);
    vt_trace_free(&merged);
    vt_trace_free(&n);
    vt_trace_free(&p);
}

static void test_plain(void **state)
{
    (void)state;
    check_merge("E i:PyEval_EvalCode i:Py_RunMain _start", "f g <module>", 11, "f g <module> _start");
    check_merge("alloc empty i:cfunction_call E i:_PyFunction_Vectorcall E i:Py_RunMain __libc_start_main _start",
                "f g <module>", 11, "alloc empty f g <module> __libc_start_main _start");
    check_merge("alloc E", "f", 0, "alloc f");
    /* Native calls itself and Python calls itself. */
    check_merge("alloc alloc alloc i:cfunction_call E E E i:Py_RunMain", "f f f f f <module>", 12,
                "alloc alloc alloc f f f f f <module>");
}

static void test_callback(void **state)
{
    (void)state;
    /* As many evaluations as Python frames, or a version that has one frame for each: it can be told. */
    check_merge("alloc i:cfunction_call E i:PyObject_Call node engine i:cfunction_call E E _start", "f g <module>", 11,
                "alloc f node engine g <module> _start");
    check_merge("alloc E E cb E E _start", "f g h", 10, "alloc f g cb h _start"); /* Python stack cut short */
    check_merge("alloc E cb E _start", "f g h i", 9, "alloc f cb g h i _start");  /* native stack cut short */
    check_merge("alloc E cb E cb2 E", "f g h", 0, "alloc f cb g cb2 h");
    /* Later versions: one evaluation may be several frames. */
    check_merge("alloc E cb E _start", "f g h", 12, "alloc f g h cb _start");
    check_merge("alloc E cb E _start", "f g h", 0, "alloc f g h cb _start");
    /* C calls C through the interpreter: no Python runs there. */
    check_merge("alloc i:cfunction_call i:PyObject_Call outer i:cfunction_call E", "f g", 12, "alloc outer f g");
    check_merge("alloc E i:_PyObject_Call outer i:cfunction_call i:type_call more i:slot_tp_call E", "f g", 10,
                "alloc f outer more g");
}

static void test_recorded_evaluations(void **state)
{
    (void)state;
    check_merge("alloc E cb E _start", "f g. h.", 12, "alloc f g cb h _start");
    check_merge("alloc E cb E _start", "f. g h.", 12, "alloc f cb g h _start");
    check_merge("alloc E cb E cb2 i:PyObject_Call E i:list_sort E _start", "f. g h. i. j k.", 11,
                "alloc f cb g h cb2 i j k _start");
    /* Where the numbers would say otherwise. */
    check_merge("alloc E E cb E _start", "f g. h. i.", 12, "alloc f g h cb i _start");
    check_merge("alloc E E cb E _start", "f. g. i.", 12, "alloc f g cb i _start");
    check_merge("alloc E cb E E _start", "f g. h. i.", 9, "alloc f g cb h i _start");
    /* An object dies while the function that the callback called returns; or one more in between. */
    check_merge("free E cb E _start", "-g h.", 12, "free cb g h _start");
    check_merge("free E cb E cb2 E cb3 E _start", "--f. h.", 13, "free cb cb2 f cb3 h _start");
    check_merge("free E del E cb E _start", "f. -g.", 14, "free f del cb g _start");
    check_merge("free E cb E", "---f.", 14, "free cb f");
    /* Either stack cut short. */
    check_merge("alloc E cb E", "f. g. h. i.", 12, "alloc f cb g h i");
    check_merge("alloc E cb E cb2 E _start", "f. g", 12, "alloc f cb g cb2 _start");
    check_merge("alloc E cb E cb2 E _start", "f g", 12, "alloc f g cb cb2 _start");
    /* Stripped: if each run can be one evaluation. */
    check_merge("alloc U U cb U U _start", "f g. h.", 12, "alloc f g cb h _start");
    check_merge("alloc U U cb U U _start", "f. -h.", 12, "alloc f h cb _start");
    check_merge("alloc outer", "f. h.", 12, "alloc outer f h");
    check_merge("alloc U outer i:f _start", "f h.", 12, "alloc f h outer _start");
}

static void test_other_interpreters(void **state)
{
    (void)state;
    /* Stripped: runs of unnamed frames; only where there is one it can be told. */
    check_merge("alloc U U U _start", "f g", 11, "alloc f g _start");
    check_merge("alloc U U cb U U _start", "f g", 10, "alloc f g cb _start");
    /* The exported names are left: static functions are unnamed, the loop is not. */
    check_merge("alloc U i:PyObject_Call outer U E U", "f g", 11, "alloc outer f g");
    /* Names, but none that evaluates. */
    check_merge("alloc i:cfunction_call cb i:PyObject_Call", "f", 11, "alloc f cb");
    /* The tail-calling interpreter of 3.14, with the loop's own frame and without it. */
    check_merge(
        "alloc i:_TAIL_CALL_CALL i:_PyEval_EvalFrameDefault.lto_priv.0 cb i:_TAIL_CALL_CALL i:_PyEval_EvalFrameDefault",
        "f g", 14, "alloc f cb g");
    check_merge("alloc i:_TAIL_CALL_CALL_KW.llvm.1 cb i:_TAIL_CALL_CALL", "f g", 14, "alloc f cb g");
    /* Linked into a program, by name; the loop inlined; not the loop but named like it. */
    check_merge("alloc s:cfunction_vectorcall_O s:_PyEval_EvalFrameDefault s:main", "f", 11, "alloc f main");
    check_merge("alloc +E i:_PyEval_Vector cb +E i:_PyEval_Vector", "f g", 11, "alloc f cb g");
    check_merge("alloc i:_PyEval_EvalFrameDefaultish E cb i:x", "f g", 10, "alloc f g cb");
    /* The interpreter's JIT, perf's trampolines, and generated code that is not the interpreter's. */
    check_merge("alloc i:cfunction_call J J E J i:_PyEval_Vector E", "f g", 14, "alloc f g");
    check_merge("alloc J i:cfunction_call E", "f", 12, "alloc J f");
    check_merge("alloc i:PyObject_Call J dispatcher E", "f", 12, "alloc J dispatcher f");
    check_merge("alloc E J", "f", 12, "alloc f J");
}

static void test_one_language(void **state)
{
    (void)state;
    check_merge("alloc empty __libc_start_main _start", "f g", 11, "alloc empty f g __libc_start_main _start");
    check_merge("alloc empty", "f g", 0, "alloc empty f g");
    check_merge("_start", "f", 0, "f _start");
    check_merge("", "f g", 11, "f g");
    check_merge("alloc E _start", "", 11, "alloc _start");
}

static void test_backward_thread(void **state)
{
    char words[] = "c10::cuda::CUDACachingAllocator::malloc at::native::mul_cuda at::native::mul "
                   "torch::autograd::generated::MulBackward0::apply torch::autograd::Engine::thread_main start_thread";
    struct vt_trace trace;

    (void)state;
    native_of(&trace, words);
    vt_mark_interpreter(&trace);
    vt_fold_native(&trace);
    vt_choose_user(&trace, NULL);
    assert_int_equal(trace.user, 3);
    assert_true(trace.frames[5].hidden);
    assert_null(vt_trace_leaf(&trace));
    trace.frames[1].file = "/src/mul.cu"; /* with sources, they are better */
    trace.frames[1].line = 7;
    vt_choose_user(&trace, NULL);
    assert_int_equal(trace.user, 1);
    trace.frames[2].file = "/home/me/op.cpp";
    vt_choose_user(&trace, "/home/me");
    assert_int_equal(trace.user, 2);
    vt_trace_free(&trace);
}

static void test_interpreter_names(void **state)
{
    static const char *const yes[] = {"/usr/bin/python3.11",     "python",
                                      "/x/python3.13t",          "/x/python3.11-dbg",
                                      "/x/libpython3.12.so.1.0", "/x/python3.13td"};
    static const char *const no[] = {"/x/pythonic", "/x/python3.so.d/app", "/x/cpython.so", "/python3/libfoo.so", ""};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof yes / sizeof yes[0]; i++)
        assert_true(vt_module_is_interpreter(yes[i]));
    for (i = 0; i < sizeof no / sizeof no[0]; i++)
        assert_false(vt_module_is_interpreter(no[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_callback),
        cmocka_unit_test(test_recorded_evaluations),
        cmocka_unit_test(test_other_interpreters),
        cmocka_unit_test(test_one_language),
        cmocka_unit_test(test_backward_thread),
        cmocka_unit_test(test_interpreter_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
