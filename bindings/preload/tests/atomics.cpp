/*
 * atomics ROUNDS: what C++20 and its runtime wait for by syscall, between goroutines of one thread and a plain thread:
 * std::atomic::wait, std::latch, std::barrier, std::counting_semaphore, std::future, and a static variable whose
 * first value takes time.
 */
#include <gosched.hpp>

#include <atomic>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <latch>
#include <semaphore>
#include <stdexcept>
#include <thread>
#include <unistd.h>
#include <vector>

constexpr int tasks = 20;
static int made, thrown;

struct slow {
    slow()
    {
        usleep(20000); // the others come meanwhile
        if (made++ == 0)
            throw std::runtime_error("the first one fails");
    }
};

static void use_static()
{
    try {
        static slow only;
    } catch (const std::runtime_error &) {
        thrown++;
    }
}

static int run(int rounds)
{
    gs::options pinned;
    pinned.pinned = true;
    pinned.workers = gs_workers_create(1, 0);
    std::atomic<int> turn{0};
    std::counting_semaphore<3> room{3};
    std::binary_semaphore posted{0};
    std::latch begun{tasks};
    std::barrier met{tasks};
    std::promise<int> promise;
    std::shared_future<int> future = promise.get_future().share();
    int inside = 0, most = 0, answers = 0, phases = 0;

    std::vector<decltype(gs::go(pinned, [] {}))> all;
    for (int i = 0; i < tasks; i++)
        all.push_back(gs::go(pinned, [&, i] {
            begun.arrive_and_wait();
            use_static();
            answers += future.get();
            for (int n = 0; n < rounds; n++) {
                for (int at; (at = turn.load()) % tasks != i;)
                    turn.wait(at);
                turn.fetch_add(1);
                turn.notify_all();
                room.acquire();
                if (++inside > most)
                    most = inside;
                usleep(20);
                inside--;
                room.release();
                met.arrive_and_wait();
                if (i == 0)
                    phases++;
            }
        }));
    auto last = gs::go(pinned, [&] { posted.acquire(); });
    std::thread thread([&] {
        usleep(50000);
        promise.set_value(1);
        posted.release();
    });
    for (auto &one : all)
        one.get();
    last.get();
    thread.join();
    std::printf("%d made, %d thrown, %d answers, %d turns, %d phases, at most %d inside\n", made - thrown, thrown, answers,
                turn.load(), phases, most);
    return gs_workers_free(pinned.workers) != 0;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        std::fprintf(stderr, "usage: %s ROUNDS\n", argv[0]);
        return 2;
    }
    alarm(150); // a hang
    return gs::run([&] { return run(std::atoi(argv[1])); });
}
