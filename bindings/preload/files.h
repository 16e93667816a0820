/* Files that goroutines wait for. */

#ifndef GOSCHED_PRELOAD_FILES_H
#define GOSCHED_PRELOAD_FILES_H

#include "calls.h"

/* A file in use. It stays the same file if its number is closed meanwhile, or becomes another file's. */
struct file {
    int fd;
    struct moved *moved;
};
enum how { HOW_PARK, HOW_KERNEL, HOW_NOT };
/* Waits until the file has one of the events: 0 or an error number; `found`: the events that it has, or NULL. */
int wait_for_file(struct file *f, int events, gs_deadline deadline, int *found);
/* Closes what has become the file's number, if the calling goroutine is the last that uses it. errno stays. */
void leave_moved_file(struct file *f);
/* The call is over: errno stays. */
static inline void leave_file(struct file *f)
{
    if (LIKELY(f->moved == NULL))
        return;
    leave_moved_file(f);
}
/*
 * Of a goroutine that waits for a file. While it is in the table, a close of the number gives the file another one, and
 * end_of_wait tells the goroutine.
 */
struct file_waiter {
    struct file_waiter *next;
    int fd;
    struct moved *moved; /* set by the caller that closes the number */
};
void begin_to_wait(struct file *f, struct file_waiter *w);
/* Whether the number was closed meanwhile: then the file has another number now. */
bool end_of_wait(struct file *f, struct file_waiter *w);
/* As wait_for_file. With a buffer: receives into the buffer by gs_recv, and gives what gs_recv gives. */
ssize_t wait_as_waiter(struct file *f, int events, const struct iovec *into, gs_deadline deadline);

#endif
