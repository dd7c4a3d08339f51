/*
 * A program that embeds Python: the walker is asked before there is any, after libpython was opened RTLD_LOCAL (its
 * symbols are in no global scope), before Py_Initialize, from within, after Py_Finalize, and once more.
 *
 *     embed LIBPYTHON      linked with the walker's objects (taker.c)
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
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

/* In place of the C library's: the walker's system calls are counted. */
static unsigned system_calls;

long syscall(long number, ...)
{
    static long (*real)(long, ...);
    long a[6];
    va_list arguments;
    va_start(arguments, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(arguments, long);
    va_end(arguments);
    __atomic_fetch_add(&system_calls, 1, __ATOMIC_RELAXED);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "syscall");
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static unsigned count_now(void)
{
    struct vt_python_stack stack;
    vt_python_take(&stack, 64);
    return stack.count;
}

/* A thread that has a state of Python's and never runs any: it may be looked at through the kernel a few times, not for
 * ever. */
static void *take_elsewhere(void *python)
{
    int (*ensure)(void) = (int (*)(void))dlsym(python, "PyGILState_Ensure");
    void (*release)(int) = (void (*)(int))dlsym(python, "PyGILState_Release");
    int state = ensure();
    unsigned seen = 0;
    for (int i = 0; i < 4; i++)
        seen += count_now();
    unsigned before = system_calls;
    for (int i = 0; i < 100; i++)
        seen += count_now();
    expect(!seen && before && system_calls == before,
           "a thread without frames is not looked at through the kernel for ever");
    release(state);
    return NULL;
}

static void in_another_thread(void *python)
{
    pthread_t thread;
    void *(*save)(void) = (void *(*)(void))dlsym(python, "PyEval_SaveThread");
    void (*restore)(void *) = (void (*)(void *))dlsym(python, "PyEval_RestoreThread");
    void *state = save();
    pthread_create(&thread, NULL, take_elsewhere, python);
    pthread_join(thread, NULL);
    restore(state);
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
                   "for i in range(3): outer()\n",
                   NULL) == 0,
               "the program failed");
        expect(frames_inside == 3 && line_inside == 4 && finalizing_inside == 0, "frames within");
        in_another_thread(python);
        finalize();
        expect(!count_now(), "after Py_Finalize");
    }
    if (!failures)
        printf("OK embedding: %s, twice\n", vt_python_status());
    return failures != 0;
}
