/*
 * What would give back memory that frameworks' pools hold at the level of the driver, framework by framework: each has its
 * own words for it, and empty_cache() helps nobody whose pool is CuPy's.
 */
#include <string.h>

#include "analysis/finding_rules.h"
#include "analysis/format.h"
#include "analysis/modules.h"
#include "analysis/verdict.h"

#define STACK_MAX 64              /* Python frames looked at for the maker of a plan */
#define POOL_WORTH (1u << 20)     /* what a framework keeps below this is not worth advice */
#define PLANS_WORTH (16ull << 20) /* work areas of cuFFT plans that are worth a word */

enum { TORCH = 1, JAX = 2, TENSORFLOW = 4, CUPY = 8, HOST_OF_TORCH = 16, HOST_OF_CUPY = 32 };

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

bool vt_takes_as_needed(const struct vt_reading *reading, unsigned frameworks)
{
    bool jax = frameworks & 1u << VT_FRAMEWORK_JAX, tensorflow = frameworks & 1u << VT_FRAMEWORK_TENSORFLOW;

    /* TensorFlow's gpu_bfc_allocator.cc and gpu_process_state.cc; jax/_src/xla_bridge.py, for which "0", "false" and "False"
     * mean no. */
    if (tensorflow && !vt_setting_has(reading, "TF_FORCE_GPU_ALLOW_GROWTH", "true") &&
        !vt_setting_has(reading, "TF_GPU_ALLOCATOR", "cuda_malloc"))
        return false;
    if (jax && !vt_setting_has(reading, "XLA_PYTHON_CLIENT_PREALLOCATE", "0") &&
        !vt_setting_has(reading, "XLA_PYTHON_CLIENT_PREALLOCATE", "alse") &&
        !vt_setting_has(reading, "XLA_PYTHON_CLIENT_ALLOCATOR", "platform"))
        return false;
    return jax || tensorflow;
}

/* Whose pools the finding's sites are. */
struct holders {
    unsigned found;       /* all of them */
    unsigned worthy;      /* those that hold enough for a word */
    uint64_t cupy, plans; /* bytes in CuPy's pool; of these made by cuFFT plans */
};

/* The framework that a row's memory is kept by; of page-locked memory only those that can give it back. */
static unsigned holder_of(const struct vt_model *m, const struct vt_site_row *row)
{
    const struct vt_module *module = row ? vt_reading_module(m->reading, row->module) : NULL;
    unsigned one = module ? framework_of(vt_reading_chars(m->reading, module->path)) : 0;

    if (!one || vt_class_of(row->record->kind) != VT_CLASS_HOST)
        return one;
    return one == TORCH ? HOST_OF_TORCH : one == CUPY ? HOST_OF_CUPY : 0;
}

static struct holders holders_of(const struct vt_model *m, const struct vt_finding *finding)
{
    struct holders h = {0, 0, 0, 0};
    uint64_t bytes;
    unsigned one;
    uint32_t i;

    for (one = TORCH; one <= HOST_OF_CUPY; one *= 2) {
        for (bytes = 0, i = 0; i < finding->site_count; i++) {
            const struct vt_site_row *row = vt_model_site(m, finding->sites[i]);

            if (holder_of(m, row) != one)
                continue;
            h.found |= one;
            bytes += row->live_bytes;
            h.plans += one == CUPY && makes_plan(m->reading, row->record) ? row->live_bytes : 0;
        }
        h.worthy |= bytes >= POOL_WORTH ? one : 0;
        h.cupy += one == CUPY ? bytes : 0;
    }
    return h;
}

void vt_advise_pools(struct vt_finding_builder *b, struct vt_finding *finding)
{
    const struct vt_reading *reading = b->model->reading;
    struct holders h = holders_of(b->model, finding);

    if (h.worthy & CUPY)
        advise_cupy(b, finding, h.cupy, h.plans);
    if (h.worthy & HOST_OF_CUPY)
        vt_add_advice(b, finding, 0,
                      "CuPy keeps page-locked host buffers for later: "
                      "cupy.get_default_pinned_memory_pool().free_all_blocks() gives back those that are not in use.");
    if (h.worthy & TORCH)
        vt_add_advice(b, finding, 0, "If another program needs it: torch.cuda.empty_cache().");
    if (h.worthy & HOST_OF_TORCH)
        vt_add_advice(b, finding, 0,
                      "PyTorch keeps page-locked host buffers for later: torch._C._host_emptyCache() gives back those "
                      "that are not in use.");
    if (h.worthy & JAX && !vt_takes_as_needed(reading, 1u << VT_FRAMEWORK_JAX))
        vt_add_advice(b, finding, 0,
                      "If other programs need the card: XLA_PYTHON_CLIENT_PREALLOCATE=false, set before JAX is "
                      "imported.");
    if (h.worthy & TENSORFLOW && !vt_takes_as_needed(reading, 1u << VT_FRAMEWORK_TENSORFLOW))
        vt_add_advice(b, finding, 0,
                      "If other programs need the card: let memory grow (TF_FORCE_GPU_ALLOW_GROWTH=true).");
}

void vt_advise_stream_pool(struct vt_finding_builder *b, struct vt_finding *finding, uint64_t bytes)
{
    unsigned found = holders_of(b->model, finding).found;

    if (found & TORCH)
        vt_add_advice(b, finding, bytes, "If another program needs it: torch.cuda.empty_cache().");
    if (found & CUPY)
        vt_add_advice(b, finding, bytes,
                      "If another program needs it: free_all_blocks() of the cupy.cuda.MemoryAsyncPool.");
    if (!found)
        vt_add_advice(b, finding, bytes, "Call cudaMemPoolTrimTo, or lower the pool's release threshold.");
}
