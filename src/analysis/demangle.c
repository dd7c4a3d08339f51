/*
 * C++ names; see demangle.h. __cxa_demangle comes from the process's own libstdc++ if there is one, else from the
 * system's, opened without publishing its symbols.
 */
#include "analysis/demangle.h"

#include <ctype.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef char *demangler(const char *name, char *buffer, size_t *length, int *status);

static demangler *found;

static void look_for_it(void)
{
    void *library;

    found = (demangler *)dlsym(RTLD_DEFAULT, "__cxa_demangle");
    if (!found && (library = dlopen("libstdc++.so.6", RTLD_LOCAL | RTLD_NOW)))
        found = (demangler *)dlsym(library, "__cxa_demangle");
}

static demangler *find_demangler(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, look_for_it);
    return found;
}

/* Length of an operator's symbol after "operator" at text: "<<", "()", "->" ... 0 for named conversions. */
static size_t operator_length(const char *text)
{
    static const char *const symbols[] = {
        "<<=", ">>=", "<=>", "->*", "()", "[]", "<<", ">>", "->", "<=", ">=", "==",  "!=", "&&",
        "||",  "++",  "--",  "+=",  "-=", "*=", "/=", "%=", "^=", "&=", "|=", "<",   ">",  "+",
        "-",   "*",   "/",   "%",   "^",  "&",  "|",  "~",  "!",  "=",  ",",  "\"\""};
    size_t i, length;

    for (i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        length = strlen(symbols[i]);
        if (!strncmp(text, symbols[i], length))
            return length;
    }
    return 0;
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$';
}

/* Position of the argument list, or NULL; *name becomes the start of the name behind the return type. */
static char *find_arguments(char *text, char **name)
{
    int depth = 0;
    bool in_operator = false; /* "operator bool", "operator< <int>": blanks from here on end no return type */
    char *at;

    *name = text;
    for (at = text; *at; at++) {
        if (!strncmp(at, "operator", 8) && (at == text || !is_word(at[-1])) && !is_word(at[8])) {
            at += 7 + operator_length(at + 8);
            in_operator |= !depth;
        } else if (!strncmp(at, "(anonymous namespace)", 21)) {
            at += 20;
        } else if (*at == '(' && !depth) {
            if (at > text && at[-1] != ' ')
                return at;
            depth++; /* decltype (...) and the like */
        } else if (strchr("<({[", *at)) {
            depth++;
        } else if (strchr(">)}]", *at) && !(at > text && *at == '>' && at[-1] == '-')) {
            depth -= depth > 0;
        } else if (*at == ' ' && !depth && !in_operator) {
            *name = at + 1;
        }
    }
    return NULL;
}

void vt_demangled_shorten(char *text)
{
    char *name, *arguments = find_arguments(text, &name);

    if (!arguments || arguments <= name)
        return;
    while (*name == '*' || *name == '&') /* of a returned pointer */
        name++;
    memmove(text, name, (size_t)(arguments - name));
    text[arguments - name] = '\0';
}

bool vt_is_mangled(const char *name)
{
    return name[0] == '_' && (name[1] == 'Z' || name[1] == 'R') && isupper((unsigned char)name[2]);
}

char *vt_demangle(const char *symbol)
{
    demangler *demangle = !strncmp(symbol, "_Z", 2) ? find_demangler() : NULL;
    char *name = vt_demangle_rust(symbol), *copy;
    int status = -1;

    if (name)
        return name;
    if (demangle)
        name = demangle(symbol, NULL, NULL, &status);
    if (!name || status) {
        free(name);
        return strdup(symbol);
    }
    vt_demangled_shorten(name);
    copy = strdup(name);
    free(name);
    return copy;
}
