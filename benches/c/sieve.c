/* sieve: the prime sieve, a goroutine for each prime up to the 2000th. */
#include "bench.h"

#include <stdlib.h>

enum { PRIMES = 2000, LAST_PRIME = 17389 };

static void generate(void *arg)
{
    gs_chan *out = arg;

    for (int64_t i = 2; i <= LAST_PRIME; i++)
        MUST(gs_chan_send(out, &i, GS_FOREVER));
    MUST(gs_chan_close(out));
}

struct filter {
    gs_chan *in, *out;
    int64_t prime;
};

static void filter(void *arg)
{
    struct filter filter = *(struct filter *)arg;
    int64_t i;
    int result;

    while ((result = gs_chan_recv(filter.in, &i, GS_FOREVER)) == 0)
        if (i % filter.prime != 0)
            MUST(gs_chan_send(filter.out, &i, GS_FOREVER));
    CHECK(result == -EPIPE);
    MUST(gs_chan_close(filter.out));
    MUST(gs_chan_free(filter.in));
}

static void find_primes(struct filter filters[PRIMES])
{
    gs_chan *ch = new_chan(sizeof(int64_t), 0);
    int64_t prime, last = 0;
    int found = 0, result;

    MUST(gs_spawn(generate, ch));
    while ((result = gs_chan_recv(ch, &prime, GS_FOREVER)) == 0) {
        CHECK(found < PRIMES);
        filters[found] = (struct filter){ch, new_chan(sizeof(int64_t), 0), prime};
        MUST(gs_spawn(filter, &filters[found]));
        ch = filters[found].out;
        last = prime;
        found++;
    }
    CHECK(result == -EPIPE);
    CHECK(found == PRIMES && last == LAST_PRIME);
    MUST(gs_chan_free(ch));
}

void sieve(int64_t n)
{
    struct filter *filters = new_array(PRIMES, sizeof *filters);

    int64_t start = gs_now();
    for (int64_t i = 0; i < n; i++)
        find_primes(filters);
    report("sieve", ms_since(start) / (double)n, "ms");

    free(filters);
}
