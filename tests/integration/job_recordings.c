/*
 * Writes the recordings of a job of argv[2] ranks into the directory argv[1], as 8 ranks per host would leave them, without
 * running anything: PLACES places each, of 1 MiB and up, and 2 GiB of weights. Rank argv[3] holds 512 MiB more at one place.
 * The pids of all hosts are the same. With an argv[4] no two ranks hold the same at any place.
 */
#include <stdbool.h>
#include <stdlib.h>

#include "../unit/test_reader_fixture.h"

#define PLACES 200
#define MIB (1ull << 20)
#define PER_HOST 8

static uint32_t total;
static bool differ;

/* Code lies elsewhere in each process: the order of frames and codes must not matter. */
static void add_place(struct fixture *f, int index, uint64_t bytes)
{
    char function[32];
    uint32_t outer = fixture_python(f, 0, "/job/train.py", "main", 90), python;

    snprintf(function, sizeof function, "layer_%d", index);
    python = fixture_python(f, outer, "/job/model.py", function, 10 + (uint32_t)index);
    ((struct vt_site *)fixture_record(f, VT_SITES, fixture_site(f, total, 0, "cudaMalloc", bytes, 1, 1, 0)))
        ->python_stack = python;
}

static uint64_t bytes_of(int place, int rank, int uneven)
{
    if (!place)
        return 2048 * MIB;
    return (place == 7 && rank == uneven ? 512 * MIB : 0) + (uint64_t)(1 + place % 4) * MIB +
           (differ ? (uint64_t)(rank + 1) * 512 : 0);
}

static void make(struct fixture *f, int rank, int ranks, int uneven)
{
    struct vt_device device = {.ordinal = rank % PER_HOST, .total_bytes = 80ull << 30, .name = "GPU"},
                     none = {.ordinal = -1};
    uint64_t all = 0;
    int i;

    fixture_begin(f);
    for (i = 0; i < device.ordinal; i++)
        fixture_add(f, VT_DEVICES, &none);
    fixture_add(f, VT_DEVICES, &device);
    for (i = 0; i < PLACES; i++)
        all += bytes_of(i, rank, uneven);
    total = fixture_total(f, VT_LEVEL_DRIVER, VT_KIND_DEVICE, device.ordinal, all, PLACES, all, PLACES, 0);
    for (i = 0; i < PLACES; i++) {
        int place = (i + rank) % PLACES;

        add_place(f, place, bytes_of(place, rank, uneven));
    }
    fixture_header(f)->rank = rank;
    fixture_header(f)->local_rank = rank % PER_HOST;
    fixture_header(f)->world_size = ranks;
    fixture_header(f)->pid = 100 + rank % PER_HOST;
    snprintf(fixture_header(f)->host, sizeof fixture_header(f)->host, "node%d", rank / PER_HOST);
}

static void save(const struct fixture *f, const char *directory, int rank)
{
    char path[4096];
    FILE *file;

    snprintf(path, sizeof path, "%s/vramtrack.train.py.node%d.rank%d.%d.1.vtr", directory, rank / PER_HOST, rank,
             100 + rank % PER_HOST);
    if (!(file = fopen(path, "wb")) || fwrite(f->image, f->bytes, 1, file) != 1 || fclose(file)) {
        perror(path);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    int ranks = argc > 2 ? atoi(argv[2]) : 0, uneven = argc > 3 ? atoi(argv[3]) : -1, i;
    struct fixture f;

    differ = argc > 4;
    for (i = 0; i < ranks; i++) {
        make(&f, i, ranks, uneven);
        save(&f, argv[1], i);
        fixture_end(&f);
    }
    return 0;
}
