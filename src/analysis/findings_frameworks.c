/*
 * What would give back memory that frameworks' pools hold at the level of the driver, framework by framework: each has its
 * own words for it, and empty_cache() helps nobody whose pool is CuPy's.
 */
#include <string.h>

#include "analysis/finding_rules.h"
#include "analysis/format.h"
#include "analysis/modules.h"

#define STACK_MAX 64              /* Python frames looked at for the maker of a plan */
#define PLANS_WORTH (16ull << 20) /* work areas of cuFFT plans that are worth a word */

enum { TORCH = 1, JAX = 2, TENSORFLOW = 4, CUPY = 8, HOST_OF_TORCH = 16 };

static unsigned framework_of(const char *path)
{
    const char *name = vt_basename(path);

    if (strstr(path, "/cupy"))
        return CUPY;
    if (!strncmp(name, "libc10", 6) || !strncmp(name, "libtorch", 8))
        return TORCH;
    if (!strncmp(name, "libtensorflow", 13) || !strncmp(name, "_pywrap_tensorflow", 18))
        return TENSORFLOW;
    return strstr(name, "xla") || strstr(name, "pjrt") || strstr(path, "/jax") ? JAX : 0;
}

/* CuPy's cache of cuFFT plans takes their work areas from its pool (cupy.fft.config). */
static bool makes_plan(const struct vt_reading *r, const struct vt_site *site)
{
    uint32_t frames[STACK_MAX], count = vt_reading_stack(r, site->python_stack, frames, STACK_MAX), i;
    const struct vt_frame *frame;
    const struct vt_code *code;

    for (i = 0; i < count; i++)
        if ((frame = vt_reading_frame(r, frames[i])) && (code = vt_reading_frame_code(r, frame)) &&
            strstr(vt_reading_chars(r, code->file), "/cupy/fft/"))
            return true;
    return false;
}

static void advise_cupy(struct vt_finding_builder *b, struct vt_finding *finding, uint64_t pool, uint64_t plans)
{
    char bytes[VT_FORMAT_BYTES];

    vt_add_advice(b, finding, 0,
                  "CuPy's pool took %s and keeps what arrays have freed: "
                  "cupy.get_default_memory_pool().free_all_blocks() gives that back, .set_limit(size=...) bounds it. "
                  "How much of it arrays use is not recorded: .used_bytes() says it.",
                  vt_format_bytes(bytes, pool));
    if (plans >= PLANS_WORTH)
        vt_add_advice(b, finding, plans,
                      "Arrays and work areas made in cupy.fft are part of it. Plans are cached, with their work areas: "
                      "cupy.fft.config.get_plan_cache().set_size(N), .set_memsize(BYTES) or .clear().");
}

void vt_advise_pools(struct vt_finding_builder *b, struct vt_finding *finding)
{
    const struct vt_model *m = b->model;
    uint64_t cupy = 0, plans = 0;
    unsigned found = 0, one;
    uint32_t i;

    for (i = 0; i < finding->site_count; i++) {
        const struct vt_site_row *row = vt_model_site(m, finding->sites[i]);
        const struct vt_module *module = row ? vt_reading_module(m->reading, row->module) : NULL;

        if (!module)
            continue;
        one = framework_of(vt_reading_chars(m->reading, module->path));
        if (one == TORCH && vt_class_of(row->record->kind) == VT_CLASS_HOST)
            one = HOST_OF_TORCH;
        found |= one;
        cupy += one == CUPY ? row->live_bytes : 0;
        plans += one == CUPY && makes_plan(m->reading, row->record) ? row->live_bytes : 0;
    }
    if (found & CUPY)
        advise_cupy(b, finding, cupy, plans);
    if (found & TORCH)
        vt_add_advice(b, finding, 0, "If another program needs it: torch.cuda.empty_cache().");
    if (found & HOST_OF_TORCH)
        vt_add_advice(b, finding, 0,
                      "PyTorch keeps page-locked host buffers for later: torch._C._host_emptyCache() gives back those "
                      "that are not in use.");
    if (found & JAX)
        vt_add_advice(b, finding, 0,
                      "If other programs need the card: XLA_PYTHON_CLIENT_PREALLOCATE=false, set before JAX is "
                      "imported.");
    if (found & TENSORFLOW)
        vt_add_advice(b, finding, 0,
                      "If other programs need the card: let memory grow (TF_FORCE_GPU_ALLOW_GROWTH=true).");
}
