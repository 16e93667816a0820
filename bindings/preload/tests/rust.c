/* rust ROUNDS: the locks of Rust's standard library, between goroutines of two threads and plain threads. */
#include "tasks.h"

void rust_work(int64_t id, int64_t rounds);
void rust_total(int64_t *moved, int64_t *written, int64_t *times);

enum { GOROUTINES = 40, THREADS = 4 };

static int rounds;

static void work(void *id)
{
    rust_work((int64_t)(intptr_t)id, rounds);
}

static void run_all(void *unused)
{
    int64_t moved, written, times;
    (void)unused;
    run_mixed(work, GOROUTINES, THREADS);
    rust_total(&moved, &written, &times);
    const int64_t each = GOROUTINES + THREADS;
    MUST(moved == each * rounds, "moved %lld", (long long)moved);
    MUST(written == each * ((rounds + 2) / 3), "written %lld", (long long)written);
    MUST(times == 1, "once %lld times", (long long)times);
    printf("%lld moved, %lld written\n", (long long)moved, (long long)written);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s ROUNDS\n", argv[0]);
        return 2;
    }
    rounds = atoi(argv[1]);
    alarm(150); /* a hang */
    run_tasks(0, 2, run_all);
    return 0;
}
