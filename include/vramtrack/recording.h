/*
 * The recording: the file that the preload library writes and everything else reads.
 *
 * A recording is one memory-mapped file per process. The writer changes it in place (MAP_SHARED), so at every instant
 * the file says what the process holds: after SIGKILL it is as complete as after exit. docs/format.md tells the same
 * story in prose.
 *
 * Shape
 *   offset 0      struct vt_header, VT_HEADER_BYTES long. Its directory describes VT_SECTION_COUNT sections.
 *   behind it     extents, page aligned, in the order in which they were needed.
 * A section is a growing array of fixed-size records, kept in extents that double: extent e holds `first << e` records.
 * So records never move, the writer needs no copy to grow, and record i is found with one count-leading-zeros
 * (vt_record_offset). `count` is stored after the record that it adds, with release order.
 *
 * Identity
 *   string id     offset of a struct vt_string in VT_STRINGS; 0 is "no string".
 *   other ids     the index in the section plus one where 0 must mean "none" (stacks); a plain index elsewhere, which
 *                 the field's comment says. A frame's parent has a smaller id than the frame: walks end.
 * Times are nanoseconds of CLOCK_MONOTONIC since header.start_mono_ns. Sizes are bytes. All integers are little endian.
 *
 * A reader trusts nothing: every offset, count, id and string length is checked against the size of the file.
 * Versions: a new field takes reserved bytes, a new section the next number, and `minor` goes up; a reader skips
 * sections that it does not know. Anything else raises `major`, and a reader refuses a major that it does not know.
 */
#ifndef VRAMTRACK_RECORDING_H
#define VRAMTRACK_RECORDING_H

#include <stdint.h>

#define VT_MAGIC "VRAMTRK"              /* with its NUL: 8 bytes */
#define VT_MAJOR 2                      /* 2.4 is 1.4 with the fields of a site in the order in which they are needed */
#define VT_MINOR 4
#define VT_ENDIAN 0x01020304u           /* as the writer's machine stores it */
#define VT_HEADER_BYTES 8192u
#define VT_PAGE 4096u                   /* extents are aligned to it, whatever the machine's page size (rounded up) */
#define VT_MAX_EXTENTS 26
#define VT_NONE UINT32_MAX              /* "no index" where an index field may be empty */

enum vt_section {
    VT_STRINGS,       /* bytes (record_bytes 1, first a multiple of 4); see struct vt_string */
    VT_MODULES,       /* struct vt_module: loaded objects, one per load */
    VT_FRAMES,        /* struct vt_frame: the parent-linked stack tree */
    VT_SITES,         /* struct vt_site */
    VT_TOTALS,        /* struct vt_total: one per (level, kind, device) */
    VT_SCOPES,        /* struct vt_scope: one per (level, class, device); owns the peak */
    VT_TIMELINES,     /* struct vt_timeline: same index as its scope */
    VT_LIVE,          /* struct vt_slot: live allocations; slots are reused */
    VT_EVENTS,        /* struct vt_event: ring of the newest events; event s is at s % limit */
    VT_MOMENTS,       /* struct vt_moment */
    VT_MOMENT_TOTALS, /* struct vt_moment_total: ranges named by moments */
    VT_MOMENT_SITES,  /* struct vt_moment_site: ranges named by moments */
    VT_MOMENT_SLOTS,  /* struct vt_slot: ranges named by moments */
    VT_FAILURES,      /* struct vt_failure */
    VT_DEVICES,       /* struct vt_device: index = CUDA ordinal in this process */
    VT_POOLS,         /* struct vt_pool: stream-ordered memory pools */
    VT_THREADS,       /* struct vt_thread */
    VT_STREAMS,       /* struct vt_stream */
    VT_CODES,         /* struct vt_code: Python code objects (since 1.1) */
    VT_NAMES,         /* struct vt_frame_name: names of native frames that the process looked up itself (since 1.2) */
    VT_ALLOCATORS,    /* struct vt_allocator: a framework's allocator on one device (since 1.2) */
    VT_STEPS,         /* struct vt_step: training steps, thinned out evenly (since 1.2) */
    VT_USAGES,        /* struct vt_usage: what a card held at one instant, and who (since 1.3) */
    VT_PROCESSES,     /* struct vt_process_bytes: ranges named by usages (since 1.3) */
    VT_PROGRAMS,      /* struct vt_program: compiled programs of a framework (since 1.3) */
    VT_SECTION_COUNT
};

