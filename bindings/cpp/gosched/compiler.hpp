// compiler.hpp: the features of the compiler and its library, and the namespace of everything in this header.
#pragma once

#include <gosched.h>

#if __cplusplus >= 202002L && defined(__has_include)
#if __has_include(<coroutine>)
#include <coroutine>
#endif
#if __has_include(<stop_token>)
#include <stop_token>
#endif
#endif

/* Whether this translation unit is compiled with exceptions. */
#if defined(__cpp_exceptions) || defined(__EXCEPTIONS)
#define GS_HPP_EXCEPTIONS 1
#else
#define GS_HPP_EXCEPTIONS 0
#endif

/* Whether there are coroutines, and so gs::task, gs::executor and co_await. */
#if defined(__cpp_impl_coroutine) && defined(__cpp_lib_coroutine)
#define GS_HPP_COROUTINES 1
#else
#define GS_HPP_COROUTINES 0
#endif

/* Whether there is std::stop_token. */
#if defined(__cpp_lib_jthread)
#define GS_HPP_STOP_TOKENS 1
#else
#define GS_HPP_STOP_TOKENS 0
#endif

// Visible also with -fvisibility=hidden: a program and its shared libraries must have one gs::category() and one table
// of mutexes for gs::condition_variable_any, and each must be able to catch a gs::error from the other.
#if GS_HPP_EXCEPTIONS
#define GS_HPP_VERSION v1
#else
#define GS_HPP_VERSION v1_noexcept
#endif
#define GS_HPP_BEGIN_NAMESPACE                             \
    namespace gs __attribute__((visibility("default"))) { \
    inline namespace GS_HPP_VERSION {
#define GS_HPP_END_NAMESPACE \
    }                        \
    }
