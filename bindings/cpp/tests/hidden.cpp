// A program, and with -DLIBRARY its shared library. What must be the same in both: gs::category(), the mutexes of
// gs::condition_variable_any, the number of a plain thread for gs::recursive_mutex, and the type of gs::error.
#include <gosched.hpp>

#include <cstdio>

#define SHARED __attribute__((visibility("default")))

SHARED const std::error_category *category_of_library();
SHARED const gs::mutex *mutex_of_library(gs::condition_variable_any &c);
SHARED std::uint64_t who_in_library();
SHARED void throw_in_library();

#ifdef LIBRARY

const std::error_category *category_of_library()
{
    return &gs::category();
}

const gs::mutex *mutex_of_library(gs::condition_variable_any &c)
{
    return &gs::detail::list_mutex_of(&c);
}

std::uint64_t who_in_library()
{
    return gs::detail::who();
}

void throw_in_library()
{
    gs::chan<int> c;
    c.close();
    c.close();
}

#else

static int failures;

static void check(bool is, const char *what)
{
    if (!is) {
        std::printf("not so: %s\n", what);
        failures++;
    }
}

int main()
{
    gs::condition_variable_any c;
    check(category_of_library() == &gs::category(), "the category is the same");
    check(mutex_of_library(c) == &gs::detail::list_mutex_of(&c), "a condition variable has the same mutex");
    check(who_in_library() == gs::detail::who(), "a thread has the same number");
    check(gs::run(who_in_library) != gs::detail::who(), "the goroutine on it has another one");
    std::error_code code;
    try {
        throw_in_library();
    } catch (const gs::error &e) {
        code = e.code();
    }
    check(code == gs::make_code(-EPIPE), "the code of the library's exception equals the program's");
    return failures != 0;
}

#endif