enum vt_level { VT_LEVEL_DRIVER, VT_LEVEL_TENSOR, VT_LEVEL_COUNT };

/* The kinds of the report's schema. VT_KIND_NONE marks a free slot. */
enum vt_kind {
    VT_KIND_NONE,
    VT_KIND_DEVICE,          /* cuMemAlloc, cuMemAllocPitch */
    VT_KIND_PINNED,          /* page-locked host memory that CUDA allocated */
    VT_KIND_REGISTERED,      /* the application's memory, page-locked by cuMemHostRegister */
    VT_KIND_MANAGED,         /* cuMemAllocManaged: resides where it is used */
    VT_KIND_ARRAY,           /* CUDA arrays and mipmapped arrays; address = handle */
    VT_KIND_ASYNC,           /* stream-ordered, from a pool */
    VT_KIND_VMM_PHYSICAL,    /* cuMemCreate; address = handle */
    VT_KIND_VMM_MAPPED,      /* cuMemMap: address space with memory behind it; not memory of its own */
    VT_KIND_VMM_RESERVED_VA, /* cuMemAddressReserve: address space only */
    VT_KIND_GRAPH,           /* graph memory nodes, explicit or captured */
    VT_KIND_IMPORTED,        /* IPC, external memory, shareable handles: somebody else's memory */
    VT_KIND_COUNT
};

/* What a peak is taken over: kinds of one class add up to one quantity. */
enum vt_class {
    VT_CLASS_DEVICE,   /* device, array, async, vmm_physical, graph: occupies the card */
    VT_CLASS_HOST,     /* pinned, registered: occupies host memory; device is -1 */
    VT_CLASS_MANAGED,  /* managed */
    VT_CLASS_ADDRESS,  /* vmm_mapped, vmm_reserved_va: address space */
    VT_CLASS_IMPORTED, /* imported */
    VT_CLASS_COUNT
};

struct vt_section_entry {
    uint32_t record_bytes;
    uint32_t first;                   /* records in extent 0, a power of two */
    uint64_t count;                   /* records written; VT_EVENTS: events ever written (may exceed limit) */
    uint64_t limit;                   /* most records that may exist at once */
    uint64_t lost;                    /* records that found no room */
    uint64_t extent[VT_MAX_EXTENTS];  /* file offsets; 0: not allocated */
};

enum vt_end { VT_END_RUNNING, VT_END_EXIT, VT_END_EXEC }; /* RUNNING in the file of a dead process: it was killed */

/* Why the file is not the whole story; header.flags. */
#define VT_FLAG_NO_SPACE 1u      /* extents from some point on exist in the process's memory only (disk full) */
#define VT_FLAG_BOUND_REACHED 2u /* the size limit was reached: sections with lost > 0 are incomplete */
#define VT_FLAG_STOPPED 4u       /* recording stopped after an internal failure; header.stop_reason says which */
#define VT_FLAG_MISSED 8u        /* header.missed_events calls could not be recorded (signal handler, re-entry) */

struct vt_header {
    char magic[8];
    uint16_t major, minor;
    uint32_t endian;
    uint32_t header_bytes;
    uint32_t section_count;
    uint64_t limit_bytes;   /* the file never grows beyond this */
    uint64_t used_bytes;    /* end of the last extent */

    int32_t pid;
    int32_t rank, local_rank, world_size; /* -1: not set */
    uint64_t start_unix_ns;               /* CLOCK_REALTIME at first CUDA use */
    uint64_t start_mono_ns;               /* CLOCK_MONOTONIC at the same instant */
    uint64_t process_start_ticks;         /* /proc/PID/stat field 22: tells a live process from a reused pid */
    char host[64];
    char program[64];
    uint32_t exe;           /* string id: path of the executable */
    uint32_t cmdline;       /* string id: arguments, each followed by a NUL */
    uint32_t environment;   /* string id: allocator settings and job ids of the environment, NAME=VALUE each followed by a NUL */
    uint32_t writer;        /* string id: version of the library that wrote this */

