/*
 * A process that may use a part of the machine uses just that.
 * lab: taskset=0-2 LAB_CPUS=0-2
 * lab: taskset=1,4,6-7 LAB_CPUS=1,4,6-7
 * lab: cpuset=0-2 mems=0-1 LAB_CPUS=0-2
 * lab: cpuset=2-7 taskset=0-4 LAB_CPUS=2-4
 * lab: offline=3,5 LAB_CPUS=0-2,4,6-7
 * lab: offline=2-3 taskset=1-4 LAB_CPUS=1,4
 */
#include "lab.h"

static uint64_t allowed;

TEST(there_is_a_p_for_each_allowed_cpu)
{
    allowed = set_from_env("LAB_CPUS");
    CHECK_EQ(mask_of(0), allowed);
    CHECK_EQ(gs_gomaxprocs(0), size_of_set(allowed));
}

TEST(no_thread_may_run_elsewhere)
{
    pid_t tids[256];
    int i, n;
    allowed = set_from_env("LAB_CPUS");
    gather_crowd(size_of_set(allowed));
    n = all_threads(tids, LENGTH(tids));
    CHECK_GE(n, crowd.size + 1);
    for (i = 0; i < n; i++) {
        uint64_t mask = mask_of(tids[i]);
        if (!is_subset(mask, allowed))
            printf("thread %d: mask %#llx\n", (int)tids[i], (unsigned long long)mask);
        CHECK(is_subset(mask, allowed));
    }
    for (i = 0; i < crowd.size; i++)
        CHECK(allowed >> crowd.cpus[i] & 1);
    dismiss_crowd();
}

static gs_chan *numbers;

static void send_numbers(void *arg)
{
    unsigned cpu;
    int64_t n;
    (void)arg;
    for (n = 1; n <= 100; n++) {
        send_int(numbers, n);
        CHECK_EQ(getcpu(&cpu, NULL), 0);
        CHECK(allowed >> cpu & 1);
    }
}

GO_TEST(goroutines_and_channels_work_there)
{
    int64_t sum = 0;
    int i;
    allowed = set_from_env("LAB_CPUS");
    numbers = chan_of_ints(4);
    for (i = 0; i < 50; i++)
        go(send_numbers, NULL);
    for (i = 0; i < 50 * 100; i++)
        sum += recv_int(numbers);
    CHECK_EQ(sum, 50 * 5050);
    free_chan(numbers);
}
