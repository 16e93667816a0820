/*
 * asio goroutines CLIENTS CALLS: Asio's event loops in goroutines. Three goroutines run the loop of an echo server; of
 * the clients one half calls functions that block, and the other half runs a loop each. The keys of Asio are
 * pthread_setspecific's (ASIO_DISABLE_THREAD_KEYWORD_EXTENSION), since a loop notes there that it runs, and waits.
 */
#include <asio.hpp>
#include <gosched.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

#ifndef ASIO_DISABLE_THREAD_KEYWORD_EXTENSION
#error "two loops on one thread would use one thread-local variable"
#endif

using asio::ip::tcp;

static void check(bool holds, const char *what)
{
    if (!holds) {
        std::fprintf(stderr, "WRONG: %s\n", what);
        std::_Exit(1);
    }
}

struct session : std::enable_shared_from_this<session> {
    explicit session(tcp::socket s) : socket(std::move(s)) {}

    void serve()
    {
        socket.async_read_some(asio::buffer(room), [self = shared_from_this()](std::error_code e, std::size_t n) {
            if (!e)
                asio::async_write(self->socket, asio::buffer(self->room, n),
                                  [self](std::error_code failed, std::size_t) {
                                      if (!failed)
                                          self->serve();
                                  });
        });
    }

    tcp::socket socket;
    char room[1024];
};

static void accept_on(tcp::acceptor &listener)
{
    listener.async_accept([&listener](std::error_code e, tcp::socket s) {
        if (e)
            return;
        std::make_shared<session>(std::move(s))->serve();
        accept_on(listener);
    });
}

static std::string question(int client, int n)
{
    return std::to_string(client) + " asks " + std::to_string(n) + "\n";
}

static void ask_blocking(int client, int calls, unsigned short port)
{
    asio::io_context loop;
    tcp::socket s(loop);
    tcp::resolver resolver(loop);
    asio::connect(s, resolver.resolve("localhost", std::to_string(port)));
    for (int n = 0; n < calls; n++) {
        std::string asked = question(client, n), got;
        asio::write(s, asio::buffer(asked));
        asio::read_until(s, asio::dynamic_buffer(got), '\n');
        check(got == asked, "an answer to a call that blocks");
    }
}

static void ask_in_a_loop(int client, int calls, unsigned short port)
{
    asio::io_context loop;
    tcp::socket s(loop);
    asio::steady_timer pause(loop);
    std::string asked, got;
    int n = 0;
    std::function<void()> ask = [&] {
        if (n == calls)
            return;
        asked = question(client, n++);
        got.clear();
        asio::async_write(s, asio::buffer(asked), [&](std::error_code e, std::size_t) {
            check(!e, "a write in a loop");
            asio::async_read_until(s, asio::dynamic_buffer(got), '\n', [&](std::error_code failed, std::size_t) {
                check(!failed && got == asked, "an answer in a loop");
                pause.expires_after(std::chrono::microseconds(300));
                pause.async_wait([&](std::error_code) { ask(); });
            });
        });
    };
    s.async_connect({asio::ip::address_v4::loopback(), port}, [&](std::error_code e) {
        check(!e, "a connection");
        ask();
    });
    loop.run();
    check(n == calls, "all calls of a loop");
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        std::fprintf(stderr, "usage: %s goroutines CLIENTS CALLS\n", argv[0]);
        return 2;
    }
    const int clients = std::atoi(argv[2]), calls = std::atoi(argv[3]);
    alarm(170); // a hang
    return gs::run([&] {
        gs::options in_group;
        in_group.pinned = true;
        in_group.workers = gs_workers_create(gs_gomaxprocs(0), 0);
        check(in_group.workers != nullptr, "a group of threads");
        asio::io_context loop;
        tcp::acceptor listener(loop, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
        const unsigned short port = listener.local_endpoint().port();
        accept_on(listener);
        std::vector<gs::goroutine<void>> servers, all;
        for (int i = 0; i < 3; i++)
            servers.push_back(gs::go(in_group, [&] { loop.run(); }));
        for (int i = 0; i < clients; i++)
            all.push_back(gs::go(in_group, i % 2 ? ask_blocking : ask_in_a_loop, i, calls, port));
        for (auto &client : all)
            client.get();
        loop.stop();
        for (auto &server : servers)
            server.get();
        check(gs_workers_free(in_group.workers) == 0, "the group's end");
        std::printf("%d calls\n", clients * calls);
        return 0;
    });
}
