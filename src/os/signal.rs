//! Signals: alternate stacks, the handler that tells a stack overflow from other
//! faults, and the signal that asks a thread to give its P away.
//!
//! # What is the host's
//!
//! Both handlers stand in front of the host's action for the signal. A signal that isn't the
//! library's is treated as the kernel would treat it. The default action ends the process with this
//! signal and its `siginfo_t`. A fault isn't ignored even if its signal is. A handler runs with its
//! mask, on the stack and as often as its flags say. The only exception is `SA_RESTART` of the
//! preemption signal, which the library needs.
//!
//! A handler that the host installs after the library's may call the library's handler. Then the
//! library's handler must not pass the signal back to the host's newer handler: it passes the
//! signal on to the action that was installed before the library's. Called by the kernel, it uses
//! the action that it found last. It tells the two callers apart by the address of the context
//! ([`arch::signal_handler`]).

use super::thread::{self, FAULTS};
use super::{PAGE, mem};
use crate::arch;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// The signals whose default action is to do nothing.
const IGNORED: [i32; 4] = [libc::SIGCHLD, libc::SIGCONT, libc::SIGURG, libc::SIGWINCH];

/// Bytes of an alternate signal stack for the handlers themselves: the library's, and a handler of
/// the host's that interrupts it. The registers that the kernel saves come on top.
const ALT_STACK: usize = 64 << 10;

/// Handlers that may interrupt each other on an alternate stack. The kernel saves the registers
/// there for each, up to 11 KiB with AMX.
const NESTED: usize = 4;

/// Least number of bytes that the kernel writes below the interrupted stack pointer for a handler
/// on that stack.
const FRAME: usize = 1024;

/// The size in bytes of an alternate signal stack.
fn alt_stack_size() -> usize {
    const AT_MINSIGSTKSZ: libc::c_ulong = 51;
    // SAFETY: takes no pointer; gives 0 on kernels that don't tell.
    let frame = unsafe { libc::getauxval(AT_MINSIGSTKSZ) } as usize;
    (ALT_STACK + NESTED * frame.max(libc::MINSIGSTKSZ)).next_multiple_of(PAGE)
}

/// An alternate signal stack for one thread. Dropping it restores the thread's former one.
pub struct AltStack {
    at: usize,
    size: usize,
    before: libc::stack_t,
}

impl AltStack {
    /// Gives the calling thread an alternate signal stack, unless it has a large
    /// enough one, or runs on its own right now.
    pub fn set_up() -> Option<AltStack> {
        let before = alt_stack();
        let size = alt_stack_size();
        if before.ss_flags & libc::SS_DISABLE == 0 && before.ss_size >= size {
            return None;
        }
        // The lowest page is a guard.
        let at = mem::reserve(size + PAGE, PAGE)?;
        // SAFETY: just reserved.
        unsafe { mem::protect_none(at, PAGE) };
        let stack = AltStack { at, size, before };
        let new =
            libc::stack_t { ss_sp: stack.start() as *mut c_void, ss_flags: 0, ss_size: stack.size };
        // SAFETY: the memory is the thread's own until `drop`, which comes at once if this fails.
        let is_set = unsafe { libc::sigaltstack(&new, ptr::null_mut()) } == 0;
        is_set.then_some(stack)
    }

    /// The first address of the memory in use, as for [`alt_stack_at`].
    pub fn start(&self) -> usize {
        self.at + PAGE
    }
}

/// The bounds of the library's alternate signal stack that starts at an address.
pub fn alt_stack_at(start: usize) -> Range<usize> {
    start..start + alt_stack_size()
}

impl Drop for AltStack {
    /// Runs on the thread that has called [`AltStack::set_up`].
    fn drop(&mut self) {
        // The user's code may have set another alternate stack.
        if alt_stack().ss_sp as usize == self.start() {
            let mut before = self.before;
            before.ss_flags &= !libc::SS_ONSTACK;
            // SAFETY: the stack that the thread had before; no handler runs on this one, because
            // this code is in no handler.
            unsafe { libc::sigaltstack(&before, ptr::null_mut()) };
        }
        // SAFETY: reserved for this stack, which is not the thread's alternate stack any more.
        unsafe { mem::release(self.at, self.size + PAGE) };
    }
}

