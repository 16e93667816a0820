/* The ladder: one workload on six ways to run many tasks. A step provides what is below; tree.c is the workload. */
#ifndef LADDER_H
#define LADDER_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

typedef void task_fn(void *arg);

/* Runs first(arg) and all that it spawns, on procs processors; returns when all have ended. */
void run(int procs, task_fn *first, void *arg);

/* These are called by tasks. */
void spawn(task_fn *f, void *arg);
void yield(void);

/* A mailbox has room for all children of a node: send never waits. One task receives. */
struct mailbox;
struct mailbox *mailbox_new(void);
void mailbox_free(struct mailbox *box);
void mailbox_send(struct mailbox *box, long value);
long mailbox_receive(struct mailbox *box);

/* A system call that blocks for 1 ms. */
void blocking_call(void);

/* work.c: what a leaf computes, and the whole program around a workload. */
enum { CHILDREN = 4, DEPTH = 6, LEAVES = 4096, TASKS = 5461, BLOCKING = 64 };

long leaf_work(long number);
void sleep_1ms(void);

/* Grows this number of trees one after the other; in each, one leaf of BLOCKING makes the blocking call if asked. */
void grow_trees(int procs, long trees, bool blocking);

#define CHECK(condition) ((condition) ? (void)0 : check_failed(__FILE__, __LINE__, #condition))
_Noreturn void check_failed(const char *file, int line, const char *what);

#endif
