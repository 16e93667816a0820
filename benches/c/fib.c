/* fib: fib(27), a goroutine for each left branch. */
#include "bench.h"

struct left {
    int n;
    int64_t value;
    gs_waitgroup done;
};

static int64_t fib(int n);

static void left_branch(void *arg)
{
    struct left *left = arg;

    left->value = fib(left->n);
    MUST(gs_waitgroup_done(&left->done));
}

static int64_t fib(int n)
{
    if (n < 2)
        return n;
    struct left left = {.n = n - 1};
    MUST(gs_waitgroup_add(&left.done, 1));
    MUST(gs_spawn(left_branch, &left));
    int64_t right = fib(n - 2);
    MUST(gs_waitgroup_wait(&left.done, GS_FOREVER));
    return left.value + right;
}

void fib27(int64_t n)
{
    int64_t start = gs_now();
    for (int64_t i = 0; i < n; i++)
        CHECK(fib(27) == 196418);
    report("fib", ms_since(start) / (double)n, "ms");
}