/// The calling thread's alternate signal stack.
fn alt_stack() -> libc::stack_t {
    let mut now = MaybeUninit::<libc::stack_t>::zeroed();
    // SAFETY: only asks, and `now` is writable.
    unsafe {
        libc::sigaltstack(ptr::null(), now.as_mut_ptr());
        now.assume_init()
    }
}

/// A set of signals as the kernel has it: bit n stands for signal n + 1.
type Mask = u64;

fn bit(sig: i32) -> Mask {
    1 << (sig - 1)
}

/// Sets the calling thread's mask; returns the former mask. Async-signal-safe.
fn set_mask(mask: Mask) -> Mask {
    let mut before: Mask = 0;
    // SAFETY: two words of the size that is passed.
    unsafe {
        let (new, old) = (&raw const mask, &raw mut before);
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, new, old, size_of::<Mask>());
    }
    before
}

/// The mask of an interrupted context, which the kernel puts back.
///
/// # Safety
/// `context` is the `ucontext_t` that a signal handler was given.
unsafe fn interrupted_mask(context: *const c_void) -> Mask {
    // SAFETY: the kernel has written one word there.
    unsafe { (&raw const (*context.cast::<libc::ucontext_t>()).uc_sigmask).cast::<Mask>().read() }
}

/// For a handler that sleeps and holds nothing: runs `f` with the interrupted code's signal mask,
/// and with `sig` blocked (0: no signal).
///
/// # Safety
/// `context` is the `ucontext_t` that the handler was given.
pub unsafe fn let_others_through<R>(context: *const c_void, sig: i32, f: impl FnOnce() -> R) -> R {
    let own = if sig == 0 { 0 } else { bit(sig) };
    // SAFETY: a handler's `ucontext_t`, as the caller says.
    let before = set_mask(unsafe { interrupted_mask(context) } | own);
    let result = f();
    set_mask(before);
    result
}

/// The action for a signal.
#[derive(Clone, Copy)]
struct Action {
    /// `SIG_DFL`, `SIG_IGN`, or a function.
    handler: usize,
    flags: i32,
    mask: Mask,
}

impl Action {
    fn of(raw: &libc::sigaction) -> Action {
        // SAFETY: a `sigset_t` begins with the kernel's word.
        let mask = unsafe { (&raw const raw.sa_mask).cast::<Mask>().read() };
        Action { handler: raw.sa_sigaction, flags: raw.sa_flags, mask }
    }

    fn to_raw(self) -> libc::sigaction {
        // SAFETY: all bytes zero are a valid value, the default action.
        let mut raw: libc::sigaction = unsafe { core::mem::zeroed() };
        raw.sa_sigaction = self.handler;
        raw.sa_flags = self.flags;
        // SAFETY: as in `of`.
        unsafe { (&raw mut raw.sa_mask).cast::<Mask>().write(self.mask) };
        raw
    }
}

/// The action that is installed for a signal.
fn installed(sig: i32) -> Action {
    let mut raw = Action { handler: libc::SIG_DFL, flags: 0, mask: 0 }.to_raw();
    // SAFETY: only asks.
    unsafe { libc::sigaction(sig, ptr::null(), &mut raw) };
    Action::of(&raw)
}

fn install(sig: i32, action: Action) {
    // SAFETY: a valid action; a handler stays where it is as long as it is installed.
    unsafe { libc::sigaction(sig, &action.to_raw(), ptr::null_mut()) };
}

/// An [`Action`] that handlers read while others may write it.
struct SharedAction {
    handler: AtomicUsize,
    flags: AtomicI32,
    mask: AtomicU64,
}

impl SharedAction {
    const fn new() -> SharedAction {
        SharedAction {
            handler: AtomicUsize::new(libc::SIG_DFL),
            flags: AtomicI32::new(0),
            mask: AtomicU64::new(0),
        }
    }

    fn set(&self, action: Action) {
        self.handler.store(action.handler, Ordering::Relaxed);
        self.flags.store(action.flags, Ordering::Relaxed);
        self.mask.store(action.mask, Ordering::Relaxed);
    }

