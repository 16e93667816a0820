//! `gs_attach`: the calling thread becomes an M, and the code that it runs from then on becomes a
//! goroutine.
//!
//! That goroutine is a root, like `gs_run`'s, and is bound to its M. It has no stack of its own but
//! keeps the thread's; g0 gets a stack that is mapped for it. So three contexts take turns:
//!
//! - `attach` saves the thread's context as that of the new goroutine, at rest, and switches to g0,
//!   which does all that `gs_run` does. g0 then switches to the goroutine: `attach` returns.
//! - `detach` ends the goroutine as any other ends, but leaves a context on the thread's stack.
//!   Once g0 has nothing left to do, it switches back to that context: `detach` returns, on a
//!   thread that is no longer an M.

use super::{goroutine, run, spawn};
use crate::arch::{self, Place, sanitizer};
use crate::os::KeepErrno;
use crate::sched::run::switch::Left;
use crate::sched::take::boundary;
use crate::sched::types::attachment::{Attachment, G0_STACK};
use crate::sched::types::g::{GRef, Status, flags};
use crate::sched::types::m::{self, MRef};
use crate::sched::types::runtime::Guest;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::Ordering;

/// Attaches the calling thread; `chosen`: flags of [`flags::PUBLIC`]. `-EBUSY`: the thread is an M
/// already; `-ENOSYS`: a sanitizer watches the stacks.
pub fn attach(chosen: u32) -> i32 {
    if m::current().is_some() {
        return -libc::EBUSY;
    }
    let _errno = KeepErrno::new();
    // Enter first: making the runtime looks for the sanitizer.
    if let Err(e) = Guest::enter() {
        return e;
    }
    if sanitizer::is_on() || cfg!(gosched_tsan) {
        return -libc::ENOSYS;
    }
    let Some(attachment) = Attachment::new(chosen) else { return -libc::ENOMEM };
    let mut here = Place::new();
    here.note_modes();
    let at: *const Attachment = &raw const *attachment;
    // SAFETY: the upper end of a new stack; the modes are noted; g0 or the scheduler resumes the
    // context that is left here, once.
    let words = unsafe {
        let g0 = arch::prepare_call(attachment.stack + G0_STACK, here.modes());
        arch::switch(
            attachment.native.as_ptr(),
            g0,
            [at as usize, on_g0 as *const () as usize, 0],
            &mut here,
        )
    };
    if attachment.error.get() != 0 {
        return attachment.error.get();
    }
    // SAFETY: g0 has switched to the goroutine, and nothing has run since.
    let m = unsafe { Left::from_words(words).settle() };
    // `detach` frees the attachment.
    let _ = Box::into_raw(attachment);
    boundary::leave(m);
    0
}

/// The main function of g0's stack: runs the thread as an M, then resumes the thread's own context.
unsafe extern "C" fn on_g0(attachment: *const Attachment) -> ! {
    // SAFETY: the attachment stays until the thread's own context has been resumed, below.
    let a = unsafe { &*attachment };
    a.error.set(run::run_root(|m| root(m, a)));
    let mut here = Place::new();
    here.note_modes();
    let mut never = 0;
    // SAFETY: the thread's own context is at rest: either nothing has resumed it, or `detach` has
    // saved it. The context saved here is never resumed.
    unsafe { arch::switch(&raw mut never, a.native.get(), [0; 3], &mut here) };
    unreachable!("g0 of a thread that is no M any more");
}

/// Makes the goroutine of this M, runnable, as if it had run before.
fn root(m: MRef, a: &Attachment) -> Result<GRef, i32> {
    let g = spawn::create_root(no_function, ptr::null_mut(), 0)?;
    spawn::share(g);
    g.flags.set(flags::ROOT | flags::PINNED | flags::BOUND | flags::ATTACHED | a.chosen);
    g.bound_m.set(m.as_ptr());
    m::count_pinned(m, 1);
    m.attachment.set(a);
    m.by_g0.set(m.by_g0.get() | m::ATTACHED);
    g.context.store(a.native.get(), Ordering::Relaxed);
    debug_assert_eq!(g.status(), Status::Runnable);
    Ok(g)
}

/// Stands for the function of a goroutine that began without a function.
unsafe extern "C" fn no_function(_: *mut c_void) {}

/// Ends the calling goroutine, which must be an attached thread's. Returns when all goroutines that
/// are bound to the thread have ended. `-EPERM`: the caller is another goroutine or thread.
pub fn detach() -> i32 {
    let Some(m) = m::current() else { return -libc::EPERM };
    // In the function of `gs_blocking` the thread counts as a plain thread.
    let is_attached = m::current_g().is_some_and(|g| g.has(flags::ATTACHED));
    if !is_attached || !m.blocking.get().is_null() {
        return -libc::EPERM;
    }
    let _errno = KeepErrno::new();
    let attachment = m.attachment.seen().cast_mut();
    // SAFETY: `attach` made the box, and leaked it for `detach`.
    let attachment = unsafe { Box::from_raw(attachment) };
    // SAFETY: this is the goroutine's own stack; g0 comes back to `native`.
    unsafe { goroutine::end_attached(m, attachment.native.as_ptr()) };
    0
}
