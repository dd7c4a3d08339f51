/*
 * Pages and blocks of the simulated card.
 *
 * Up to 1 MiB, blocks share 2 MiB pages cut by a buddy system of 512 B units; larger ones take a slot of address space
 * (slots.c) of their own.  The card charges whole pages, therefore cuMemGetInfo moves in steps of 2 MiB.  Managed and
 * page-locked memory uses slots that are made readable.
 */
#include "driver.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SMALL_MAX SIM_MIB
#define PAGE_TAG ((uintptr_t)1)

enum { UNIT_INSIDE, UNIT_FREE, UNIT_USED };

/* The first unit of a free or used piece describes it; the others stay UNIT_INSIDE. */
struct sim_unit {
    struct sim_page *page;
    union {
        struct {
            struct sim_unit *prev, *next;
        };
        struct sim_block *block;
    };
    uint8_t order, state;
};

struct sim_page {
    struct sim_heap *heap;
    uintptr_t base;
    struct sim_page *next_spare;
    struct sim_unit unit[SIM_UNITS];
};

static struct sim_page *spare_pages;
static struct sim_block *spare_blocks;

/* ---- small blocks: a buddy system in every page ---- */

static void unit_push(struct sim_heap *heap, struct sim_unit *unit, unsigned int order)
{
    unit->state = UNIT_FREE;
    unit->order = (uint8_t)order;
    unit->prev = NULL;
    unit->next = heap->free[order];
    if (unit->next != NULL) {
        unit->next->prev = unit;
    }
    heap->free[order] = unit;
    heap->available |= 1u << order;
}

static void unit_unlink(struct sim_heap *heap, struct sim_unit *unit)
{
    if (unit->prev != NULL) {
        unit->prev->next = unit->next;
    } else {
        heap->free[unit->order] = unit->next;
        if (unit->next == NULL) {
            heap->available &= ~(1u << unit->order);
        }
    }
    if (unit->next != NULL) {
        unit->next->prev = unit->prev;
    }
    unit->state = UNIT_INSIDE;
}