    uint32_t flags;         /* VT_FLAG_* */
    uint32_t stop_reason;   /* string id */
    uint64_t missed_events;
    uint64_t last_ns;       /* time of the newest event */
    uint64_t end_ns;        /* time of the end; 0 while running */
    uint32_t end;           /* enum vt_end */
    int32_t exit_code;
    uint32_t stack_depth;   /* frames kept per stack at most */
    uint32_t unwinder;      /* string id: what took the native stacks, or why there are none */
    uint32_t driver_version; /* cuDriverGetVersion: 13000 = 13.0; 0: unknown */
    uint32_t driver;         /* string id: path of the object that provides the driver API */
    uint32_t oom_count;      /* out-of-memory failures that were not recovered from */
    uint32_t python;         /* string id: whose Python frames are read, or why none are (since 1.1) */
    uint32_t step_shift;     /* VT_STEPS record i is step number i << step_shift (since 1.2) */
    uint64_t steps;          /* training steps that have ended (since 1.2) */
    uint64_t step_ns;        /* when the newest of them ended; 0: none has (since 1.3) */
    uint64_t stretch_ns;     /* when the present stretch began, see enum vt_fate (since 1.3) */
    uint32_t phase;          /* enum vt_phase of the present (since 1.3) */
    uint32_t step_source;    /* enum vt_step_source: what counts as the end of a step (since 1.3) */
    uint32_t nvml;          /* string id: whose figures VT_USAGES has, or why NVML gave none (since 1.3) */
    uint32_t host_failure;  /* index + 1 of the failure of page-locked memory that the next four were read at; 0: none has been
                               (since 1.3) */
    uint64_t host_available_bytes; /* MemAvailable; 0: not known */
    uint64_t host_limit_bytes, host_used_bytes; /* of the control group that leaves least; limit 0: none, or not known */
    uint64_t lockable_bytes; /* RLIMIT_MEMLOCK; VT_UNKNOWN_BYTES: no limit; 0: not known */
    uint32_t request;        /* whoever wants a moment taken writes a number here; 0: nobody does (since 1.4) */
    uint32_t answer;         /* the request that was answered last (since 1.4) */
    uint32_t answer_moment;  /* index + 1 of the moment taken for it; 0: there was no room (since 1.4) */
    uint32_t unused;
    char request_name[32];   /* the moment's name, written before `request` (since 1.4) */
    uint8_t reserved[384];

    struct vt_section_entry section[VT_SECTION_COUNT];
};

/* A string: 4 bytes of length, the bytes, a NUL. It never crosses an extent; ids are offsets, multiples of 4. */
struct vt_string {
    uint32_t length;
    char text[];
};

struct vt_module {
    uint64_t start, end;   /* address range of its PT_LOAD segments */
    uint64_t bias;         /* address minus the file's virtual address: what symbols are looked up with */
    uint32_t path;         /* string id */
    uint8_t build_id_bytes;
    uint8_t build_id[20];
    uint8_t flags;         /* VT_MODULE_* */
    uint16_t unused;
    uint64_t seen_ns;      /* first use in a stack */
};
#define VT_MODULE_SELF 1u    /* this library */
#define VT_MODULE_MAPPING 2u /* memory with code that the loader knows nothing of: `path` is the kernel's name for it, 0 for
                                all anonymous memory together; bias 0 unless it is of a file (since 1.3) */

/* A node of the stack tree. Walking `parent` goes from the innermost frame outwards. Ids are index + 1. Native and Python
 * stacks are trees of their own in one section; a site names one of each. */
struct vt_frame {
    uint32_t parent;  /* 0: outermost */
    uint32_t module;  /* index in VT_MODULES; VT_NONE: no module, `where` is an absolute address; VT_PYTHON */
    uint64_t where;   /* native: return address minus the module's bias (the caller's instruction ends there: look up
                         where - 1). Python: index in VT_CODES << 32 | VT_PYTHON_ENTRY | VT_PYTHON_EMPTY | line */
};
#define VT_PYTHON 0xfffffffeu /* a vt_frame.module: the frame is a Python frame */
#define VT_PYTHON_LINE 0x1fffffffu  /* 0: the line is not known */
#define VT_PYTHON_ENTRY 0x80000000u /* the outermost frame of one call of the interpreter's evaluation loop: what native code
                                       called; a stack without any doesn't say (since 1.3) */
