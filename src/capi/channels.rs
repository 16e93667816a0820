//! Channels and select.

use super::{EINVAL, gs_deadline};
use crate::arch::resumable;
use crate::chan::{Case, Chan, Op, PerCase, select};
use crate::os::KeepErrno;
use crate::sched::take::boundary::{Entered, Returning};
use crate::sched::types::m;
use core::ffi::{c_int, c_void};

/// A channel. Any number of goroutines and plain threads may use it at once.
pub struct gs_chan {
    _private: [u8; 0],
}

/// gs_case.op: send.
pub const GS_SEND: c_int = 1;
/// gs_case.op: receive.
pub const GS_RECV: c_int = 2;

/// One case of a select.
#[repr(C)]
pub struct gs_case {
    /// NULL: never ready.
    pub ch: *mut gs_chan,
    /// GS_SEND: the element to send. GS_RECV: where to put the received element; NULL: drop it.
    pub elem: *mut c_void,
    /// GS_SEND or GS_RECV.
    pub op: c_int,
    /// Written if this case is chosen: 0, or -EPIPE: the channel is closed.
    pub result: c_int,
}

/// # Safety
/// `c` is null or a channel.
unsafe fn given<'a>(c: *const gs_chan) -> Option<&'a Chan> {
    // SAFETY: null or a channel, which its user frees after the last call on it.
    unsafe { c.cast::<Chan>().as_ref() }
}

/// Makes a channel for elements of elem_size bytes (at most 1 GiB; 0 is allowed) with a buffer for
/// cap elements. With cap 0 the channel is unbuffered: a send waits for its receive. NULL: too
/// large, or no memory. Free it with gs_chan_free. Go's make(chan T, cap).
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn gs_chan_make(elem_size: usize, cap: usize) -> *mut gs_chan {
    let _entered = Entered::new();
    let _errno = KeepErrno::new();
    Chan::new(elem_size, cap).map_or(core::ptr::null_mut(), |c| Box::into_raw(c).cast())
}

/// Frees a channel and its elements. A caller may free the channel as soon as its own last call on
/// the channel has returned, even if a partner is still leaving a call.
///
/// 0; -EBUSY: a goroutine or thread waits in the channel; -EINVAL: NULL.
///
/// # Safety
/// `c` is null or a channel that is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_chan_free(c: *mut gs_chan) -> c_int {
    let _entered = Entered::new();
    // SAFETY: `c` is null or a channel.
    let Some(chan) = (unsafe { given(c) }) else { return EINVAL };
    if chan.is_waited_for() {
        return -libc::EBUSY;
    }
    // SAFETY: the timer is the channel's own.
    unsafe { super::timers::free_timer_of(chan) };
    // SAFETY: `Chan::new` made it, boxed, and the caller says that no thread uses it any more.
    drop(unsafe { Box::from_raw(c.cast::<Chan>()) });
    0
}

/// Sends a copy of the element at elem (ignored if elem_size is 0). Senders are served first come,
/// first served. Go's c <- v.
///
/// 0; -EPIPE: closed; -EAGAIN, -ETIMEDOUT, -ECANCELED: not sent; -EINVAL: c is
/// NULL, or elem is. Goroutines and plain threads.
///
/// # Safety
/// `c` is null or a channel, `elem` null or an element.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_chan_send(
    c: *mut gs_chan,
    elem: *const c_void,
    deadline: gs_deadline,
) -> c_int {
    let entered = Entered::new();
    // SAFETY: `c` is null or a channel, and `elem` an element unless it is null; a call that has to
    // wait has tried, and holds the lock.
    unsafe {
        match given(c) {
            Some(chan) if !elem.is_null() || chan.elem_size() == 0 => {
                match chan.try_send(elem.cast(), deadline) {
                    Some(result) => result,
                    None => wait_in(c, elem.cast_mut(), deadline, Op::Send, entered.continued()),
                }
            }
            _ => EINVAL,
        }
    }
}

