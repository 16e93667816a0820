// What echo.cpp and hello_http.cpp share: a goroutine for each connection until SIGTERM or SIGINT comes.
#ifndef SERVE_HPP
#define SERVE_HPP

#include <gosched.hpp>

#include <csignal>
#include <cstdio>
#include <cstdlib>

/// Calls handle(stream) on a goroutine for each connection. A signal ends the accepting, cancels the connections, and
/// this returns when all of them have ended.
template <class Handle>
int serve(const char *name, std::uint16_t port, Handle handle)
{
    // Blocked before any other thread is there: then only gs_signal_wait gets them.
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);

    try {
        gs::run([&] {
            auto listener = gs::tcp_listener::listen("", port);
            std::printf("%s: listening on port %d\n", name, listener.port());
            std::fflush(stdout);
            auto stopper = gs::go([&] {
                gs_signal_wait(&signals, nullptr, GS_FOREVER);
                listener.stop();
            });

            gs::task_group connections;
            const auto one = [&](gs::tcp_stream stream) {
                try {
                    handle(std::move(stream));
                } catch (const gs::error &e) { // of this connection only, which is closed by now
                    if (e.code() != std::errc::operation_canceled)
                        std::fprintf(stderr, "%s: %s\n", name, e.what());
                }
            };
            for (bool running = true; running;) {
                try {
                    connections.go(one, listener.accept());
                } catch (const gs::error &e) {
                    running = e.code() != std::errc::operation_canceled;
                    if (running) { // no file or memory is left: those who connect wait until others have gone
                        std::fprintf(stderr, "%s: %s\n", name, e.what());
                        gs::this_goroutine::sleep_for(std::chrono::milliseconds(20));
                    }
                }
            }
            connections.cancel();
            connections.wait();
            stopper.get();
        });
        gs::shutdown();
    } catch (const std::exception &e) {
        std::fprintf(stderr, "%s: %s\n", name, e.what());
        return 1;
    }
    return 0;
}

/// The port on the command line, or another one.
inline std::uint16_t port_of(int argc, char **argv, std::uint16_t other)
{
    return argc > 1 ? static_cast<std::uint16_t>(std::atoi(argv[1])) : other;
}

#endif