#define VT_PYTHON_EMPTY 0x60000000u /* how many calls of the loop stand between this frame and the next inner one without a
                                       frame of their own (its function is returning): 0 to 3 (since 1.3) */
#define VT_PYTHON_EMPTY_SHIFT 29

/* A Python code object as it was when a stack first named it. */
struct vt_code {
    uint32_t file, function; /* string ids, UTF-8; function is the qualified name where Python has one (3.11) */
    int32_t first_line;
    uint32_t unused;
};

#define VT_HISTORY 16

/* What the program was doing, where a framework shows it. NONE: nothing is known, or none of the others (forward). */
enum vt_phase {
    VT_PHASE_NONE,
    VT_PHASE_BACKWARD,
    VT_PHASE_OPTIMIZER,
    VT_PHASE_ZERO_GRAD,
    VT_PHASE_DATA,
    VT_PHASE_COUNT
};

/* What counts as the end of a training step; a later one of these makes the earlier ones count no more. */
enum vt_step_source {
    VT_STEP_NONE,
    VT_STEP_ZERO_GRAD, /* Optimizer.zero_grad, from the third on */
    VT_STEP_PROFILER,  /* torch.profiler's step, from the second on */
    VT_STEP_OPTIMIZER, /* Optimizer.step */
    VT_STEP_MARK,      /* vramtrack_step() */
    VT_STEP_SOURCE_COUNT
};

/* When a freed allocation ended, seen from its birth. A step ends with the optimizer's step; a stretch is the time between
 * two changes of phase. */
enum vt_fate {
    VT_FATE_STRETCH,  /* in the same stretch: a temporary */
    VT_FATE_BACKWARD, /* later in the same step, in the backward phase: saved for backward */
    VT_FATE_STEP,     /* later in the same step, elsewhere */
    VT_FATE_LATER,    /* in a later step */
    VT_FATE_COUNT
};

struct vt_fate_sum {
    uint64_t count, bytes;
    uint64_t at_peak_bytes; /* of the site's at_peak_bytes: those that have been freed since */
};

/*
 * A site: all allocations of one (level, kind, device, api, stack, phase, range).
 * `at_peak_*` belong to the peak number `peak_epoch` of the site's scope; if the scope has seen a newer peak
 * ((uint32_t)scope.epoch != peak_epoch), nothing happened at this site since before it, and live_* are the values at the peak.
 */
struct vt_site {
    /* One line of the cache, which is all that an allocation touches. */
    uint64_t live_bytes;
    uint64_t requested_bytes; /* of the live ones: asked for, before rounding */
    uint64_t peak_bytes;      /* this site's own highest live_bytes */
    uint64_t alloc_calls, total_bytes;
    uint64_t last_ns;
    uint32_t live_count;
    uint32_t peak_epoch; /* the lower half of its scope's epoch at its last change */
    uint32_t total;      /* index */
    uint8_t history_shift, history_count;
    uint8_t level, kind;

    /* And one more, which mostly is all that a free does. */
    uint64_t free_calls;                     /* frees by a call that gave memory back */
    uint64_t lifetime_ns;                    /* sum over the freed ones */
    struct vt_fate_sum ended[VT_FATE_COUNT]; /* the freed ones by when they ended; the counts' sum is free_calls (since 1.3) */

    uint64_t at_peak_bytes, at_peak_count;
    uint64_t retired; /* ended by a context teardown, without a free call */
    uint64_t first_ns;
    uint64_t threads, streams; /* bit (index % 64) of each thread and stream that allocated here */
    uint32_t stack;            /* frame id; 0: no stack */
    uint32_t python_stack;     /* frame id of the Python stack; 0: none */
    uint32_t api;              /* string id: entry point as the program called it */
    uint32_t scope;            /* index */
    uint32_t range;            /* string id: innermost named range around it; part of what makes a site (since 1.2) */
    int16_t device;            /* -1: host or unknown */
    uint8_t phase;             /* enum vt_phase in which it allocates; part of what makes a site (since 1.2) */
    uint8_t unused[9];
    uint64_t history[VT_HISTORY]; /* live bytes at the end of each of history_count intervals of 1 << history_shift ns,
                                     counted from time 0; the intervals behind them: unchanged since */
};

