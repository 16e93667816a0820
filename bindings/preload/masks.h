/* Signal masks, and calls in which handlers run. */

#ifndef GOSCHED_PRELOAD_MASKS_H
#define GOSCHED_PRELOAD_MASKS_H

#include "calls.h"

/*
 * A call in which handlers run on a thread of libgosched. A handler may leave the call by a jump, which then does what the
 * call would have done at its end.
 */
struct taking {
    struct taking *outer; /* in whose handler this call was made */
    sigset_t mask;        /* the thread's before, if libgosched has made it */
    bool librarys, announced;
    const int *files;     /* two to be closed after a jump, or NULL; -1: none */
};
void begin_taking(struct taking *t, const int *files, struct counts *c);
void end_taking(struct taking *t);
/* Before a goroutine ends in a handler that such a call runs. On an alternate stack it does nothing. */
void end_all_taking(void);
/* As KERNEL, of such a call; not counted if `c` is NULL. */
#define TAKING_SIGNALS(call, files, c) \
    __extension__({ \
        struct taking taking_; \
        begin_taking(&taking_, files, c); \
        __typeof__(call) taken_ = (call); \
        end_taking(&taking_); \
        taken_; \
    })
/* Whether libgosched has made the calling thread, so that it blocks all signals and goroutines have masks of their own. */
bool is_librarys_thread(void);
/* The mask that the calling goroutine sees. */
sigset_t callers_mask(void);

/* Gives the calling goroutine another mask, and returns the one it had. NULL: as at its start. */
void *exchange_mask(void *given);

#endif
