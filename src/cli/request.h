/*
 * Asking a recorded process for a named moment, through the header of its recording: the recorder takes it right before it
 * books the next call. The process gets no signal and is not stopped.
 *
 * Those who ask take turns by a lock on the file, which the kernel lets go of when one dies. Whoever asks maps the header: if
 * the file is made shorter meanwhile, that is a SIGBUS, which the caller may want to handle.
 */
#ifndef VT_REQUEST_H
#define VT_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vramtrack/recording.h"

#define VT_REQUEST_TEXT 1024

enum vt_request_state {
    VT_REQUEST_PENDING,
    VT_REQUEST_TAKEN,  /* text: the moment's name, which may hold any bytes */
    VT_REQUEST_REFUSED /* text: one line that says why */
};

struct vt_request {
    int fd;
    struct vt_header *header; /* the file's own, mapped; NULL: it is not this one's turn yet */
    uint32_t number;
    uint64_t events; /* booked when it was asked */
    int32_t pid;
    char path[4096];
    char name[sizeof((struct vt_header *)NULL)->request_name];
    char text[VT_REQUEST_TEXT];
};

/*
 * Asks. pid: of the process as it is called here; 0: as the header says. name NULL or "": the first free one of snapshot-1,
 * snapshot-2, ... vt_request_end() in every case.
 */
enum vt_request_state vt_request_begin(struct vt_request *request, const char *path, int32_t pid, const char *name);

/* Looks what has become of it. To be called every few milliseconds while it is pending. */
enum vt_request_state vt_request_poll(struct vt_request *request);

/* Fills request->text with why nobody has answered within `seconds`. */
void vt_request_explain(struct vt_request *request, double seconds);

/* Takes it back if it is still open, and lets go of the file. */
void vt_request_end(struct vt_request *request);

#endif
