// gosched.hpp: libgosched for C++17 and later. One header, nothing to link but the library.
//
// What gosched.h says of goroutines, deadlines and cancelling holds here too. What is added:
//
// - Values of any type over channels, and functions with arguments and results as goroutines.
// - Lengths of time and points in time are those of std::chrono, of any clock. A time of another clock
//   than std::chrono::steady_clock is converted when the call begins.
// - Objects that clean up: locks for std::lock_guard and the like, task groups that wait.
//
// Errors. gs::error, an std::system_error, is thrown for each error of the library; its code() is of gs::category() and
// compares with std::errc: `e.code() == std::errc::operation_canceled`. What a program expects to happen isn't an
// error: a receive from a closed channel returns an empty gs::received, and a wait with a limit says by its result that
// the time was up.
//
// With -fno-exceptions nothing is thrown. A function that is declared with gs::result<T> returns a T where exceptions
// are on. Where they are off it returns an object that has a T or an std::error_code. An object that can't be
// constructed for lack of memory is then empty, and every call on it gives EINVAL. Misuse that no program can recover
// from (unlocking a mutex that isn't locked) is reported, and the program aborts. Without exceptions everything is in
// another inline namespace, so that a program can't mix objects of the two kinds by mistake.
//
// Cancelling. In a goroutine that is cancelled every call that would block throws gs::error with
// std::errc::operation_canceled, which unwinds the goroutine. Locks are the exception: a cancel never ends lock(),
// because destructors lock, too.
//
// Stop tokens, from C++20 on. A wait with an std::stop_token, which is its first argument, ends when a stop is requested.
// That is no error: the result says so. What can be done at once is done, also after the stop.
//
// gs_exit() runs no destructors: a C++ goroutine ends by returning.
//
// In the sources each part of this header is a file of its own, in bindings/cpp/gosched; bindings/cpp/join joins them.
#ifndef GOSCHED_HPP
#define GOSCHED_HPP

#include "gosched/compiler.hpp"
#include "gosched/error.hpp"
#include "gosched/time.hpp"
#include "gosched/scope.hpp"
#include "gosched/call.hpp"
#include "gosched/mutex.hpp"
#include "gosched/stop.hpp"
#include "gosched/runtime.hpp"
#include "gosched/inspect.hpp"
#include "gosched/test.hpp"
#include "gosched/goroutine.hpp"
#include "gosched/condition_variable.hpp"
#include "gosched/sync.hpp"
#include "gosched/local.hpp"
#include "gosched/future.hpp"
#include "gosched/element.hpp"
#include "gosched/channel.hpp"
#include "gosched/select.hpp"
#include "gosched/timer.hpp"
#include "gosched/task_group.hpp"
#include "gosched/socket.hpp"
#include "gosched/tcp.hpp"
#include "gosched/unix.hpp"
#include "gosched/udp.hpp"
#include "gosched/executor.hpp"
#include "gosched/await.hpp"

#endif  // GOSCHED_HPP