/* Exact figures of one (level, kind, device). */
struct vt_total {
    uint8_t level, kind;
    int16_t device;
    uint32_t scope;
    uint64_t live_bytes, live_count, peak_bytes, requested_bytes;
    uint64_t alloc_calls, free_calls, failed_allocs, failed_frees;
    uint64_t total_bytes, retired;
};

/* A quantity that has a peak: all kinds of one class on one device at one level. */
struct vt_scope {
    uint8_t level, class_;
    int16_t device;
    uint32_t peak_phase; /* enum vt_phase at the peak (since 1.3) */
    uint64_t live_bytes, peak_bytes;
    uint64_t epoch;   /* number of peaks so far */
    uint64_t peak_ns;
};

#define VT_BUCKETS 512

/* Live bytes over the whole run: bucket b covers [b << shift, (b + 1) << shift) ns. When the run outgrows the buckets,
 * neighbours are merged and shift goes up, so minima and maxima stay exact. A bucket without events has min > max. */
struct vt_timeline {
    uint32_t scope;
    uint32_t shift;
    uint32_t used;    /* buckets in use */
    uint32_t unused;
    struct {
        uint64_t min, max;
    } bucket[VT_BUCKETS];
};

/* A live allocation. kind == VT_KIND_NONE: the slot is free, and the other fields mean nothing. */
struct vt_slot {
    uint64_t address;   /* pointer or handle */
    uint64_t bytes;     /* what it holds */
    uint64_t requested; /* what was asked for */
    uint64_t time_ns;
    uint32_t site;      /* index */
    uint16_t stream;    /* index + 1 in VT_STREAMS; 0: not stream-ordered */
    uint8_t kind;
    uint8_t flags;      /* VT_SLOT_* */
};
#define VT_SLOT_RELEASED 1u /* vmm_physical: no handle left, mappings keep it alive */
#define VT_SLOT_RUNTIME 2u  /* seen in the runtime API only: a driver that the hooks do not reach */
#define VT_SLOT_DIRECT 4u   /* level tensor: the driver's allocation itself, handed on, which it begins and ends with (since 1.2) */
#define VT_SLOT_CAPTURE 8u  /* not stream-ordered, made while a CUDA graph was captured: `stream` is the capture's number, from 1
                               (since 1.3) */

enum vt_event_type {
    VT_EVENT_ALLOC = 1,
    VT_EVENT_FREE,
    VT_EVENT_RETIRE,        /* ended by a context teardown */
    VT_EVENT_FAILED_ALLOC,
    VT_EVENT_FAILED_FREE,
    VT_EVENT_MOMENT,        /* address: index of the moment */
    VT_EVENT_POOL_TRIM,     /* address: the pool's handle; bytes: what it was told to keep */
    VT_EVENT_CONTEXT_END,   /* a context was destroyed or reset; address: its number in this recording */
    VT_EVENT_MARK,          /* the program marked a place; address: string id of the name (since 1.3) */
    VT_EVENT_PHASE,         /* a stretch began; address: enum vt_phase (since 1.3) */
    VT_EVENT_STEP           /* a step ended; address: its number, from 0 (since 1.3) */
};

struct vt_event {
    uint64_t time_ns;
    uint64_t address;
    uint64_t bytes;
    uint32_t site;       /* of the allocation; VT_NONE: unknown */
    uint32_t free_stack; /* frame id, 0: not taken */
    uint16_t thread;     /* index, saturating */
    uint16_t stream;     /* index + 1 */
    uint8_t type;        /* enum vt_event_type */
    uint8_t kind;
    uint16_t unused;
};

enum vt_moment_kind { VT_MOMENT_OOM, VT_MOMENT_NAMED, VT_MOMENT_FINALIZE, VT_MOMENT_END };

