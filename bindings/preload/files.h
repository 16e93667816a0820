/* Files that goroutines wait for. */

#ifndef GOSCHED_PRELOAD_FILES_H
#define GOSCHED_PRELOAD_FILES_H

#include "calls.h"

/* A file in use: it stays the same file even if its number is closed meanwhile, or becomes another file's. */
struct file {
    int fd;
    struct moved *moved;
};
enum how { HOW_PARK, HOW_KERNEL, HOW_NOT };
/* Waits until the file has one of the events. Returns 0 or an error number; `found`: gets the events that it has, or
   NULL. */
int wait_for_file(struct file *f, int events, gs_deadline deadline, int *found);
/* Closes the number to which close has moved the file, if the calling goroutine is the last to use it. errno stays. */
void leave_moved_file(struct file *f);
/* Ends a call's use of the file. errno stays. */
static inline void leave_file(struct file *f)
{
    if (LIKELY(f->moved == NULL))
        return;
    leave_moved_file(f);
}
/*
 * An entry of a goroutine that waits for a file. While the entry is in the table, a close of the number gives the file
 * another one, and end_of_wait tells the goroutine.
 */
struct file_waiter {
    struct file_waiter *next;
    int fd;
    struct moved *moved; /* set by the caller that closes the number */
};
void begin_to_wait(struct file *f, struct file_waiter *w);
/* Ends the wait. True: the number was closed meanwhile, so the file has another number now. */
bool end_of_wait(struct file *f, struct file_waiter *w);
/* wait_for_file for a waiter in the table. With a buffer: receives into it by gs_recv, and returns gs_recv's value. */
ssize_t wait_as_waiter(struct file *f, int events, const struct iovec *into, gs_deadline deadline);

#endif