    fn get(&self) -> Action {
        Action {
            handler: self.handler.load(Ordering::Relaxed),
            flags: self.flags.load(Ordering::Relaxed),
            mask: self.mask.load(Ordering::Relaxed),
        }
    }

    /// The action for a signal that has come: an action with `SA_RESETHAND` is given only once.
    fn take(&self) -> Action {
        let mut action = self.get();
        if action.flags & libc::SA_RESETHAND != 0 {
            action.handler = self.handler.swap(libc::SIG_DFL, Ordering::Relaxed);
        }
        action
    }
}

/// The host's actions for a signal whose handler is the library's.
struct Host {
    /// Entry 0: the action from before the library's first installation. Entries 1 and 2, in turn:
    /// the action that a later installation found. A handler that reads one entry isn't disturbed
    /// by the next installation, which writes the other.
    kept: [SharedAction; 3],
    /// The valid entry; [`Host::NONE`]: the library's handler was never installed.
    latest: AtomicUsize,
}

impl Host {
    const NONE: usize = usize::MAX;

    const fn new() -> Host {
        Host {
            kept: [SharedAction::new(), SharedAction::new(), SharedAction::new()],
            latest: AtomicUsize::new(Host::NONE),
        }
    }

    /// Installs `ours` in front of the host's action, unless `ours` is installed. One caller at a
    /// time.
    fn install(&self, sig: i32, ours: usize) {
        let now = installed(sig);
        if now.handler == ours {
            return;
        }
        let next = match self.latest.load(Ordering::Relaxed) {
            Host::NONE => 0,
            1 => 2,
            _ => 1,
        };
        self.kept[next].set(now);
        // Release: pairs with the Acquire in `action`.
        self.latest.store(next, Ordering::Release);
        // Only faults interrupt the library's handler, until it lets other signals through.
        let faults = FAULTS.iter().filter(|&&f| f != sig).fold(0, |mask, &f| mask | bit(f));
        let flags = libc::SA_SIGINFO
            | libc::SA_ONSTACK
            | match now.handler {
                libc::SIG_DFL | libc::SIG_IGN => libc::SA_RESTART,
                _ if !FAULTS.contains(&sig) => libc::SA_RESTART,
                _ => now.flags & libc::SA_RESTART,
            };
        install(sig, Action { handler: ours, flags, mask: !faults });
    }

    /// Installs the host's action again, if the library's handler is still installed.
    fn give_back(&self, sig: i32, ours: usize) {
        let latest = self.latest.swap(Host::NONE, Ordering::Relaxed);
        if latest != Host::NONE && installed(sig).handler == ours {
            install(sig, self.kept[latest].get());
        }
    }

    /// The host's action for a signal that has come.
    fn action(&self, by_kernel: bool) -> Action {
        // Acquire: pairs with the Release in `install`.
        let latest = self.latest.load(Ordering::Acquire);
        self.kept[if by_kernel && latest < self.kept.len() { latest } else { 0 }].take()
    }

    /// Carries out the host's action for the signal, as the kernel would.
    ///
    /// # Safety
    /// The arguments are those of a signal handler.
    unsafe fn deliver(
        &self,
        sig: i32,
        info: *mut libc::siginfo_t,
        context: *mut c_void,
        by_kernel: bool,
    ) {
        let action = self.action(by_kernel);
        // SAFETY: the kernel has filled `info` in.
        let is_fault = unsafe { is_fault(info) };
        match action.handler {
            libc::SIG_IGN if !is_fault => {}
            libc::SIG_DFL if IGNORED.contains(&sig) => {}
            // The kernel doesn't let a fault be ignored.
            libc::SIG_DFL | libc::SIG_IGN => end_by(sig, info),
            f => {
                let mut stack = 0;
                if by_kernel {
                    // SAFETY: the kernel gave the library's handler this context.
                    unsafe {
                        stack = stack_for(&action, context);
                        if stack != 0 {
                            check_room(sig, stack, context);
                        }
                        let own = if action.flags & libc::SA_NODEFER == 0 { bit(sig) } else { 0 };
                        set_mask(interrupted_mask(context) | action.mask | own);
                    }
                }
                // SAFETY: the host has installed this function as a handler. A handler that takes
                // only the number ignores the other arguments.
                unsafe { arch::call_handler(f, sig, info.cast(), context, stack) };
            }
        }
    }
}