/* A consistent copy of totals and sites with something live (and slots, if they were few enough to copy). */
struct vt_moment {
    char name[32];           /* "oom-1", "end"; empty: withdrawn (the failure was recovered from) */
    uint64_t time_ns;
    uint32_t kind;           /* enum vt_moment_kind */
    uint32_t failure;        /* index in VT_FAILURES; VT_NONE */
    uint64_t first_total, totals;
    uint64_t first_site, sites;
    uint64_t first_slot, slots; /* slots == 0 although something is live: they were not copied */
    uint64_t steps;             /* as in the header, then (since 1.3) */
    uint64_t step_ns, stretch_ns;
    uint32_t phase;
    uint32_t unused;
};

struct vt_moment_total {
    uint32_t total; /* index */
    uint32_t unused;
    uint64_t live_bytes, live_count, requested_bytes;
};

struct vt_moment_site {
    uint32_t site; /* index */
    uint32_t unused;
    uint64_t live_bytes, live_count;
};

enum vt_failure_kind {
    VT_FAILURE_PENDING,       /* an out-of-memory that nothing has resolved yet: read it as oom */
    VT_FAILURE_OOM,
    VT_FAILURE_RETRY,         /* the next attempt succeeded, or the caller was probing */
    VT_FAILURE_FRAMEWORK_OOM,
    VT_FAILURE_FAILED_ALLOC,  /* an allocation refused for another reason than memory */
    VT_FAILURE_FAILED_FREE,   /* e.g. after a device reset */
    VT_FAILURE_DOUBLE_FREE,
    VT_FAILURE_INTERIOR_POINTER,
    VT_FAILURE_UNKNOWN_POINTER,
    VT_FAILURE_WRONG_API,
    VT_FAILURE_KIND_COUNT
};

/* Failures with the same (kind, api, code, stacks, requested) are one record with a count. */
struct vt_failure {
    uint32_t kind;
    uint32_t api;              /* string id */
    int32_t code;              /* CUresult or cudaError_t: the same numbers for these */
    int16_t device;
    uint8_t memory_kind;       /* enum vt_kind that was asked for or freed; NONE: unknown */
    uint8_t driver_visible;    /* a CUDA call failed (a framework may refuse without one) */
    uint64_t count;            /* 0: withdrawn, to be passed over */
    uint64_t requested_bytes;
    uint64_t free_bytes, total_bytes;         /* cuMemGetInfo at the failure; total 0: not known */
    uint64_t allocated_bytes, reserved_bytes; /* live tensor bytes, live driver bytes of the device at the failure */
    uint64_t pointer;
    uint64_t pointer_offset;   /* interior_pointer: distance from the start of the allocation */
    uint32_t stack, python_stack;
    uint32_t allocated_at, freed_at; /* frame ids; 0: not known */
    uint64_t first_ns, last_ns;
    uint32_t moment;           /* index of the snapshot taken; VT_NONE */
    uint32_t thread;
    uint32_t allocated_python, freed_python; /* the Python stacks to allocated_at and freed_at (since 1.1) */
};

struct vt_device {
    int32_t ordinal;       /* -1: slot not filled */
    uint32_t flags;        /* VT_DEVICE_* (since 1.3) */
    char name[96];
    uint8_t uuid[16];      /* of the MIG instance, where the device is one */
    uint64_t total_bytes;
    uint64_t free_bytes;   /* cuMemGetInfo at free_ns: inside the call that used the device first. If that allocated, its
                              memory is in use already, and what is recorded next */
    uint64_t free_ns;
    uint64_t context_bytes; /* what the creation of the device's first context took; 0: not measured */
};
#define VT_DEVICE_MIG 1u /* a MIG instance of a card */

struct vt_pool {
    uint64_t handle;
    int32_t device;
    uint32_t flags;             /* VT_POOL_* */
    uint64_t release_threshold; /* as set by the program; 0: default */
    uint64_t live_bytes, peak_bytes;
    uint64_t trims;
    uint64_t last_trim_ns;
    uint64_t after_trim_peak;   /* highest live_bytes since the last trim: the most that it may still hold */
};
#define VT_POOL_DEFAULT 1u   /* the device's default pool, or what cuMemAllocAsync used without a pool named */
#define VT_POOL_DESTROYED 2u
#define VT_POOL_IMPORTED 4u

struct vt_thread {
    int32_t tid;
    char name[20];
    uint64_t first_ns;
};

