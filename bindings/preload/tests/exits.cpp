/*
 * exits: pthread_exit in goroutines. The destructors on the stack run, and the handlers of pthread_cleanup_push among
 * them, the innermost first. `catch (...)` sees it, and throws on.
 */
#include <gosched.hpp>

#include <cstdio>
#include <pthread.h>
#include <unistd.h>

struct noted {
    const char *what;
    ~noted() { std::printf("~%s ", what); }
};

static void deepest()
{
    noted here{"deepest"};
    usleep(1000);
    pthread_exit(nullptr);
}

static void deep()
{
    noted here{"deep"};
    deepest();
}

static void plainly(void *)
{
    noted here{"outer"};
    deep();
}

static void past_a_catch(void *)
{
    noted here{"outer"};
    try {
        deepest();
    } catch (...) {
        std::printf("caught ");
        throw;
    }
}

static void past_a_handler(void *)
{
    noted here{"outer"};
    pthread_cleanup_push([](void *) { std::printf("handler "); }, nullptr);
    deepest();
    pthread_cleanup_pop(0);
}

int main()
{
    alarm(60); // a hang
    return gs::run([] {
        for (gs_fn f : {plainly, past_a_catch, past_a_handler}) {
            gs_g *g;
            if (gs_spawn_with(f, nullptr, nullptr, &g) != 0 || gs_join(g, GS_FOREVER) != 0)
                return 1;
            gs_release(g);
            std::printf("\n");
        }
        try {
            gs::go([] { deepest(); return 1; }).get();
        } catch (const std::exception &e) {
            std::printf("no result\n");
        }
        return 0;
    });
}
