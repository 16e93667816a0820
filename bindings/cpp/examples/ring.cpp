// ring: passes a token around a ring of goroutines. examples-c/ring.c in C++.
//
//   g++ -std=c++17 -O2 ring.cpp -o ring $(pkg-config --cflags --libs gosched)
//   ./ring 10000 100
#include <gosched.hpp>

#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char **argv)
{
    const int members = argc > 1 ? std::atoi(argv[1]) : 1000, rounds = argc > 2 ? std::atoi(argv[2]) : 100;
    if (members < 1 || rounds < 1) {
        std::fprintf(stderr, "usage: ring [MEMBERS [ROUNDS]]\n");
        return 2;
    }
    return gs::run([=] {
        const auto start = gs::clock::now();
        const gs::chan<long> first;
        gs::recv_chan<long> in = first;
        for (int i = 1; i < members; i++) {
            const gs::chan<long> out;
            gs::go(gs::detached, [in, out = gs::send_chan<long>(out)] {
                for (long token : in)
                    out.send(token + 1);
                out.close();
            });
            in = out;
        }
        long hops = 0;
        for (int round = 0; round < rounds; round++) {
            auto sender = gs::go([first, hops] { first.send(hops + 1); });
            hops = in.recv().value();
            sender.get();
        }
        first.close();
        while (in.recv()) // until the close has come around
            continue;
        const std::chrono::duration<double, std::nano> took = gs::clock::now() - start;
        std::printf("%ld hops, %.0f ns each\n", hops, took.count() / static_cast<double>(hops));
        return 0;
    });
}
