//! Calls on the thread's own stack, with the P left as in a system call: `gs_blocking`, and the
//! hooks of embedders. seed: S7

use super::back_from_call::{
    self, queue_after_call, restore_p, take_again, take_another, take_back,
};
use super::boundary::Entered;
use super::call::{self, find_own_thread, leave_p};
use crate::arch::{FpControl, Place};
use crate::cxx::Saved;
use crate::sched::prim::clock;
use crate::sched::run::switch::{self, Away, Left};
use crate::sched::run::{probes, start, traced};
use crate::sched::types::g::{GRef, Status};
use crate::sched::types::m::{self, Blocking, BlockingCall, MRef};
use crate::sched::types::runtime::rt;
use crate::sched::types::task::Task;
use crate::trace;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::Ordering;

/// Calls `f(arg)` on the thread's own stack with the P released; returns what `f` returns, and its
/// errno. On a plain thread, or in such a call already, just calls `f`. The caller has a P
/// afterwards.
///
/// # Safety
/// `f` may be called with `arg`.
pub unsafe fn call(f: Blocking, arg: *mut c_void) -> *mut c_void {
    // SAFETY: as the caller says.
    unsafe { call_with_p(f, arg, false) }
}

/// [`call`] for a function that the user's code calls, and that returns next: the goroutine may
/// have had no P since its last call, and may have none afterwards.
///
/// # Safety
/// As for `call`.
pub unsafe fn call_from_user(f: Blocking, arg: *mut c_void) -> *mut c_void {
    match Entered::for_call() {
        // SAFETY: as the caller says.
        Ok(entered) => unsafe { call_with_p(f, arg, entered.is_from_user()) },
        // SAFETY: only a goroutine begins a call without a P.
        Err(_begun) => BlockingCall::new(f, arg, true).make(unsafe { m::must_current() }),
    }
}

/// # Safety
/// As for `call`.
unsafe fn call_with_p(f: Blocking, arg: *mut c_void, to_user: bool) -> *mut c_void {
    match m::on_goroutine() {
        Some(m) => BlockingCall::new(f, arg, to_user).make(find_own_thread(m, m.g())),
        // SAFETY: as the caller says.
        None => unsafe { f(arg) },
    }
}

/// Drops the exceptions of the running goroutine, which is about to end, from all copies of the C++
/// runtime.
pub fn leave_exceptions(m: MRef) {
    unsafe extern "C" fn nothing(arg: *mut c_void) -> *mut c_void {
        arg
    }
    BlockingCall::new(nothing, ptr::null_mut(), false).leave_for_g0(m);
}

impl BlockingCall {
    fn new(f: Blocking, arg: *mut c_void, to_user: bool) -> BlockingCall {
        BlockingCall {
            f,
            arg,
            to_user,
            result: ptr::null_mut(),
            fp: FpControl::current(),
            errno: 0,
            exceptions: Saved::new(),
        }
    }

    /// Makes the call and returns its result.
    fn make(mut self, m: MRef) -> *mut c_void {
        if self.leave_for_g0(m) {
            self.exceptions.restore();
        }
        self.result
    }

    /// Switches to g0, which makes the call. False: the call has forked, and this is the child,
    /// where the thread is a plain thread from here on.
    fn leave_for_g0(&mut self, m: MRef) -> bool {
        m.g().since.set(clock::rough());
        m.g().set_status(Status::Syscall);
        m.blocking.set(self);
        // SAFETY: the switch has no commit; afterwards the goroutine is on an M's thread again.
        let m = unsafe {
            switch::switch_to_g0(m, None);
            m::must_current()
        };
        if !m.blocking.get().is_null() {
            // SAFETY: in the child of a fork no runtime uses the thread.
            unsafe { m::set_current(None) };
            return false;
        }
        // SAFETY: the errno of the thread that runs this now.
        unsafe { *m.errno.get() = self.errno };
        self.fp.load();
        true
    }
}

/// On g0: calls `f` with the M's P, if it has one, released as in a system call. The M may have no
/// P afterwards.
pub fn off_p(m: MRef, f: impl FnOnce()) {
    let p = (!m.p.get().is_null()).then(|| {
        start::share_what_is_kept(m.p());
        let p = m.p();
        call::mark(m, p);
        p
    });
    m.hold.begin_call();
    f();
    // An M that began without a P has no P to take.
    let has_p = p.is_some_and(|p| {
        let is_back = take_back(m, p);
        if is_back {
            restore_p(m, p);
        }
        is_back || take_another(m, p)
    });
    if !has_p {
        m.hold.end();
    }
}

/// Makes the call of `gs_blocking`, on g0. The goroutine's registers are saved, but the goroutine
/// stays the M's, and functions that `f` calls find it as the current goroutine. Returns the
/// goroutine if it goes on without a P.
#[must_use]
pub fn run_on_g0(m: MRef, g: GRef) -> Option<GRef> {
    // SAFETY: `call` has left the record there, on a stack that stays.
    let call = unsafe { &mut *m.blocking.get() };
    m.curg.set(g.as_ptr());
    // A call may have begun without a P.
    if !m.p.get().is_null() {
        leave_p(m, g, false);
    }
    g.syscall_depth.set(1);
    let own = FpControl::current();
    call.fp.load();
    // SAFETY: the caller of `gs_blocking` answers for `f`.
    call.result = unsafe { (call.f)(call.arg) };
    if m::current().is_none() {
        // `f` has forked, and this is the child: there is no runtime, but the goroutine goes on.
        // SAFETY: the M that the thread had before the fork, in the child's copy of memory, which
        // no other thread uses.
        unsafe { m::set_current(Some(m)) };
        let (mut here, to) = (Place::new(), g.context.load(Ordering::Relaxed));
        here.note_modes();
        let _ = Away::to(m, to, true);
        // SAFETY: the goroutine's registers are saved, and no other M can run it.
        unsafe { Left::nothing(m).switch(m.g0_context.as_ptr(), to, &mut here) };
        unreachable!("no context resumes this stack");
    }
    // SAFETY: the thread's own errno.
    call.errno = unsafe { *m.errno.get() };
    m.cxa.take_without_p(&rt().copies, &mut call.exceptions);
    call.fp = FpControl::current();
    own.load();
    g.syscall_depth.set(0);
    m.blocking.set(ptr::null_mut());
    m.curg.set(ptr::null());
    let has_p = take_again(m, g);
    if trace::is_on() {
        probes::syscall_end(has_p.then(|| m.p()), g);
    }
    // `go_on` refuses an M that has hooks or is to get other hooks, so the goroutine needs nothing of
    // what g0 does before a switch.
    if !has_p && call.to_user && back_from_call::go_on(m, g) {
        return Some(g);
    }
    if has_p {
        // The goroutine runs next, as after a system call.
        m.stash.set(Some(Task::goroutine(g)));
    } else {
        (rt().points.leave_entered)(m);
        if m.is_traced() {
            traced::loses_g(m, g);
        }
        // SAFETY: this runs on g0, and this M owns the goroutine.
        unsafe { queue_after_call(g.address()) };
    }
    None
}