/// Whether an instruction has raised the signal: no process has sent it.
///
/// # Safety
/// `info` is what a handler was given.
unsafe fn is_fault(info: *const libc::siginfo_t) -> bool {
    // SAFETY: a handler's `siginfo_t`, as the caller says.
    unsafe { (*info).si_code > 0 }
}

/// The default action of a signal that ends the process: the same signal comes again as
/// soon as the handler has returned, at the place where it came first.
fn end_by(sig: i32, info: *mut libc::siginfo_t) {
    install(sig, Action { handler: libc::SIG_DFL, flags: 0, mask: 0 });
    // SAFETY: the kernel reads the `siginfo_t` that it has filled in before.
    unsafe {
        let (process, thread) = (libc::getpid(), thread::id());
        if libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, sig, info) != 0 {
            libc::syscall(libc::SYS_tgkill, process, thread, sig);
        }
    }
}

/// The upper end of the stack on which the host's handler must run; 0: the stack on which the
/// library's handler runs. A handler without `SA_ONSTACK` runs on the interrupted stack.
///
/// # Safety
/// `context` is the `ucontext_t` that the kernel gave the library's handler.
unsafe fn stack_for(action: &Action, context: *const c_void) -> usize {
    // SAFETY: the kernel gave the library's handler this context, as the caller says.
    let (alt, sp) =
        unsafe { ((*context.cast::<libc::ucontext_t>()).uc_stack, arch::interrupted(context).sp) };
    let is_on = |at: usize| {
        let lo = alt.ss_sp as usize;
        alt.ss_flags & libc::SS_DISABLE == 0 && at > lo && at <= lo + alt.ss_size
    };
    let here = context as usize;
    if action.flags & libc::SA_ONSTACK != 0 || !is_on(here) || is_on(sp) {
        return 0;
    }
    sp - arch::RED_ZONE
}

/// Touches the interrupted stack, on which a handler will run. Without room there the process ends,
/// as the kernel would end it: the touch raises a fault while its signal is blocked.
///
/// # Safety
/// Nothing is in use below `stack`.
unsafe fn check_room(sig: i32, stack: usize, context: *const c_void) {
    let lowest = stack - FRAME;
    if sig == libc::SIGSEGV {
        report(lowest, context);
    }
    // SAFETY: nothing there is in use, as the caller says; if nothing is mapped there, the fault is
    // reported.
    unsafe { (lowest as *mut u8).write_volatile(0) };
}

/// Called with the address of every fault, and the handler's context; returns if the fault isn't a stack overflow. Must be
/// async-signal-safe.
pub type FaultHook = fn(address: usize, context: *const c_void);

static HOOK: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());
static HOST_FAULTS: [Host; 2] = [Host::new(), Host::new()];
const SIGNALS: [i32; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// Installs the fault handler in front of the host's action, unless it is installed. One caller at
/// a time.
pub fn on_fault(hook: FaultHook) {
    HOOK.store(hook as *mut (), Ordering::Release);
    for (sig, host) in SIGNALS.into_iter().zip(&HOST_FAULTS) {
        host.install(sig, fault_entry as *const () as usize);
    }
}

arch::signal_handler!(fault_entry, handle_fault);
arch::signal_handler!(preempt_entry, handle_preempt);

/// Calls the hook.
fn report(address: usize, context: *const c_void) {
    let hook = HOOK.load(Ordering::Acquire);
    // SAFETY: only `on_fault` stores, and a FaultHook.
    let hook: FaultHook = unsafe { core::mem::transmute(hook) };
    hook(address, context);
}

/// The handler of faults: calls the hook first, then the host's action.
extern "C" fn handle_fault(
    sig: i32,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
    by_kernel: bool,
) {
    // SAFETY: the kernel filled `info` in; only a fault has an address.
    unsafe {
        if is_fault(info) {
            report((*info).si_addr() as usize, context);
        }
        HOST_FAULTS[usize::from(sig == SIGNALS[1])].deliver(sig, info, context, by_kernel);
    }
}

/// Called with the interrupted context when the library has sent the signal. Must be
/// async-signal-safe.
pub type PreemptHook = fn(context: *mut c_void);

static PREEMPT: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());
/// The signal for which the preemption handler is installed; 0: none.
static PREEMPT_SIGNAL: AtomicI32 = AtomicI32::new(0);
static HOST_PREEMPT: Host = Host::new();

