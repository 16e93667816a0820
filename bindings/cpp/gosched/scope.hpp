// scope.hpp: gs::no_cancel, gs::no_preempt and gs::syscall_section, which hold as long as an object lives.
#pragma once

#include "compiler.hpp"

GS_HPP_BEGIN_NAMESPACE

/// While an object of this class lives, a cancel doesn't end calls of the running goroutine: gs_cancel_disable. Nests.
class no_cancel {
public:
    no_cancel() noexcept { (void)gs_cancel_disable(); }
    ~no_cancel() { (void)gs_cancel_enable(); }
    no_cancel(const no_cancel &) = delete;
    no_cancel &operator=(const no_cancel &) = delete;
};

/// While an object of this class lives, the running goroutine is not preempted: gs_preempt_disable, with its caveats.
/// Nests.
class no_preempt {
public:
    no_preempt() noexcept { gs_preempt_disable(); }
    ~no_preempt() { gs_preempt_enable(); }
    no_preempt(const no_preempt &) = delete;
    no_preempt &operator=(const no_preempt &) = delete;
};

/// While an object of this class lives, others may use the goroutine's P: gs_entersyscall. For system calls
/// that may block. A call of this library that blocks meanwhile blocks the thread.
class syscall_section {
public:
    syscall_section() noexcept { (void)gs_entersyscall(); }
    ~syscall_section() { (void)gs_exitsyscall(); }
    syscall_section(const syscall_section &) = delete;
    syscall_section &operator=(const syscall_section &) = delete;
};

GS_HPP_END_NAMESPACE