/// Receives the next element into elem (NULL: drops the element). Go's v, ok := <-c.
///
/// 0; -EPIPE: closed and drained, *elem is zeroed; -EAGAIN, -ETIMEDOUT,
/// -ECANCELED: nothing received; -EINVAL: c is NULL. Goroutines and plain threads.
///
/// # Safety
/// `c` is null or a channel, `elem` null or room for an element.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_chan_recv(
    c: *mut gs_chan,
    elem: *mut c_void,
    deadline: gs_deadline,
) -> c_int {
    let entered = Entered::new();
    // SAFETY: `c` is null or a channel, and `elem` has room for an element unless it is null; a
    // call that has to wait has tried, and holds the lock.
    unsafe {
        match given(c).map(|chan| chan.try_recv(elem.cast(), deadline)) {
            Some(Some(result)) => result,
            Some(None) => wait_in(c, elem, deadline, Op::Recv, entered.continued()),
            None => EINVAL,
        }
    }
}

/// gs_chan_send if that needs neither to wait nor to wake a receiver. Never switches. For runtimes
/// with a lock that their goroutines hold while they run: such a runtime must release the lock
/// around gs_chan_send, but need not around gs_chan_put.
///
/// 0; -EPIPE: closed; -EAGAIN: not sent, call gs_chan_send; -EINVAL: c is NULL, or elem is.
///
/// # Safety
/// As `gs_chan_send`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_chan_put(c: *mut gs_chan, elem: *const c_void) -> c_int {
    let _entered = Entered::without_giving_way();
    // SAFETY: `c` is null or a channel, and `elem` an element unless it is null.
    unsafe {
        match given(c) {
            Some(chan) if !elem.is_null() || chan.elem_size() == 0 => chan.put(elem.cast()),
            _ => EINVAL,
        }
    }
}

/// gs_chan_recv if that needs neither to wait nor to wake a sender. Never switches: see
/// gs_chan_put.
///
/// 0; -EPIPE: closed and drained, *elem is zeroed; -EAGAIN: nothing received, call gs_chan_recv;
/// -EINVAL: c is NULL.
///
/// # Safety
/// As `gs_chan_recv`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_chan_take(c: *mut gs_chan, elem: *mut c_void) -> c_int {
    let _entered = Entered::without_giving_way();
    // SAFETY: `c` is null or a channel, and `elem` has room for an element unless it is null.
    unsafe { given(c).map_or(EINVAL, |chan| chan.take(elem.cast())) }
}

/// Slow path of a send or receive that must wait. The compiler turns the call of this function into
/// a jump, so it returns straight to the user's code, as `resumable!` expects. If the compiler kept
/// the call, only the processor's prediction of returns would suffer.
///
/// # Safety
/// As [`Chan::wait`]; `from` is that of the caller's [`Entered`].
#[unsafe(naked)]
unsafe extern "C" fn wait_in(
    c: *mut gs_chan,
    elem: *mut c_void,
    deadline: gs_deadline,
    op: Op,
    from: u8,
) -> c_int {
    resumable!(5, wait_in_at)
}

unsafe extern "C" fn wait_in_at(
    chan: &Chan,
    elem: *mut c_void,
    deadline: gs_deadline,
    op: Op,
    from: u8,
    to: usize,
) -> Returning {
    let entered = Entered::again(from, m::current());
    // SAFETY: as for `wait_in`: a try with this `elem` has come before and left the lock held.
    Returning::to(to, entered, || unsafe { chan.wait(op, elem.cast(), deadline) })
}

/// Closes the channel: from now on sends fail, and receives fail once the buffer is empty. Wakes
/// every goroutine and thread that waits in the channel. 0; -EPIPE: the channel is closed already;
/// -EINVAL: NULL. Go's close(c).
///
/// # Safety
/// `c` is null or a channel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_chan_close(c: *mut gs_chan) -> c_int {
    let _entered = Entered::new();
    // SAFETY: `c` is null or a channel.
    unsafe { given(c) }.map_or(EINVAL, Chan::close)
}

