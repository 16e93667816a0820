/* Signal masks, and calls in which handlers run. */

#ifndef GOSCHED_PRELOAD_MASKS_H
#define GOSCHED_PRELOAD_MASKS_H

#include "calls.h"

/*
 * A call in which handlers run on a thread of libgosched. A handler may leave the call by a jump; the jump then does
 * the work of the call's end.
 */
struct taking {
    struct taking *outer; /* the call in whose handler this call was made */
    sigset_t mask;        /* the thread's mask before, if libgosched has made the thread */
    bool librarys, announced;
    const int *files;     /* two files to close after a jump, or NULL; -1: none */
};
void begin_taking(struct taking *t, const int *files, struct counts *c);
void end_taking(struct taking *t);
/* Ends all such calls before a goroutine ends in a handler of one. Does nothing on an alternate stack. */
void end_all_taking(void);
/* KERNEL for such a call; not counted if `c` is NULL. */
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

/* Gives the calling goroutine another mask, and returns its mask so far. NULL: the mask of a new goroutine. */
void *exchange_mask(void *given);

#endif
