/*
 * Probes: which names are found how, and what dlerror says afterwards; must be the same with and without the library.
 * `regr_lookups [+]LIBRARY...` opens the libraries in turn (+: RTLD_GLOBAL) and prints the answers before and after each.
 */
#include "regr.h"

static const char *const names[] = {"cudaMalloc",           "cudaFree",    "cuInit",        "cuMemAlloc_v2",
                                    "cuGetProcAddress_v2",  "cudnnCreate", "cuNoSuchThing", "malloc",
                                    "nothing_of_that_name", "_exit"};

static void say(const char *how, const char *name, void *found)
{
    const char *first = dlerror(), *again;
    printf("%s %s: %s; %s; ", how, name, found ? "found" : "NULL", first ? first : "no error");
    again = dlerror();
    puts(again ? again : "no error");
}

/* The look-up, which leaves errno as it is if it succeeds. */
static void *look(void *handle, const char *name)
{
    errno = 4711;
    void *p = dlsym(handle, name);
    if (p && errno != 4711)
        printf("errno %d\n", errno);
    return p;
}

static void *thread_state(void *unused)
{
    const char *error = dlerror();
    puts(error ? error : "a new thread has no error");
    return unused;
}

static void probe(void *handle)
{
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        say("default", names[i], look(RTLD_DEFAULT, names[i]));
        say("next", names[i], dlsym(RTLD_NEXT, names[i]));
        say("self", names[i], look(dlopen(NULL, RTLD_NOW), names[i]));
        if (handle)
            say("handle", names[i], look(handle, names[i]));
    }
    /* An error stands until it is asked for, whatever succeeds in between. */
    void *failed = dlsym(RTLD_DEFAULT, "nothing_of_that_name");
    void *found = handle ? dlsym(handle, "cuMemAlloc_v2") : NULL;
    say("a failure before a success leaves", found ? "cuMemAlloc_v2" : "-", failed);
    failed = dlsym(RTLD_DEFAULT, "cuNoSuchThing");
    pthread_t t;
    pthread_create(&t, NULL, thread_state, NULL);
    pthread_join(t, NULL);
    say("own error of", "cuNoSuchThing", failed);
}

int main(int argc, char **argv)
{
    probe(NULL);
    for (int i = 1; i < argc; i++) {
        int global = argv[i][0] == '+';
        void *h = dlopen(argv[i] + global, RTLD_NOW | (global ? RTLD_GLOBAL : RTLD_LOCAL));
        MUST(h);
        puts(argv[i]);
        probe(h);
    }
    return 24;
}
