/* C++ exceptions that are thrown, caught and thrown on while other goroutines run on the same threads. Part
   of the program and of its plugins, whose entry it is. */
#include <exception>
#include <stdexcept>
#include <string>

#include <gosched.h>

namespace {

void let_others_run(unsigned random)
{
    switch (random % 4) {
    case 0: gs_yield(); break;
    case 1: (void)gs_sleep(random / 4 % 200 * 1000); break;
    case 2: gs_entersyscall(); gs_exitsyscall(); break;
    }
}

struct Counted {
    int *live;
    unsigned random;
    Counted(int *l, unsigned r) : live(l), random(r) { ++*live; }
    ~Counted()
    {
        let_others_run(random); /* while the exception is on its way */
        --*live;
    }
};

void sink(int frames, unsigned random, int *live)
{
    Counted here(live, random + (unsigned)frames);
    if (frames == 0)
        throw std::runtime_error(std::to_string(random));
    sink(frames - 1, random, live);
}

int nested(unsigned random)
{
    int live = 0;
    try {
        try {
            sink((int)(random % 6), random, &live);
            return 1;
        } catch (const std::runtime_error &outer) {
            let_others_run(random / 8);
            try {
                sink((int)(random % 3), random + 1, &live);
                return 2;
            } catch (const std::exception &inner) {
                let_others_run(random / 16);
                if (inner.what() != std::to_string(random + 1))
                    return 3;
            }
            if (outer.what() != std::to_string(random) || live != 0)
                return 4;
            let_others_run(random / 32);
            throw;
        }
    } catch (const std::runtime_error &again) {
        let_others_run(random / 64);
        if (again.what() != std::to_string(random))
            return 5;
    }
    return std::uncaught_exception() ? 6 : live == 0 ? 0 : 7;
}

} // namespace

#ifdef CHAOS_PLUGIN
extern "C" int plugin_entry(unsigned random)
#else
extern "C" int throw_and_catch(unsigned random);
extern "C" int throw_and_catch(unsigned random)
#endif
{
    for (unsigned i = 0; i < 1 + random % 3; i++) {
        int r = nested(random + i * 7919);
        if (r != 0)
            return r;
    }
    return 0;
}
