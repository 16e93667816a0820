/* The start, and fork. */
#include "calls.h"
#include "parts.h"

#include <gnu/libc-version.h>

static void in_child(void)
{
    note_process();
    if (gs_self) {
        waiters_in_child();
        files_in_child();
        sockets_in_child();
        holds_in_child();
        masks_in_child();
        sync_in_child();
    }
}

__attribute__((constructor(101))) static void begin(void)
{
    find_all();
    futex_start();
    note_process();
    const char *wanted = getenv("GOSCHED_PRELOAD_DEBUG");
    debug = wanted ? atoi(wanted) : 0;
    if (gs_self) {
        find_callers();
        asked_to_give_way = gs_preempt_flag();
        numbers_start();
        holds_start();
        sync_start();
        keys_start();
        exits_start();
        openmp_start();
        masks_start();
    }
    pthread_atfork(NULL, NULL, in_child);
    if (debug > 0) {
        if (gs_self)
            say("takes over blocking calls of goroutines; libgosched %s, glibc %s", gs_version(), gnu_get_libc_version());
        else
            say("takes over nothing: the program is not linked with libgosched.so");
        atexit(say_counts);
    }
}
