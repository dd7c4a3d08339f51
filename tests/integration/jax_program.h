/* What jax_plugin.c and the programs that use it share: arguments of the calls they make, and the plugin's controls. */
#ifndef JAX_PROGRAM_H
#define JAX_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAKE_HEAD       \
    size_t struct_size; \
    void *extension

struct fake_from_host {
    FAKE_HEAD;
    void *client;
    const void *data;
    int type;
    const int64_t *dims;
    size_t num_dims;
    const int64_t *strides;
    size_t num_strides;
    int semantics;
    void *device, *memory, *layout, *done, *buffer;
};
struct fake_uninitialized {
    FAKE_HEAD;
    void *client;
    const int64_t *dims;
    size_t num_dims;
    int type;
    void *layout, *device, *memory, *buffer;
};
struct fake_view {
    FAKE_HEAD;
    void *client, *pointer;
    const int64_t *dims;
    size_t num_dims;
    int type;
    void *layout, *device;
    void (*on_delete)(void *, void *);
    void *on_delete_arg;
    intptr_t stream;
    void *buffer, *memory;
};
struct fake_retrieve {
    FAKE_HEAD;
    void *manager;
    int buffer_index;
    void *buffer;
};
struct fake_copy {
    FAKE_HEAD;
    void *buffer, *where, *out;
};
struct fake_bitcast {
    FAKE_HEAD;
    void *buffer;
    int type;
    const int64_t *dims;
    size_t num_dims;
    void *layout, *out;
};
struct fake_donate {
    FAKE_HEAD;
    void *buffer, *callback_data;
    void (*callback)(void *);
    void *out;
};
struct fake_buffer_args {
    FAKE_HEAD;
    void *buffer;
};
struct fake_options {
    FAKE_HEAD;
    void *send, *receive;
    size_t num_send, num_receive;
    int launch_id;
    const int64_t *kept;
    size_t num_kept;
};
struct fake_execute {
    FAKE_HEAD;
    void *executable;
    struct fake_options *options;
    void *const *const *arguments;
    size_t num_devices, num_args;
    void **const *outputs;
    void **events;
    void *device;
};
struct fake_code {
    FAKE_HEAD;
    const void *error;
    int code;
};
struct fake_message {
    FAKE_HEAD;
    const void *error;
    const char *message;
    size_t message_size;
};

/* A compiled program: what its runs do. */
struct fake_program {
    const char *name;
    size_t outputs;
    uint64_t bytes[8];
    uint64_t donated; /* a bit per argument */
    uint64_t pinned;  /* a bit per output */
    uint64_t temporary;
    const char *error; /* every run fails with it */
    int code;          /* of the error; 0: RESOURCE_EXHAUSTED */
};

#endif
