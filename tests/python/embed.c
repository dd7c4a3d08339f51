/*
 * A program that embeds Python: the walker is asked before there is any, after libpython was opened RTLD_LOCAL (its
 * symbols are in no global scope), before Py_Initialize, from within, after Py_Finalize, and once more.
 *
 *     embed LIBPYTHON      linked with the walker's objects (taker.c)
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "preload/python/python.h"

static unsigned frames_inside;
static int line_inside;
static int finalizing_inside = -1;

static void *take_inside(void *self, void *args)
{
    struct vt_python_stack stack;
    char file[64], function[64];
    (void)self, (void)args;
    vt_python_take(&stack, 64);
    frames_inside = stack.count;
    if (stack.count)
        vt_python_describe(&stack.frame[0], file, sizeof file, function, sizeof function, &line_inside);
    if (stack.count && (strcmp(file, "<string>") != 0 || !strstr("inner outer.<locals>.inner", function)))
        frames_inside = 0;
    finalizing_inside = vt_python_finalizing();
    return NULL; /* with no exception set: SystemError, which the program catches */
}

struct method { /* PyMethodDef */
    const char *name;
    void *(*function)(void *, void *);
    int flags;
    const char *doc;
};

static int failures;

static void expect(int right, const char *what)
{
    failures += !right;
    if (!right)
        printf("NO embedding: %s (%s)\n", what, vt_python_status());
}

static unsigned count_now(void)
{
    struct vt_python_stack stack;
    vt_python_take(&stack, 64);
    return stack.count;
}

int main(int argc, char **argv)
{
    static struct method method = {"take", take_inside, 0x0001 /* METH_VARARGS */, NULL};
    vt_python_prepare();
    expect(strcmp(vt_python_status(), "no Python in this process") == 0 && !count_now(), "before libpython");
    void *python = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!python) {
        printf("-- embedding: no libpython to open\n");
        return 0;
    }
    vt_python_prepare();
    expect(strncmp(vt_python_status(), "CPython 3.", 10) == 0 && !count_now(), "before Py_Initialize");
    void (*initialize)(int) = (void (*)(int))dlsym(python, "Py_InitializeEx");
    int (*finalize)(void) = (int (*)(void))dlsym(python, "Py_FinalizeEx");
    int (*run)(const char *, void *) = (int (*)(const char *, void *))dlsym(python, "PyRun_SimpleStringFlags");
    void *(*add)(const char *) = (void *(*)(const char *))dlsym(python, "PyImport_AddModule");
    void *(*function)(void *, void *, void *) = (void *(*)(void *, void *, void *))dlsym(python, "PyCFunction_NewEx");
    int (*set)(void *, const char *, void *) = (int (*)(void *, const char *, void *))dlsym(python,
                                                                                            "PyObject_SetAttrString");
    for (int round = 0; round < 2; round++) {
        frames_inside = 0, line_inside = 0;
        initialize(0);
        expect(!count_now(), "initialized, but no frame");
        set(add("__main__"), "take", function(&method, NULL, NULL));
        expect(run("def outer():\n"
                   "  def inner():\n"
                   "    try:\n"
                   "      take()\n"
                   "    except SystemError:\n"
                   "      pass\n"
                   "  inner()\n"
                   "outer()\n",
                   NULL) == 0,
               "the program failed");
        expect(frames_inside == 3 && line_inside == 4 && finalizing_inside == 0, "frames within");
        finalize();
        expect(!count_now(), "after Py_Finalize");
    }
    if (!failures)
        printf("OK embedding: %s, twice\n", vt_python_status());
    return failures != 0;
}
