/*
 * Writes a recording whose stacks go through given libraries, to measure how fast a report finds their names:
 *
 *     recording [-e EVENTS -l LIVE] FOLDER SITES DEPTH DISTINCT LIBRARY...        prints the recording's path
 *
 * With LIVE, places are of tensors: so many live ones, side by side with gaps in segments of 20 MiB; and EVENTS are kept, in
 * which these were made and others came and went.
 *
 * DISTINCT return addresses are chosen inside functions of the libraries, evenly over their symbol tables (the full one, or
 * the exported symbols where a library is stripped); the stacks are made of these and share their outer halves, as
 * those of a program do. The same arguments give the same stacks.
 */
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "recording/writer.h"

struct place {
    uint64_t where;
    uint32_t module;
};

static struct vt_writer writer;
static struct place *places;
static uint64_t place_count;

static uint64_t next(void)
{
    static uint64_t state = 88172645463325252u;

    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static void die(const char *what)
{
    fprintf(stderr, "recording: %s\n", what);
    exit(1);
}

static void *append(enum vt_section section, uint64_t *index)
{
    void *record = vt_writer_append(&writer, section, index);

    if (!record)
        die("no room");
    return record;
}

/* The build-id note, where there is one. */
static void take_build_id(struct vt_module *module, const unsigned char *note, uint64_t bytes)
{
    const Elf64_Nhdr *header = (const Elf64_Nhdr *)note;

    if (bytes < sizeof *header + 4 || header->n_type != NT_GNU_BUILD_ID || header->n_namesz != 4 ||
        header->n_descsz > sizeof module->build_id || sizeof *header + 4 + header->n_descsz > bytes)
        return;
    module->build_id_bytes = (uint8_t)header->n_descsz;
    memcpy(module->build_id, note + sizeof *header + 4, header->n_descsz);
}

static uint32_t add_module(const char *path, const unsigned char *file)
{
    const Elf64_Ehdr *elf = (const Elf64_Ehdr *)file;
    const Elf64_Shdr *s = (const Elf64_Shdr *)(file + elf->e_shoff);
    uint64_t index;
    uint32_t id = vt_writer_string(&writer, path, strlen(path));
    struct vt_module *module = append(VT_MODULES, &index);

    module->bias = module->start = (index + 1) << 36;
    module->end = module->start + (1ull << 35);
    module->path = id;
    for (unsigned i = 0; i < elf->e_shnum; i++)
        if (s[i].sh_type == SHT_NOTE)
            take_build_id(module, file + s[i].sh_offset, s[i].sh_size);
    vt_writer_publish(&writer, VT_MODULES);
    return (uint32_t)index;
}

/* The symbols of a table in `count` even steps, an address in the middle of each function. */
static void take_places(const unsigned char *file, const Elf64_Shdr *table, uint32_t module, uint64_t count)
{
    const Elf64_Sym *symbols = (const Elf64_Sym *)(file + table->sh_offset);
    uint64_t all = table->sh_size / sizeof *symbols, i, functions = 0, seen = 0, taken = 0;

    for (i = 0; i < all; i++)
        functions += ELF64_ST_TYPE(symbols[i].st_info) == STT_FUNC && symbols[i].st_shndx && symbols[i].st_size > 4;
    for (i = 0; i < all && taken < count; i++) {
        if (ELF64_ST_TYPE(symbols[i].st_info) != STT_FUNC || !symbols[i].st_shndx || symbols[i].st_size <= 4)
            continue;
        if (seen++ * count / functions < taken)
            continue;
        places[place_count++] = (struct place){symbols[i].st_value + 4 + next() % (symbols[i].st_size - 4), module};
        taken++;
    }
}

static void take_library(const char *path, uint64_t count)
{
    struct stat status;
    int fd = open(path, O_RDONLY);
    const unsigned char *file;
    const Elf64_Shdr *s, *best = NULL;
    char *whole = realpath(path, NULL);

    if (fd < 0 || fstat(fd, &status) || !whole)
        die(path);
    file = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (file == MAP_FAILED || memcmp(file, ELFMAG, SELFMAG) || file[EI_CLASS] != ELFCLASS64)
        die("not a 64-bit library");
    s = (const Elf64_Shdr *)(file + ((const Elf64_Ehdr *)file)->e_shoff);
    for (unsigned i = 0; i < ((const Elf64_Ehdr *)file)->e_shnum; i++)
        if (s[i].sh_type == SHT_SYMTAB || (s[i].sh_type == SHT_DYNSYM && !best))
            best = &s[i];
    if (best)
        take_places(file, best, add_module(whole, file), count);
    free(whole);
}

static uint32_t add_frame(uint32_t parent, const struct place *place)
{
    uint64_t index;
    struct vt_frame *frame = append(VT_FRAMES, &index);

    *frame = (struct vt_frame){parent, place->module, place->where};
    vt_writer_publish(&writer, VT_FRAMES);
    return (uint32_t)index + 1;
}

static uint64_t live, events;

static void add_site(uint32_t stack, uint32_t api, uint64_t bytes)
{
    uint64_t index;
    struct vt_site *site = append(VT_SITES, &index);

    *site = (struct vt_site){.stack = stack,
                             .api = api,
                             .level = live ? VT_LEVEL_TENSOR : VT_LEVEL_DRIVER,
                             .kind = VT_KIND_DEVICE,
                             .live_bytes = bytes,
                             .live_count = 1,
                             .peak_bytes = bytes,
                             .at_peak_bytes = bytes,
                             .alloc_calls = 1,
                             .total_bytes = bytes,
                             .threads = 1};
    vt_writer_publish(&writer, VT_SITES);
}

static void add_sites(unsigned sites, unsigned depth)
{
    uint32_t *outer = calloc(depth, sizeof *outer), api = vt_writer_string(&writer, "cuMemAlloc_v2", 13);

    for (unsigned i = 0; i < sites; i++) {
        unsigned from = i ? depth / 2 + (unsigned)(next() % (depth - depth / 2)) : 0;

        if (i % 64 == 0)
            from = 0;
        for (unsigned d = from; d < depth; d++)
            outer[d] = add_frame(d ? outer[d - 1] : 0, &places[next() % place_count]);
        add_site(outer[depth - 1], api, ((uint64_t)sites - i) * 4096);
    }
    free(outer);
}

static void add_figures(unsigned sites)
{
    uint64_t index, bytes = (uint64_t)sites * (sites + 1) / 2 * 4096;
    struct vt_scope *scope = append(VT_SCOPES, &index);
    struct vt_total *total;

    *scope = (struct vt_scope){.level = VT_LEVEL_DRIVER, .live_bytes = bytes, .peak_bytes = bytes};
    vt_writer_publish(&writer, VT_SCOPES);
    total = append(VT_TOTALS, &index);
    *total = (struct vt_total){.level = VT_LEVEL_DRIVER,
                               .kind = VT_KIND_DEVICE,
                               .live_bytes = bytes,
                               .peak_bytes = bytes,
                               .live_count = sites,
                               .alloc_calls = sites,
                               .total_bytes = bytes};
    vt_writer_publish(&writer, VT_TOTALS);
}

/* --- what lives, and what happened ------------------------------------------------------------------------------------- */

#define SEGMENT (20u << 20)

static void add_slot(uint32_t site, uint64_t address, uint64_t bytes, uint64_t ns)
{
    uint64_t index;
    struct vt_slot *slot = append(VT_LIVE, &index);

    *slot = (struct vt_slot){
        .address = address, .bytes = bytes, .requested = bytes, .time_ns = ns, .site = site, .kind = VT_KIND_DEVICE};
    vt_writer_publish(&writer, VT_LIVE);
}

static void add_event(unsigned type, uint32_t site, uint64_t bytes)
{
    static uint64_t ns;
    struct vt_event *event = vt_writer_next_event(&writer);

    if (!event)
        die("no room for events");
    *event = (struct vt_event){.time_ns = ns += 1000 + next() % 10000,
                               .bytes = bytes,
                               .site = site,
                               .type = (uint8_t)type,
                               .kind = VT_KIND_DEVICE};
    vt_writer_publish(&writer, VT_EVENTS);
}

/* A tensor of a place, which is booked as live there. */
static void add_tensor(uint32_t site, uint64_t address, uint64_t bytes)
{
    struct vt_site *s = vt_writer_at(&writer, VT_SITES, site);

    add_slot(site, address, bytes, 0);
    add_event(VT_EVENT_ALLOC, site, bytes);
    s->live_bytes += bytes;
    s->live_count++;
    s->alloc_calls++;
    s->total_bytes += bytes;
    s->at_peak_bytes = s->peak_bytes = s->live_bytes;
}

/* Tensors of all places in turn, in segments that one more place has taken. Returns the bytes of both. */
static void add_live(uint32_t sites, uint64_t *tensors, uint64_t *segments)
{
    uint64_t index, at = 0, end = 0, i;
    uint32_t api = vt_writer_string(&writer, "cudaMalloc", 10);
    struct vt_site *site = append(VT_SITES, &index);

    *site = (struct vt_site){.api = api, .level = VT_LEVEL_DRIVER, .kind = VT_KIND_DEVICE, .scope = 1, .total = 1};
    vt_writer_publish(&writer, VT_SITES);
    for (i = 0; i < sites; i++) {
        struct vt_site *s = vt_writer_at(&writer, VT_SITES, i);

        s->live_bytes = s->live_count = s->alloc_calls = s->total_bytes = s->at_peak_bytes = 0;
    }
    for (i = 0; i < live; i++) {
        uint64_t bytes = 512 * (1 + next() % 200);

        if (at + bytes > end) {
            at = end ? end + (SEGMENT / 10) : 1ull << 40;
            end = at + SEGMENT;
            add_slot((uint32_t)index, at, SEGMENT, 0);
            *segments += SEGMENT;
        }
        add_tensor((uint32_t)(next() % sites), at, bytes);
        *tensors += bytes;
        at += bytes + (next() % 3 ? 0 : 512 * (next() % 100));
    }
    site = vt_writer_at(&writer, VT_SITES, index);
    site->live_bytes = site->peak_bytes = site->at_peak_bytes = site->total_bytes = *segments;
    site->live_count = site->alloc_calls = *segments / SEGMENT;
}

/* Others that came and went, some a thousand events later. */
static void add_coming_and_going(uint32_t sites)
{
    struct {
        uint32_t site;
        uint64_t bytes;
    } kept[1000] = {{0, 0}};
    uint64_t i;

    for (i = live; i + 2 <= events; i += 2) {
        unsigned k = (unsigned)(next() % 1000);

        if (kept[k].bytes)
            add_event(VT_EVENT_FREE, kept[k].site, kept[k].bytes);
        kept[k].site = (uint32_t)(next() % sites);
        kept[k].bytes = 512 * (1 + next() % 20000);
        add_event(VT_EVENT_ALLOC, kept[k].site, kept[k].bytes);
    }
    for (i = 0; i < 1000; i++)
        if (kept[i].bytes)
            add_event(VT_EVENT_FREE, kept[i].site, kept[i].bytes);
}

static void add_row(unsigned level, uint32_t scope, uint64_t bytes, uint64_t count)
{
    uint64_t index;
    struct vt_scope *s = append(VT_SCOPES, &index);
    struct vt_total *total;

    *s = (struct vt_scope){.level = (uint8_t)level, .live_bytes = bytes, .peak_bytes = bytes};
    vt_writer_publish(&writer, VT_SCOPES);
    total = append(VT_TOTALS, &index);
    *total = (struct vt_total){.level = (uint8_t)level,
                               .kind = VT_KIND_DEVICE,
                               .scope = scope,
                               .live_bytes = bytes,
                               .peak_bytes = bytes,
                               .live_count = count,
                               .alloc_calls = count,
                               .total_bytes = bytes};
    vt_writer_publish(&writer, VT_TOTALS);
}

static void add_everything(unsigned sites, unsigned depth)
{
    uint64_t tensors = 0, segments = 0, index;
    struct vt_device *device = append(VT_DEVICES, &index);

    *device = (struct vt_device){.name = "Simulated GPU", .total_bytes = 80ull << 30};
    vt_writer_publish(&writer, VT_DEVICES);
    add_sites(sites, depth);
    add_live(sites, &tensors, &segments);
    add_coming_and_going(sites);
    add_row(VT_LEVEL_TENSOR, 0, tensors, live);
    add_row(VT_LEVEL_DRIVER, 1, segments, segments / SEGMENT);
}

int main(int argc, char **argv)
{
    struct vt_writer_options options = {.program = "names",
                                        .host = "bench",
                                        .pid = 1,
                                        .rank = -1,
                                        .start_unix_ns = 1700000000000000000u,
                                        .limit_bytes = 1ull << 30,
                                        .events = 4096};
    unsigned sites, depth;
    uint64_t distinct;
    int option;

    while ((option = getopt(argc, argv, "e:l:")) != -1)
        if (option == 'e')
            options.events = events = strtoull(optarg, NULL, 10);
        else if (option == 'l')
            live = strtoull(optarg, NULL, 10);
        else
            die("options are -e EVENTS and -l LIVE");
    argc -= optind - 1;
    argv += optind - 1;
    if (argc < 6)
        die("[-e EVENTS -l LIVE] FOLDER SITES DEPTH DISTINCT LIBRARY...");
    options.directory = argv[1];
    sites = (unsigned)atoi(argv[2]);
    depth = (unsigned)atoi(argv[3]);
    distinct = strtoull(argv[4], NULL, 10);
    if (!sites || depth < 2 || !distinct || !(places = calloc(distinct + (unsigned)argc, sizeof *places)))
        die("bad numbers");
    if (!vt_writer_open(&writer, &options) || writer.state != VT_WRITER_FILE)
        die("cannot be written there");
    for (int i = 5; i < argc; i++)
        take_library(argv[i], distinct / (unsigned)(argc - 5) + 1);
    if (!place_count)
        die("no functions in these libraries");
    if (live) {
        add_everything(sites, depth);
    } else {
        add_figures(sites);
        add_sites(sites, depth);
    }
    vt_writer_header(&writer)->end = VT_END_EXIT;
    vt_writer_header(&writer)->end_ns = events ? events * 7000 : 1000000000;
    puts(writer.path);
    return 0;
}
