//! Signals: alternate stacks, the handler that tells a stack overflow from other
//! faults, and the one that asks a thread to give its P away.

use super::{mem, thread};
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicPtr, Ordering};
use std::sync::Once;

/// The signals that a fault in a thread's own code raises.
pub const FAULTS: [i32; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGSYS,
];

/// Bytes of an alternate signal stack: a handler of the host may run on it.
const ALT_STACK: usize = 64 << 10;

/// The alternate signal stack of one thread; taken back when dropped.
pub struct AltStack(usize);

impl AltStack {
    /// Gives the calling thread an alternate signal stack, if it has none.
    pub fn set_up() -> Option<AltStack> {
        let mut old = MaybeUninit::<libc::stack_t>::uninit();
        // SAFETY: only asks for the current one.
        let old = unsafe {
            libc::sigaltstack(ptr::null(), old.as_mut_ptr());
            old.assume_init()
        };
        if old.ss_flags & libc::SS_DISABLE == 0 {
            return None;
        }
        let at = mem::reserve(ALT_STACK, super::PAGE)?;
        let new = libc::stack_t { ss_sp: at as *mut _, ss_flags: 0, ss_size: ALT_STACK };
        // SAFETY: the memory is the thread's own until `drop`.
        unsafe { libc::sigaltstack(&new, ptr::null_mut()) };
        Some(AltStack(at))
    }
}

impl Drop for AltStack {
    /// On the thread that set it up.
    fn drop(&mut self) {
        let off = libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        // SAFETY: no handler runs on it: this is no handler.
        unsafe { libc::sigaltstack(&off, ptr::null_mut()) };
        mem::release(self.0, ALT_STACK);
    }
}

/// Is told the address of every fault; returns when the fault is none of its
/// business. Must be async-signal-safe.
pub type FaultHook = fn(address: usize);

static HOOK: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());
static INSTALL: Once = Once::new();
static mut BEFORE: [MaybeUninit<libc::sigaction>; 2] = [MaybeUninit::uninit(); 2];
const SIGNALS: [i32; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// Installs the fault handler once in the life of the process, in front of the
/// host's.
pub fn on_fault(hook: FaultHook) {
    HOOK.store(hook as *mut (), Ordering::Release);
    INSTALL.call_once(|| {
        for (i, &sig) in SIGNALS.iter().enumerate() {
            // SAFETY: `BEFORE` is written here only, before the handler that reads
            // it is installed (sigaction fills it in before it returns, and the
            // first store makes it valid even for a fault in between).
            unsafe {
                let before = &raw mut BEFORE[i];
                libc::sigaction(sig, ptr::null(), before.cast());
                let mut new: libc::sigaction = core::mem::zeroed();
                new.sa_sigaction = handle as *const () as usize;
                new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
                libc::sigemptyset(&mut new.sa_mask);
                libc::sigaction(sig, &new, ptr::null_mut());
            }
        }
    });
}

/// The handler of faults: the hook first, then what the host had installed.
extern "C" fn handle(sig: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    let hook = HOOK.load(Ordering::Acquire);
    // SAFETY: only `on_fault` stores, and a FaultHook; the kernel filled `info` in.
    unsafe {
        let hook: FaultHook = core::mem::transmute(hook);
        hook((*info).si_addr() as usize);
    }
    let i = usize::from(sig == SIGNALS[1]);
    // SAFETY: written before this handler was installed, never again.
    let before = unsafe { (&raw const BEFORE[i]).read().assume_init() };
    if !pass_on(&before, sig, info, context) {
        // Back to the default: the instruction faults again and ends the
        // process as it would have without us.
        // SAFETY: a zeroed sigaction is the default one.
        unsafe {
            let default: libc::sigaction = core::mem::zeroed();
            libc::sigaction(sig, &default, ptr::null_mut());
        }
    }
}

/// Calls the handler that the host had installed; false: it had none.
fn pass_on(
    before: &libc::sigaction,
    sig: i32,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) -> bool {
    match before.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => return false,
        // SAFETY: the host installed this function with these flags.
        f if before.sa_flags & libc::SA_SIGINFO != 0 => unsafe {
            let f: extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void) = core::mem::transmute(f);
            f(sig, info, context);
        },
        // SAFETY: likewise, the form with one argument.
        f => unsafe {
            let f: extern "C" fn(i32) = core::mem::transmute(f);
            f(sig);
        },
    }
    true
}

/// Is given the interrupted context when a thread of this process has sent the
/// signal. Must be async-signal-safe.
pub type PreemptHook = fn(context: *mut c_void);

static PREEMPT: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());
/// The last signal that has the handler; 0: none has.
static PREEMPT_SIGNAL: AtomicI32 = AtomicI32::new(0);
static mut BEFORE_PREEMPT: MaybeUninit<libc::sigaction> = MaybeUninit::uninit();

/// Installs the handler for a signal, in front of the host's; for another signal
/// than before the old one gets the host's handler back. One caller at a time.
pub fn on_preempt(sig: i32, hook: PreemptHook) {
    PREEMPT.store(hook as *mut (), Ordering::Release);
    let old = PREEMPT_SIGNAL.swap(sig, Ordering::AcqRel);
    if old == sig {
        return;
    }
    // SAFETY: `BEFORE_PREEMPT` is written while no signal has the handler.
    unsafe {
        let before = &raw mut BEFORE_PREEMPT;
        if old != 0 {
            libc::sigaction(old, before.cast(), ptr::null_mut());
        }
        libc::sigaction(sig, ptr::null(), before.cast());
        let mut new: libc::sigaction = core::mem::zeroed();
        new.sa_sigaction = handle_preempt as *const () as usize;
        new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        libc::sigemptyset(&mut new.sa_mask);
        libc::sigaction(sig, &new, ptr::null_mut());
    }
}

/// The handler: what comes from elsewhere is the host's.
extern "C" fn handle_preempt(sig: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel filled `info` in.
    if unsafe { thread::is_ours(info) } {
        let hook = PREEMPT.load(Ordering::Acquire);
        // SAFETY: only `on_preempt` stores, and a PreemptHook.
        let hook: PreemptHook = unsafe { core::mem::transmute(hook) };
        hook(context);
    } else {
        // SAFETY: written before this handler was installed.
        let before = unsafe { (&raw const BEFORE_PREEMPT).read().assume_init() };
        pass_on(&before, sig, info, context);
    }
}
