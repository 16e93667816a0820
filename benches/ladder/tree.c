/* The workload: a tree of tasks. A leaf computes a little, yields once and sends its number to its parent; a node
 * starts its children, waits for their messages and sends the sum up. */
#include "ladder.h"

struct node {
    struct mailbox *up;
    long number, size;
};

static bool leaves_block;

static void grow(void *arg)
{
    struct node node = *(struct node *)arg;

    if (node.size == 1) {
        long value = leaf_work(node.number);
        yield();
        if (leaves_block && node.number % BLOCKING == 0)
            blocking_call();
        mailbox_send(node.up, value);
        return;
    }
    struct node children[CHILDREN];
    struct mailbox *down = mailbox_new();
    long sum = 0;
    for (int i = 0; i < CHILDREN; i++) {
        long size = node.size / CHILDREN;
        children[i] = (struct node){down, node.number + i * size, size};
        spawn(grow, &children[i]);
    }
    for (int i = 0; i < CHILDREN; i++)
        sum += mailbox_receive(down);
    mailbox_free(down);
    mailbox_send(node.up, sum);
}

static void grow_all(void *arg)
{
    struct mailbox *top = mailbox_new();

    for (long i = *(long *)arg; i > 0; i--) {
        struct node root = {top, 0, LEAVES};
        spawn(grow, &root);
        CHECK(mailbox_receive(top) == (long)LEAVES * (LEAVES - 1) / 2);
    }
    mailbox_free(top);
}

void grow_trees(int procs, long trees, bool blocking)
{
    leaves_block = blocking;
    run(procs, grow_all, &trees);
}
