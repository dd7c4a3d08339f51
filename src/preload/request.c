/*
 * Answers a request; see request.h, and src/cli/request.c for the other side. Whoever may write the file may have written
 * anything: a number is answered once, whatever it is, and the name is cut to its room.
 */
#include "preload/request.h"

#include "preload/moment.h"
#include "preload/state.h"

/* The name that belongs to request `number`. False: it changes while it is read; then the request is a new one, or none. */
static bool read_name(const struct vt_header *h, uint32_t number, char *name)
{
    for (unsigned i = 0; i < sizeof h->request_name; i++) /* each before the number is read again */
        name[i] = __atomic_load_n(&h->request_name[i], __ATOMIC_ACQUIRE);
    name[sizeof h->request_name - 1] = 0;
    return __atomic_load_n(&h->request, __ATOMIC_RELAXED) == number;
}

void vt_request_answer(void)
{
    struct vt_header *h = vt_header();
    uint32_t number = __atomic_load_n(&h->request, __ATOMIC_ACQUIRE);
    char name[sizeof h->request_name];
    if (!number || vt_state.stopped || !read_name(h, number, name))
        return;
    h->answer_moment = vt_moment_take_named(name) + 1; /* VT_NONE becomes 0 */
    __atomic_store_n(&h->answer, number, __ATOMIC_RELEASE);
    __atomic_compare_exchange_n(&h->request, &number, 0, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