static CUresult page_new(struct sim_heap *heap)
{
    struct sim_page *page = spare_pages;
    size_t slot_bytes;
    uintptr_t base;

    if (heap->charged) {
        TRY(sim_device_charge(heap->device, SIM_PAGE));
    }
    base = sim_slot_take(SIM_PAGE, &slot_bytes);
    if (base == 0) {
        if (heap->charged) {
            sim_device_refund(heap->device, SIM_PAGE);
        }
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (page != NULL) {
        spare_pages = page->next_spare;
    } else {
        page = calloc(1, sizeof(*page));
    }
    page->heap = heap;
    page->base = base;
    page->unit[0].page = page;
    *sim_slot_owner(base) = (uintptr_t)page | PAGE_TAG;
    unit_push(heap, &page->unit[0], SIM_ORDERS - 1);
    return CUDA_SUCCESS;
}

static void page_free(struct sim_page *page)
{
    *sim_slot_owner(page->base) = 0;
    sim_slot_give(page->base, SIM_PAGE);
    if (page->heap->charged) {
        sim_device_refund(page->heap->device, SIM_PAGE);
    }
    page->next_spare = spare_pages; /* all units but the first are as calloc left them */
    spare_pages = page;
}

static CUresult small_take(struct sim_heap *heap, struct sim_block *block)
{
    size_t units = (block->bytes + SIM_UNIT - 1) / SIM_UNIT;
    unsigned int wanted = units <= 1 ? 0 : 64 - (unsigned int)__builtin_clzl(units - 1);
    unsigned int order;
    struct sim_unit *unit;

    if (heap->available >> wanted == 0) {
        TRY(page_new(heap));
    }
    order = wanted + (unsigned int)__builtin_ctz(heap->available >> wanted);
    unit = heap->free[order];
    unit_unlink(heap, unit);
    while (order > wanted) {
        struct sim_unit *upper = unit + ((size_t)1 << --order);

        upper->page = unit->page;
        unit_push(heap, upper, order);
    }
    unit->state = UNIT_USED;
    unit->order = (uint8_t)order;
    unit->block = block;
    block->addr = unit->page->base + (size_t)(unit - unit->page->unit) * SIM_UNIT;
    return CUDA_SUCCESS;
}

static void small_give(struct sim_block *block)
{
    struct sim_page *page = (struct sim_page *)(*sim_slot_owner(block->addr) & ~PAGE_TAG);
    size_t at = (block->addr - page->base) / SIM_UNIT;
    unsigned int order = page->unit[at].order;

    page->unit[at].state = UNIT_INSIDE;
    while (order < SIM_ORDERS - 1) {
        struct sim_unit *buddy = &page->unit[at ^ (size_t)1 << order];

        if (buddy->state != UNIT_FREE || buddy->order != order) {
            break;
        }
        unit_unlink(page->heap, buddy);
        at &= ~((size_t)1 << order);
        order++;
    }
    if (order == SIM_ORDERS - 1) {
        page_free(page);
        return;
    }
    page->unit[at].page = page;
    unit_push(page->heap, &page->unit[at], order);
}

static struct sim_block *small_around(struct sim_page *page, uintptr_t addr)
{
    size_t at = (addr - page->base) / SIM_UNIT;
    unsigned int order;

    for (order = 0; order < SIM_ORDERS; order++) {
        struct sim_unit *unit = &page->unit[at & ~(((size_t)1 << order) - 1)];

        if (unit->state == UNIT_USED && unit->order >= order) {
            return unit->block;
        }
    }
    return NULL;
}

/* ---- blocks ---- */

static struct sim_block *node_new(size_t bytes, enum sim_kind kind, struct sim_heap *heap)
{
    struct sim_block *block = spare_blocks;

    if (block == NULL) {
        const size_t batch = 256;
        size_t i;

        block = calloc(batch, sizeof(*block));
        for (i = 0; i < batch; i++) {
            block[i].next = i + 1 < batch ? &block[i + 1] : NULL;
        }
    }
    spare_blocks = block->next;
    memset(block, 0, sizeof(*block));
    block->bytes = bytes;
    block->kind = kind;
    block->heap = heap;
    block->device = heap->device;
    block->serial = ++sim.serial;
    block->epoch = sim.epoch;
    return block;
}

static void node_free(struct sim_block *block)
{
    block->kind = 0;
    block->next = spare_blocks;
    spare_blocks = block;
}

static bool counts_as_live(const struct sim_block *block)
{
    return !block->heap->host && (block->kind == SIM_LINEAR || block->kind == SIM_ARRAY || block->kind == SIM_POOLED);
}

static CUresult large_take(struct sim_heap *heap, struct sim_block *block)
{
    size_t charge = heap->charged ? sim_round_up(block->bytes, SIM_PAGE) : 0;

    if (charge != 0) {
        TRY(sim_device_charge(heap->device, charge));
    }
    block->addr = sim_slot_take(block->bytes, &block->slot_bytes);
    if (block->addr == 0) {
        if (charge != 0) {
            sim_device_refund(heap->device, charge);
        }
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *sim_slot_owner(block->addr) = (uintptr_t)block;
    return CUDA_SUCCESS;
}

CUresult sim_block_new(struct sim_heap *heap, size_t bytes, enum sim_kind kind, struct sim_block **out)
{
    struct sim_block *block;
    CUresult result;

    if (bytes > (size_t)1 << 46) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    block = node_new(bytes, kind, heap);
    result = bytes <= SMALL_MAX ? small_take(heap, block) : large_take(heap, block);
    if (result != CUDA_SUCCESS) {
        node_free(block);
        return result;
    }
    if (counts_as_live(block)) {
        block->device->live_bytes += bytes;
        block->device->live_count++;
    }
    *out = block;
    return CUDA_SUCCESS;
}

/* Memory that the host may touch: a whole slot made readable and writable. */
CUresult sim_block_new_host(size_t bytes, enum sim_kind kind, struct sim_block **out)
{
    struct sim_block *block = node_new(bytes, kind, &sim.host_heap);

    if (large_take(&sim.host_heap, block) != CUDA_SUCCESS) {
        node_free(block);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (mprotect((void *)block->addr, block->slot_bytes, PROT_READ | PROT_WRITE) != 0) {
        *sim_slot_owner(block->addr) = 0;
        sim_slot_give(block->addr, block->slot_bytes);
        node_free(block);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = block;
    return CUDA_SUCCESS;
}

void sim_block_free(struct sim_block *block)
{
    if (counts_as_live(block)) {
        block->device->live_bytes -= block->bytes;
        block->device->live_count--;
    }
    if (block->slot_bytes == 0) {
        small_give(block);
    } else {
        if (block->heap == &sim.host_heap) {
            mmap((void *)block->addr, block->slot_bytes, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        }
        *sim_slot_owner(block->addr) = 0;
        sim_slot_give(block->addr, block->slot_bytes);
        if (block->heap->charged) {
            sim_device_refund(block->device, sim_round_up(block->bytes, SIM_PAGE));
        }
    }
    node_free(block);
}

struct sim_block *sim_block_around(uintptr_t addr)
{
    uintptr_t *owner = sim_slot_owner(addr);
    struct sim_block *block;

    if (owner == NULL || *owner == 0) {
        return NULL;
    }
    block = *owner & PAGE_TAG ? small_around((struct sim_page *)(*owner & ~PAGE_TAG), addr)
                              : (struct sim_block *)*owner;
    if (block == NULL || block->kind == SIM_ARRAY || block->epoch != sim.epoch || addr - block->addr >= block->bytes) {
        return NULL;
    }
    return block;
}

struct sim_block *sim_block_at(uintptr_t addr)
{
    struct sim_block *block = sim_block_around(addr);

    return block != NULL && block->addr == addr ? block : NULL;
}
