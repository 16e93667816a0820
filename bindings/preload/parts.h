/*
 * What start.c calls in the parts: before the program begins, and in the child of a fork, which has no goroutines.
 */

#ifndef GOSCHED_PRELOAD_PARTS_H
#define GOSCHED_PRELOAD_PARTS_H

void exits_start(void);
void files_in_child(void);
void futex_start(void);
void holds_in_child(void);
void holds_start(void);
void keys_start(void);
void masks_in_child(void);
void masks_start(void);
void numbers_start(void);
void openmp_start(void);
void sockets_in_child(void);
void sync_in_child(void);
void sync_start(void);
void waiters_in_child(void);

#endif