/// Returns how many elements are in the channel now; 0 for NULL. Go's len(c).
///
/// # Safety
/// `c` is null or a channel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_chan_len(c: *const gs_chan) -> usize {
    // SAFETY: `c` is null or a channel.
    unsafe { given(c) }.map_or(0, Chan::len)
}

/// Returns how many elements the channel's buffer can hold; 0 for NULL. Go's cap(c).
///
/// # Safety
/// `c` is null or a channel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_chan_cap(c: *const gs_chan) -> usize {
    // SAFETY: `c` is null or a channel.
    unsafe { given(c) }.map_or(0, Chan::capacity)
}

/// Performs one of n operations. If several can be done at once, gs_select chooses one at random,
/// each with the same chance. If none can, gs_select waits, and performs the first that can be
/// done. cases[i].result is the operation's result. With n = 0, or only NULL channels, gs_select
/// waits for the deadline. Go's select.
///
/// The number i of the case; -EAGAIN, -ETIMEDOUT, -ECANCELED: none done; -EINVAL: cases is NULL, an
/// op is unknown, or an element to send is NULL; -ENOMEM: none done (more than 8 cases need memory,
/// and so does a deadline). Goroutines and plain threads.
///
/// # Safety
/// `cases` are n cases, each as for the single operation.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn gs_select(cases: *mut gs_case, n: usize, deadline: gs_deadline) -> c_int {
    resumable!(3, select_at)
}

unsafe extern "C" fn select_at(
    cases: *mut gs_case,
    n: usize,
    deadline: gs_deadline,
    to: usize,
) -> Returning {
    let entered = Entered::for_select();
    entered.returns_to(to);
    // No closure, which the compiler would call.
    // SAFETY: `cases` are those of `gs_select`.
    let result = unsafe { select_of(cases, n, deadline) };
    Returning::with(result, entered)
}

/// # Safety
/// As [`gs_select`].
#[inline(always)]
unsafe fn select_of(cases: *mut gs_case, n: usize, deadline: gs_deadline) -> c_int {
    if (cases.is_null() && n > 0) || n > c_int::MAX as usize {
        return EINVAL;
    }
    let given: &mut [gs_case] = match n {
        0 => &mut [],
        // SAFETY: not null, so they are n cases.
        _ => unsafe { core::slice::from_raw_parts_mut(cases, n) },
    };
    let mut valid = true;
    let mut checked = PerCase::new();
    if let Err(e) = checked.keep_room(n) {
        return e;
    }
    let checked = checked.fill(n, |i, place| {
        // SAFETY: the channel of a case is null or one.
        let (checked, makes_sense) = unsafe { case(&given[i]) };
        valid &= makes_sense;
        place.write(checked)
    });
    if !valid {
        return EINVAL;
    }
    // SAFETY: the elements are as for single operations; `case` has refused those that are null.
    match unsafe { select(checked, deadline) } {
        Ok((i, result)) => {
            given[i].result = result;
            i as c_int
        }
        Err(e) => e,
    }
}

/// The given case, and whether it is valid.
///
/// # Safety
/// The case's channel is null or a channel.
#[inline(always)]
unsafe fn case<'a>(c: &gs_case) -> (Case<'a>, bool) {
    // SAFETY: `c.ch` is null or a channel.
    let chan = unsafe { given(c.ch) };
    let op = if c.op == GS_SEND { Op::Send } else { Op::Recv };
    let nothing_to_send =
        op == Op::Send && c.elem.is_null() && chan.is_some_and(|c| c.elem_size() > 0);
    let makes_sense = (c.op == GS_SEND || c.op == GS_RECV) && !nothing_to_send;
    (Case { chan, op, elem: c.elem.cast() }, makes_sense)
}