struct vt_stream {
    uint64_t handle;
    int32_t device;
    uint32_t flags; /* VT_STREAM_PER_THREAD: handle 0 or 2 through a per-thread entry point */
};
#define VT_STREAM_PER_THREAD 1u

/*
 * The name of a native frame as the process itself found it, at its end or when memory ran out: for reading the recording
 * where the files are not. The records of one frame follow each other, innermost first (inlined functions, then the
 * function itself), and are counted together. One record without function and file: looked up, and nothing is known.
 */
struct vt_frame_name {
    uint64_t where;    /* as in vt_frame */
    uint32_t module;   /* as in vt_frame */
    uint32_t function; /* string ids; 0: unknown */
    uint32_t file;
    uint32_t line;
    uint16_t inner; /* how many inlined frames of this address precede it: 0, 1, ... */
    uint16_t flags; /* VT_NAME_* */
    uint32_t unused;
};
#define VT_NAME_NEAREST 1u /* no symbol covers the address: the nearest exported name before it */
#define VT_NAME_LAST 2u    /* the last record of its frame */

enum vt_framework { VT_FRAMEWORK_TORCH = 1, VT_FRAMEWORK_JAX, VT_FRAMEWORK_TENSORFLOW };

/* What a framework's own allocator says about itself, against what its reports add up to. */
struct vt_allocator {
    uint32_t name; /* string id: the library whose allocator it is */
    int16_t device;
    uint8_t framework;                        /* enum vt_framework */
    uint8_t flags;                            /* VT_ALLOCATOR_* */
    uint64_t allocated_bytes, reserved_bytes; /* as it said last; 0 where it doesn't say */
    uint64_t reserved_peak_bytes;             /* the highest it said */
    uint64_t sum_bytes;                       /* what its allocations and frees add up to since it was first seen; JAX: when it
                                                 was last asked */
    uint64_t base_bytes;                      /* what it said it had before the first one seen; JAX: what it had beyond the
                                                 arrays when it was last asked (temporaries, constants, rounding) */
    uint64_t reports;                         /* how often it spoke (JAX, TensorFlow: was asked) */
    uint64_t mismatches;                      /* how often allocated_bytes differed from base_bytes + sum_bytes */
    uint64_t worst_bytes;                     /* by how much at most */
    uint64_t unknown_frees;                   /* frees of what was not seen allocated */
    uint64_t unknown_bytes;
    uint64_t ooms; /* requests that it refused */
    uint64_t limit_bytes, largest_free_bytes; /* as it said last: the most it may reserve, and its largest free block; 0 where
                                                 it doesn't say (since 1.3) */
};
#define VT_ALLOCATOR_ASYNC 1u    /* hands its requests to the driver's stream-ordered pools */
#define VT_ALLOCATOR_UNCACHED 2u /* hands each request to the driver */
#define VT_ALLOCATOR_UNSEEN 4u   /* what it hands out is not seen: `name` says whose it is and why, device is -1 (since 1.3) */

/* The end of a training step. Step number n (from 0) is kept if n is a multiple of 1 << header.step_shift. */
struct vt_step {
    uint64_t end_ns;
    uint64_t tensor_bytes; /* live at level tensor on all devices, at the end */
    uint64_t driver_bytes; /* live device memory at level driver on all devices, at the end */
};

/* Why a usage was read. */
enum vt_usage_cause {
    VT_USAGE_BEFORE_CONTEXT, /* right before the device's first context was made */
    VT_USAGE_AFTER_CONTEXT,  /* right after that */
    VT_USAGE_OOM,            /* an out-of-memory was one: `moment` is what was live when it happened, a little earlier */
    VT_USAGE_FINALIZE,       /* the interpreter shuts down */
    VT_USAGE_END,            /* the process ends; CUDA is still there */
    VT_USAGE_PROGRAM,        /* the program asked CUDA itself: only free and total are known; the newest one per device */
    VT_USAGE_CAUSE_COUNT
};

#define VT_UNKNOWN_BYTES UINT64_MAX /* in a field of a usage: not known */

/*
 * What a device's memory held at one instant. Figures are NVML's (nvmlDeviceGetMemoryInfo_v2), whose total may exceed
 * vt_device.total_bytes, which is what CUDA offers, by what the driver reserved. PROGRAM ones are CUDA's.
 */