/// Installs the preemption handler for `sig` in front of the host's action, unless it is installed.
/// If another signal had the handler, that signal gets the host's action back. One caller at a
/// time.
pub fn on_preempt(sig: i32, hook: PreemptHook) {
    let ours = preempt_entry as *const () as usize;
    PREEMPT.store(hook as *mut (), Ordering::Release);
    let old = PREEMPT_SIGNAL.swap(sig, Ordering::AcqRel);
    if old != 0 && old != sig {
        HOST_PREEMPT.give_back(old, ours);
    }
    HOST_PREEMPT.install(sig, ours);
}

/// The preemption handler. A signal that the library has not sent goes to the host's action.
extern "C" fn handle_preempt(
    sig: i32,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
    by_kernel: bool,
) {
    // SAFETY: the kernel filled `info` in.
    unsafe {
        if thread::is_ours(info) {
            let hook = PREEMPT.load(Ordering::Acquire);
            // Only `on_preempt` stores, and a PreemptHook.
            let hook: PreemptHook = core::mem::transmute(hook);
            hook(context);
        } else {
            HOST_PREEMPT.deliver(sig, info, context, by_kernel);
        }
    }
}

static QUIT: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());
static HOST_QUIT: Host = Host::new();

arch::signal_handler!(quit_entry, handle_quit);

/// Calls the hook, which must be async-signal-safe, for each SIGQUIT, in place of the host's action.
/// One caller at a time.
pub fn on_quit(hook: fn()) {
    QUIT.store(hook as *mut (), Ordering::Release);
    HOST_QUIT.install(libc::SIGQUIT, quit_entry as *const () as usize);
}

/// Gives SIGQUIT back to the host.
pub fn end_quit() {
    HOST_QUIT.give_back(libc::SIGQUIT, quit_entry as *const () as usize);
}

extern "C" fn handle_quit(_: i32, _: *mut libc::siginfo_t, _: *mut c_void, _: bool) {
    let hook = QUIT.load(Ordering::Acquire);
    // SAFETY: only `on_quit` stores, and such a function.
    let hook: fn() = unsafe { core::mem::transmute(hook) };
    hook();
}

/// Called for each fault and each abort(3), before the host's action. Must be async-signal-safe.
pub type CrashHook = fn(sig: i32, context: *const c_void);

static CRASH: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());
const CRASHES: [i32; 5] = [libc::SIGABRT, libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];
static HOST_CRASHES: [Host; CRASHES.len()] = [const { Host::new() }; CRASHES.len()];

arch::signal_handler!(crash_entry, handle_crash);

/// Calls the hook for the signals of a crash. One caller at a time.
pub fn on_crash(hook: CrashHook) {
    CRASH.store(hook as *mut (), Ordering::Release);
    for (sig, host) in CRASHES.into_iter().zip(&HOST_CRASHES) {
        host.install(sig, crash_entry as *const () as usize);
    }
}

/// Undoes [`on_crash`].
pub fn end_crash() {
    for (sig, host) in CRASHES.into_iter().zip(&HOST_CRASHES) {
        host.give_back(sig, crash_entry as *const () as usize);
    }
}

extern "C" fn handle_crash(
    sig: i32,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
    by_kernel: bool,
) {
    let hook = CRASH.load(Ordering::Acquire);
    // SAFETY: only `on_crash` stores, and such a function.
    let hook: CrashHook = unsafe { core::mem::transmute(hook) };
    hook(sig, context);
    if let Some(at) = CRASHES.iter().position(|&s| s == sig) {
        // SAFETY: the arguments are the handler's.
        unsafe { HOST_CRASHES[at].deliver(sig, info, context, by_kernel) };
    }
}

/// For a handler that will never return: gives the thread the interrupted code's signal mask.
///
/// # Safety
/// `context` is the `ucontext_t` that the handler was given.
pub unsafe fn leave_handler(context: *const c_void) {
    // SAFETY: as the caller says.
    set_mask(unsafe { interrupted_mask(context) });
}
