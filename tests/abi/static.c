/* Linked with libgosched.a and, with -DRUST, a static library in Rust. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "check.h"

#ifdef RUST
int rust_host_catches(void);
#else
static int rust_host_catches(void)
{
    return 1;
}
#endif

static int done;

static void work(void *arg)
{
    gs_chan *ch = chan_of_ints(0);
    (void)arg;
    CHECK_EQ(rust_host_catches(), 1);
    CHECK_EQ(gs_sleep(MS), 0);
    CHECK_EQ(gs_chan_recv(ch, NULL, gs_after_ms(1)), -ETIMEDOUT);
    free_chan(ch);
    done = 1;
}

TEST(it_works)
{
    Dl_info info;
    CHECK_EQ(rust_host_catches(), 1);
    CHECK_EQ(gs_run(work, NULL), 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_EQ(done, 1);
    /* It is the static one. */
    CHECK(dladdr((void *)(uintptr_t)gs_version, &info) && !strstr(info.dli_fname, "libgosched"));
}