struct vt_usage {
    uint64_t time_ns;     /* 0 for those before the recording began */
    int32_t device;
    uint32_t moment;      /* index of the moment it was read for; VT_NONE */
    uint8_t cause;        /* enum vt_usage_cause */
    uint8_t flags;        /* VT_USAGE_* */
    uint16_t unused;
    uint32_t processes;   /* the device's processes, largest first: a range in VT_PROCESSES */
    uint64_t first_process;
    uint64_t more_processes, more_bytes; /* that found no room in the range */
    uint64_t total_bytes;
    uint64_t reserved_bytes; /* by the driver, for itself */
    uint64_t free_bytes;
    uint64_t used_bytes;  /* without what is reserved, where that is known */
    uint64_t own_bytes;   /* of this process, as NVML lists it; 0: it is not in the list */
    uint64_t live_bytes;  /* live device memory of this process on the device at that instant, level driver */
    uint64_t pool_bytes;  /* that its stream-ordered pools may have kept at most beyond what was live in them */
};
#define VT_USAGE_LISTED 1u  /* there is a list of processes (it may be empty) */
#define VT_USAGE_FOREIGN 2u /* its pids are of another namespace: this process is not found in it under its own */

struct vt_process_bytes {
    uint32_t pid;    /* as NVML says it: the host's, in a container */
    uint32_t name;   /* string id; any bytes; 0: not known */
    uint64_t bytes;  /* VT_UNKNOWN_BYTES: not known */
    uint32_t flags;  /* VT_PROCESS_* */
    uint32_t unused;
};
#define VT_PROCESS_SELF 1u /* the recorded process */

/*
 * Compiled programs of one name. A run takes temporary memory from the framework's arena beyond its arguments and outputs;
 * no allocation is seen of that. Sizes are those of the executable with the largest temporaries, as its compiler says.
 */
struct vt_program {
    uint32_t name;      /* string id */
    uint32_t framework; /* enum vt_framework */
    uint64_t executables, loaded; /* how many were run, and how many of them are still there */
    uint64_t runs;
    uint64_t temporary_bytes;
    uint64_t argument_bytes, output_bytes;
    uint64_t aliased_bytes; /* of the outputs, what is put into donated arguments */
    uint64_t code_bytes;
    uint64_t first_ns;
};

/*
 * File offset of record i of a section, or 0 if its extent does not exist.
 * The caller checks offset + record_bytes against the size of the file (the reader) or knows it (the writer).
 */
static inline uint64_t vt_record_offset(const struct vt_section_entry *s, uint64_t i)
{
    uint64_t block = (i >> __builtin_ctz(s->first)) +
                     1; /* `first` is a power of two: a division would cost more than the rest */
    unsigned e = 63u - (unsigned)__builtin_clzll(block);
    if (e >= VT_MAX_EXTENTS || !s->extent[e])
        return 0;
    return s->extent[e] + (i - (uint64_t)s->first * ((1ull << e) - 1)) * s->record_bytes;
}

/* The class whose peak a kind belongs to. */
static inline enum vt_class vt_class_of(enum vt_kind kind)
{
    switch (kind) {
    case VT_KIND_PINNED:
    case VT_KIND_REGISTERED:
        return VT_CLASS_HOST;
    case VT_KIND_MANAGED:
        return VT_CLASS_MANAGED;
    case VT_KIND_VMM_MAPPED:
    case VT_KIND_VMM_RESERVED_VA:
        return VT_CLASS_ADDRESS;
    case VT_KIND_IMPORTED:
        return VT_CLASS_IMPORTED;
    default:
        return VT_CLASS_DEVICE;
    }
}

_Static_assert(sizeof(struct vt_header) <= VT_HEADER_BYTES, "the header must fit its room");
_Static_assert(sizeof(struct vt_slot) == 40, "one slot per live allocation: every byte counts");
_Static_assert(sizeof(struct vt_site) % 64 == 0, "a site's figures must stay on their lines of the cache");
_Static_assert(sizeof(struct vt_event) == 40, "events are written on every call");
_Static_assert(sizeof(struct vt_frame) == 16, "frames must not be padded");

#endif
