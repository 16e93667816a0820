/*
 * call_once: std::call_once on one thread. A function throws while another goroutine waits for it, and a third one has called
 * std::call_once meanwhile, which uses the same variables of the thread.
 */
#include <gosched.hpp>

#include <cstdio>
#include <mutex>
#include <stdexcept>
#include <unistd.h>

static std::once_flag fails_first, another;
static int thrown, others, called;
static bool begun; // the goroutines share a thread

static void wait_for_first()
{
    while (!begun)
        usleep(1000);
}

static void fails()
{
    try {
        std::call_once(fails_first, [] {
            begun = true;
            usleep(50000);
            throw std::runtime_error("the first call fails");
        });
    } catch (const std::runtime_error &) {
        thrown++;
    }
}

int main()
{
    alarm(60); // a hang
    return gs::run([] {
        gs::options pinned;
        pinned.pinned = true;
        pinned.workers = gs_workers_create(1, 0);
        auto first = gs::go(pinned, fails);
        auto second = gs::go(pinned, [] {
            wait_for_first();
            std::call_once(fails_first, [] { called++; });
        });
        auto third = gs::go(pinned, [] {
            wait_for_first();
            usleep(10000);
            std::call_once(another, [] { others++; });
        });
        first.get();
        second.get();
        third.get();
        std::printf("%d thrown, %d others, %d called\n", thrown, others, called);
        return gs_workers_free(pinned.workers) != 0;
    });
}
