/* M:P:N: libgosched. A thread that blocks in the kernel gives its P, with the queue, to another thread. */
#include "ladder.h"

#include <gosched.h>

struct mailbox;

static gs_chan *chan(struct mailbox *box)
{
    return (gs_chan *)box;
}

void spawn(task_fn *f, void *arg)
{
    CHECK(gs_spawn(f, arg) == 0);
}

void yield(void)
{
    gs_yield();
}

void blocking_call(void)
{
    CHECK(gs_entersyscallblock() == 0);
    sleep_1ms();
    CHECK(gs_exitsyscall() == 0);
}

struct mailbox *mailbox_new(void)
{
    gs_chan *ch = gs_chan_make(sizeof(long), CHILDREN);
    CHECK(ch != NULL);
    return (struct mailbox *)ch;
}

void mailbox_free(struct mailbox *box)
{
    CHECK(gs_chan_free(chan(box)) == 0);
}

void mailbox_send(struct mailbox *box, long value)
{
    CHECK(gs_chan_send(chan(box), &value, GS_FOREVER) == 0);
}

long mailbox_receive(struct mailbox *box)
{
    long value;
    CHECK(gs_chan_recv(chan(box), &value, GS_FOREVER) == 0);
    return value;
}

void run(int procs, task_fn *first, void *arg)
{
    gs_config config = GS_CONFIG_INIT;
    config.gomaxprocs = (uint32_t)procs;
    CHECK(gs_init(&config) == 0);
    CHECK(gs_run(first, arg) >= 0);
    CHECK(gs_shutdown(GS_FOREVER) == 0);
}
