// The program of hello.c in C++.
#include <gosched.hpp>
#include <cstdio>

int main()
{
    return gs::run([] {
        gs::chan<int> numbers;
        gs::go(gs::detached, [=]() mutable {
            for (int i = 0; i < 100; i++)
                numbers.send(i);
            numbers.close();
        });
        int sum = 0;
        while (auto n = numbers.recv())
            sum += *n;
        std::printf("the sum is %d\n", sum);
        return 0;
    });
}
