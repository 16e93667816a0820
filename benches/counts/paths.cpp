// paths.cpp: what gosched.hpp adds to the calls of gosched.h. Each path is there twice, in C's calls ("c_...") and in
// C++ ("cpp_..."), and does COUNT times what the other one does.
#include <gosched.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>

static long count, done;

#define CHECK(condition)                                                      \
    do {                                                                      \
        if (!(condition)) {                                                   \
            std::fprintf(stderr, "paths: %s:%d: %s\n", __FILE__, __LINE__, #condition); \
            std::exit(1);                                                     \
        }                                                                     \
    } while (0)

// A goroutine without a result, begun and ended before the next.
static void c_go()
{
    for (long i = 0; i < count; i++) {
        CHECK(gs_spawn([](void *) { done++; }, nullptr) == 0);
        gs_yield();
    }
}

static void cpp_go()
{
    for (long i = 0; i < count; i++) {
        gs::go(gs::detached, [] { done++; });
        gs::this_goroutine::yield();
    }
}

// A goroutine with an argument and a result, which is waited for.
struct call {
    long argument, result;
};

static void c_join()
{
    for (long i = 0; i < count; i++) {
        auto *c = static_cast<call *>(std::malloc(sizeof(call)));
        CHECK(c != nullptr);
        c->argument = i;
        gs_g *g;
        CHECK(gs_spawn_with([](void *p) { static_cast<call *>(p)->result = static_cast<call *>(p)->argument + 1; }, c,
                            nullptr, &g) == 0);
        CHECK(gs_join(g, GS_FOREVER) == 0);
        gs_release(g);
        done += c->result == i + 1;
        std::free(c);
    }
}

static void cpp_join()
{
    for (long i = 0; i < count; i++)
        done += gs::go([i] { return i + 1; }).get() == i + 1;
}

// An int over an unbuffered channel.
static void c_chan()
{
    static gs_chan *c;
    c = gs_chan_make(sizeof(int), 0);
    const auto receive = [](void *) {
        int value;
        for (long i = 0; i < count; i++)
            CHECK(gs_chan_recv(c, &value, GS_FOREVER) == 0 && value == static_cast<int>(i));
        done += count;
    };
    CHECK(c != nullptr && gs_spawn(receive, nullptr) == 0);
    for (int i = 0; i < count; i++)
        CHECK(gs_chan_send(c, &i, GS_FOREVER) == 0);
    while (done < count)
        gs_yield();
    CHECK(gs_chan_free(c) == 0);
}

static void cpp_chan()
{
    const gs::chan<int> c;
    gs::go(gs::detached, [&c] {
        for (long i = 0; i < count; i++)
            CHECK(c.recv().value() == static_cast<int>(i));
        done += count;
    });
    for (int i = 0; i < count; i++)
        c.send(i);
    while (done < count)
        gs_yield();
}

// An int through a buffer.
static void c_buffer()
{
    gs_chan *c = gs_chan_make(sizeof(int), 1);
    int value;
    CHECK(c != nullptr);
    for (; done < count; done++) {
        const int i = static_cast<int>(done);
        CHECK(gs_chan_send(c, &i, GS_FOREVER) == 0);
        CHECK(gs_chan_recv(c, &value, GS_FOREVER) == 0 && value == i);
    }
    CHECK(gs_chan_free(c) == 0);
}

static void cpp_buffer()
{
    const gs::chan<int> c(1);
    for (; done < count; done++) {
        const int i = static_cast<int>(done);
        c.send(i);
        CHECK(c.recv().value() == i);
    }
}

static const struct {
    const char *name;
    void (*run)();
} paths[] = {{"c_go", c_go},     {"cpp_go", cpp_go},     {"c_join", c_join},     {"cpp_join", cpp_join},
             {"c_chan", c_chan}, {"cpp_chan", cpp_chan}, {"c_buffer", c_buffer}, {"cpp_buffer", cpp_buffer}};

int main(int argc, char **argv)
{
    gs::config config; // as in paths.c
    config.procs = 1;
    config.time_slice = std::chrono::hours(1);
    if (argc != 3 || (count = std::atol(argv[2])) <= 0)
        return 2;
    for (const auto &path : paths) {
        if (std::strcmp(path.name, argv[1]) != 0)
            continue;
        gs::init(config);
        gs::run(path.run);
        gs::shutdown();
        CHECK(done == count);
        return 0;
    }
    return 2;
}
