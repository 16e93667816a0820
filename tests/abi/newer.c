/*
 * Compiled with a header that is newer than the library, or of another patch level (-DPATCH): the
 * test changes the numbers in a copy of it.
 */
#include "check.h"

static int ran;

static void run(void *arg)
{
    (void)arg;
    ran = 1;
}

#ifdef PATCH
enum { WANTED = 0 };
#else
enum { WANTED = -ELIBACC };
#endif

TEST(header)
{
    int (*checks_nothing)(const gs_config *) = gs_init;
    CHECK_EQ(gs_run(run, NULL), WANTED);
    CHECK_EQ(ran, WANTED == 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_EQ(gs_init(NULL), WANTED);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_HAS(gs_strerror(-ELIBACC), "newer gosched.h");
    CHECK_EQ(checks_nothing(NULL), 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}
