// echo: sends back what it gets. A goroutine for each connection, with ordinary calls that wait.
//
//   g++ -std=c++17 -O2 echo.cpp -o echo $(pkg-config --cflags --libs gosched)
//   ./echo 7000
#include "serve.hpp"

static void echo(gs::tcp_stream stream)
{
    char buffer[16 * 1024];
    while (const std::size_t n = stream.read_some(buffer, sizeof buffer))
        stream.write(buffer, n);
}

int main(int argc, char **argv)
{
    return serve("echo", port_of(argc, argv, 7000), echo);
}
