/*
 * Allocates from code that is in no file: argv[1] says what kind, argv[2...] are libraries to load first. Prints the
 * address of the code.
 *
 *   plain     anonymous memory, with a frame pointer
 *   bare      the same without one: an unwinder loses its way there
 *   perf      plain, with a line in /tmp/perf-PID.map
 *   memfd:X   a mapping of a memfd called X
 *   vdso      plain, as if it were called from the vdso
 *   data      plain, as if it were called from memory that cannot be executed
 *   flip      as if from memory that cannot be executed yet; then plain, in that memory
 *   many      plain, from a hundred mappings that come and go
 */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

typedef void entry(void (*callback)(void), uintptr_t from);

#if defined(__x86_64__)
static const unsigned char framed[] = {0x55, 0x48, 0x89, 0xe5,               /* push %rbp; mov %rsp,%rbp */
                                       0xff, 0xd7, 0x5d, 0xc3};              /* call *%rdi; pop %rbp; ret */
static const unsigned char bare[] = {0x48, 0x83, 0xec, 0x08,                 /* sub $8,%rsp */
                                     0xff, 0xd7,                             /* call *%rdi */
                                     0x48, 0x83, 0xc4, 0x08, 0xc3};          /* add $8,%rsp; ret */
static const unsigned char feigned[] = {0x48, 0x83, 0xec, 0x08,              /* sub $8,%rsp */
                                        0x56,                                /* push %rsi: what it seems to return to */
                                        0x55, 0x48, 0x89, 0xe5,              /* push %rbp; mov %rsp,%rbp */
                                        0xff, 0xd7,                          /* call *%rdi */
                                        0x5d, 0x48, 0x83, 0xc4, 0x10, 0xc3}; /* pop %rbp; add $16,%rsp; ret */
#elif defined(__aarch64__)
/* stp x29,x30,[sp,#-16]!; mov x29,sp; blr x0; ldp x29,x30,[sp],#16; ret */
static const unsigned char framed[] = {0xfd, 0x7b, 0xbf, 0xa9, 0xfd, 0x03, 0x00, 0x91, 0x00, 0x00,
                                       0x3f, 0xd6, 0xfd, 0x7b, 0xc1, 0xa8, 0xc0, 0x03, 0x5f, 0xd6};
#define bare framed
#define feigned framed
#endif

static size_t bytes = 1 << 20;

static void __attribute__((noinline)) hold(void)
{
    void *p = NULL;
    if (cudaMalloc(&p, bytes))
        exit(7);
}

static entry *make(const void *code, size_t size, int fd)
{
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
    if (page == MAP_FAILED)
        exit(8);
    memcpy(page, code, size);
    if (mprotect(page, 4096, PROT_READ | PROT_EXEC))
        exit(8);
    __builtin___clear_cache(page, (char *)page + size);
    return (entry *)page;
}

static void __attribute__((noinline)) call(entry *code, uintptr_t from)
{
    printf("%p\n", (void *)code);
    code(hold, from);
    __asm__ volatile("");
}

static void write_perf_map(const void *code)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
    FILE *file = fopen(path, "w");
    if (!file)
        exit(9);
    fprintf(file, "%lx 1000 old name\n%lx 1000 compiled\x1b kernel\n", (unsigned long)code, (unsigned long)code);
    fclose(file);
}

/* An address in the vdso's code. */
static uintptr_t in_vdso(void)
{
    const Elf64_Ehdr *vdso = (const Elf64_Ehdr *)getauxval(AT_SYSINFO_EHDR);
    return vdso ? (uintptr_t)vdso + vdso->e_entry + 16 : 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "plain";
    for (int i = 2; i < argc; i++)
        if (!dlopen(argv[i], RTLD_NOW))
            return 10;
    if (!strcmp(mode, "bare"))
        call(make(bare, sizeof bare, -1), 0);
    else if (!strcmp(mode, "vdso"))
        call(make(feigned, sizeof feigned, -1), in_vdso());
    else if (!strcmp(mode, "data"))
        call(make(feigned, sizeof feigned, -1),
             (uintptr_t)mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) + 8);
    else if (!strcmp(mode, "flip")) {
        void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        call(make(feigned, sizeof feigned, -1), (uintptr_t)page + 8);
        memcpy(page, framed, sizeof framed);
        mprotect(page, 4096, PROT_READ | PROT_EXEC);
        call((entry *)page, 0);
    } else if (!strncmp(mode, "memfd:", 6)) {
        int fd = memfd_create(mode + 6, 0);
        if (fd < 0 || ftruncate(fd, 4096))
            return 11;
        call(make(framed, sizeof framed, fd), 0);
    } else if (!strcmp(mode, "many"))
        for (int i = 0; i < 100; i++) {
            entry *code = make(framed, sizeof framed, -1);
            code(hold, 0);
            if (i % 2)
                munmap((void *)code, 4096);
        }
    else {
        entry *code = make(framed, sizeof framed, -1);
        if (!strcmp(mode, "perf"))
            write_perf_map((void *)code);
        call(code, 0);
    }
    return 0;
}
