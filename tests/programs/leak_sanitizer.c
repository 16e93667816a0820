/* LeakSanitizer, which AddressSanitizer has in it, searches the stacks of goroutines that wait. */
#include "check.h"
#include <sanitizer/lsan_interface.h>

static gs_chan *never;

static void keep(void *arg)
{
    void *volatile kept = malloc(100); /* only this stack has the pointer */
    (void)arg;
    CHECK_EQ(gs_chan_recv(never, NULL, GS_FOREVER), -EPIPE);
    free(kept);
}

GO_TEST(what_a_goroutine_that_waits_has_is_no_leak)
{
    gs_g *g[100];
    gs_g_info info;
    size_t i;
    never = chan_of_ints(0);
    for (i = 0; i < LENGTH(g); i++)
        g[i] = go_ref(keep, NULL);
    for (i = 0; i < LENGTH(g); i++) {
        do {
            gs_yield();
            CHECK_EQ(gs_g_info_read(g[i], &info, sizeof info), 0);
        } while (info.state != GS_G_WAITING);
    }
    CHECK_EQ(__lsan_do_recoverable_leak_check(), 0);
    CHECK_EQ(gs_chan_close(never), 0);
    for (i = 0; i < LENGTH(g); i++)
        join(g[i]);
    free_chan(never);
}

static void nothing(void *arg)
{
    (void)arg;
}

TEST(stacks_that_are_unmapped_are_forgotten)
{
    for (int round = 0; round < 3; round++) {
        CHECK_EQ(gs_run(nothing, NULL), 0);
        CHECK_EQ(__lsan_do_recoverable_leak_check(), 0);
        CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
        CHECK_EQ(__lsan_do_recoverable_leak_check(), 0);
    }
}
