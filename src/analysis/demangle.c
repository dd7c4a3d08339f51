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

/* Length of "operator" and its symbol at `at`, which is in `text`; 0: none is there. */
static size_t operator_at(const char *text, const char *at)
{
    if (strncmp(at, "operator", 8) || (at > text && is_word(at[-1])) || is_word(at[8]))
        return 0;
    return 8 + operator_length(at + 8);
}

/* Behind the bracket that closes the one at `at`, or NULL. */
static char *skip_brackets(char *at)
{
    const char *text = at;
    int depth = 0;
    size_t length;

    for (; *at; at++) {
        if ((length = operator_at(text, at)))
            at += length - 1;
        else if (strchr("<({[", *at))
            depth++;
        else if (strchr(">)}]", *at) && !(*at == '>' && at > text && at[-1] == '-') && !--depth)
            return at + 1;
    }
    return NULL;
}

/* The "::" behind the argument list at `at` if that is the list of a function around the named one, else NULL. */
static char *behind_outer_arguments(char *at)
{
    static const char *const qualifiers[] = {" const", " volatile", " &&", " &"};
    size_t i;

    if (!(at = skip_brackets(at)))
        return NULL;
    for (i = 0; i < sizeof qualifiers / sizeof qualifiers[0]; i++)
        if (!strncmp(at, qualifiers[i], strlen(qualifiers[i])))
            at += strlen(qualifiers[i]);
    return strncmp(at, "::", 2) ? NULL : at;
}

static void cut_out(char *from, char *to)
{
    memmove(from, to, strlen(to) + 1);
}

/* "{lambda(int)#1}" at `at` -> "{lambda}", "{lambda(int)#2}" -> "{lambda#2}". Returns its last character, or NULL. */
static char *shorten_unnamed(char *at)
{
    char *open = at + strcspn(at, "(#}"), *close;

    if (*open == '(' && (close = skip_brackets(open)))
        cut_out(open, close);
    if (!strncmp(open, "#1}", 3))
        cut_out(open, open + 2);
    return strchr(open, '}');
}

/* Position of the argument list, or NULL; *name becomes the start of the name behind the return type. Argument lists of
 * functions around the named one, and of lambdas, are cut out on the way. */
static char *find_arguments(char *text, char **name)
{
    int depth = 0;
    bool in_operator = false; /* "operator bool", "operator< <int>": blanks from here on end no return type */
    char *at, *next;
    size_t length;

    *name = text;
    for (at = text; *at; at++) {
        if ((length = operator_at(text, at))) {
            at += length - 1;
            in_operator |= !depth;
        } else if (!strncmp(at, "(anonymous namespace)", 21)) {
            at += 20;
        } else if (*at == '(' && !depth && at > text && at[-1] != ' ') {
            if (!(next = behind_outer_arguments(at)))
                return at;
            cut_out(at--, next);
            in_operator = false;
        } else if (!depth && (!strncmp(at, "{lambda(", 8) || !strncmp(at, "{unnamed type#", 14)) &&
                   (next = shorten_unnamed(at))) {
            at = next;
        } else if (strchr("<({[", *at)) { /* a round one here: decltype (...) and the like */
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
