//! Timers and the channels that they send on.

use super::{EINVAL, gs_chan, gs_deadline, gs_duration, gs_fn};
use crate::chan::Chan;
use crate::sched::take::boundary::Entered;
use crate::time::{self, After, Timer};
use core::ffi::{c_int, c_void};
use core::ptr;

/// A timer that runs a function.
pub struct gs_timer {
    _private: [u8; 0],
}

/// # Safety
/// `t` is null or a timer.
unsafe fn given<'a>(t: *mut gs_timer) -> Option<&'a Timer> {
    // SAFETY: null, or from `gs_timer_start` and not freed, says the caller.
    unsafe { t.cast::<Timer>().as_ref() }
}

/// Runs f(arg) in a goroutine of its own after ns nanoseconds (ns <= 0: now). If several timers are
/// due at the same time, their functions begin in any order. A signal may preempt f: if its work
/// must not be preempted, let f spawn a goroutine with GS_SPAWN_NOSIGNAL for it.
///
/// NULL: f is NULL, or no memory. Free it with gs_timer_free. Goroutines and plain threads. Go's
/// time.AfterFunc.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn gs_timer_start(ns: gs_duration, f: gs_fn, arg: *mut c_void) -> *mut gs_timer {
    let _entered = Entered::new();
    match f {
        Some(f) => {
            time::after_func(ns, f, arg).map_or(ptr::null_mut(), |timer| timer.cast_mut().cast())
        }
        None => ptr::null_mut(),
    }
}

/// Stops the timer. 1: the timer was pending, and won't fire; 0: the timer had fired or was stopped
/// already (its function may still be running: see gs_timer_stop_wait); -EINVAL: NULL. Go's
/// Timer.Stop.
///
/// # Safety
/// `t` is null or a timer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_timer_stop(t: *mut gs_timer) -> c_int {
    let _entered = Entered::new();
    // SAFETY: null or a timer, says the caller.
    unsafe { given(t) }.map_or(EINVAL, |t| c_int::from(t.stop()))
}

/// Stops the timer and waits until its function isn't running: then the function's data can be
/// freed. If the function or another thread starts the timer again meanwhile, that start is stopped
/// too. Any number of goroutines and threads may wait for one timer.
///
/// 1: the timer was pending, and won't fire; 0: it was not pending; -EDEADLK: called by the timer's
/// own function (nothing has changed); -EAGAIN, -ETIMEDOUT, -ECANCELED: the timer is stopped, but
/// its function still runs; -EINVAL: NULL. Goroutines and plain threads.
///
/// # Safety
/// `t` is null or a timer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_timer_stop_wait(t: *mut gs_timer, deadline: gs_deadline) -> c_int {
    let _entered = Entered::new();
    // SAFETY: null or a timer, says the caller.
    let Some(t) = (unsafe { given(t) }) else { return EINVAL };
    t.stop_and_wait(deadline).map_or_else(|e| e, c_int::from)
}

/// Makes the timer fire ns nanoseconds from now instead (ns <= 0: now). 1: the timer was pending;
/// 0: the timer had fired or was stopped, and will fire again; -EINVAL: NULL; -ENOMEM, -EAGAIN: the
/// timer is as before. Go's Timer.Reset.
///
/// # Safety
/// `t` is null or a timer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_timer_reset(t: *mut gs_timer, ns: gs_duration) -> c_int {
    let _entered = Entered::new();
    // SAFETY: null or a timer, says the caller.
    let Some(t) = (unsafe { given(t) }) else { return EINVAL };
    time::reset(t, ns).map_or_else(|e| e, c_int::from)
}

/// Stops a timer and frees it. 0; -EINVAL: NULL.
///
/// # Safety
/// `t` is null or a timer that is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_timer_free(t: *mut gs_timer) -> c_int {
    let _entered = Entered::new();
    if t.is_null() {
        return EINVAL;
    }
    // SAFETY: a timer that the caller uses no more.
    unsafe { Timer::free(t.cast::<Timer>()) };
    0
}

/// Makes a channel of capacity 1 on which the time (int64_t, ns, as gs_now) is sent after ns
/// nanoseconds (ns <= 0: now). Free the channel with gs_chan_free, before or after the time is
/// sent. NULL: no memory. Go's time.After.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn gs_after(ns: gs_duration) -> *mut gs_chan {
    let _entered = Entered::new();
    timed_chan(ns, 0)
}

/// Makes a channel of capacity 1 on which the time (int64_t, ns) is sent every ns nanoseconds; a
/// tick that finds the channel full is dropped. NULL: ns <= 0, or no memory. End the ticker with
/// gs_ticker_stop and gs_chan_free, or with gs_chan_free alone. Go's time.NewTicker.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn gs_ticker_start(ns: gs_duration) -> *mut gs_chan {
    let _entered = Entered::new();
    if ns <= 0 { ptr::null_mut() } else { timed_chan(ns, ns) }
}

/// Stops the ticks. The channel stays, and is not closed. A tick that is already in the channel
/// stays there, as in Go before 1.23. 0; -EINVAL: NULL, or not a channel of gs_ticker_start or
/// gs_after. Go's Ticker.Stop.
///
/// # Safety
/// `c` is null or a channel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_ticker_stop(c: *mut gs_chan) -> c_int {
    let _entered = Entered::new();
    // SAFETY: null or a channel, says the caller.
    let timer = unsafe { c.cast::<Chan>().as_ref() }.map_or(ptr::null(), |c| c.timer.get());
    // SAFETY: a channel's timer lives as long as the channel.
    match unsafe { timer.cast::<Timer>().as_ref() } {
        Some(t) => {
            t.stop();
            0
        }
        None => EINVAL,
    }
}

fn timed_chan(ns: gs_duration, period: gs_duration) -> *mut gs_chan {
    let Some(chan) = Chan::new(size_of::<i64>(), 1) else { return ptr::null_mut() };
    let chan = Box::into_raw(chan);
    let Ok(timer) = time::start(ns, period, send_time, [chan as usize, 0]) else {
        // SAFETY: the channel has just been made, and no other thread knows it.
        drop(unsafe { Box::from_raw(chan) });
        return ptr::null_mut();
    };
    // SAFETY: only the timer knows the channel yet, and it doesn't look there.
    unsafe { (*chan).timer.set(timer.cast()) };
    chan.cast()
}

/// Called when a timer of `timed_chan` fires, with the timer's lock held. So the channel exists:
/// `free_timer_of` takes that lock before the channel is freed.
fn send_time(timer: &Timer, now: i64) -> After {
    // SAFETY: the timer's lock is held, so its channel has not been freed.
    let chan = unsafe { &*(timer.data[0] as *const Chan) };
    // SAFETY: the channel is one of `timed_chan`'s, whose elements are of this type. A full
    // channel means that a tick is dropped.
    match unsafe { chan.offer((&raw const now).cast()) } {
        Some(receiver) => After::Ready(receiver),
        None => After::Nothing,
    }
}

/// Frees the timer, if any, of a channel that is about to be freed.
///
/// # Safety
/// The channel is not used any more.
pub unsafe fn free_timer_of(chan: &Chan) {
    let timer = chan.timer.replace(ptr::null());
    if !timer.is_null() {
        // SAFETY: the channel's own, made by `timed_chan`.
        unsafe { Timer::free(timer.cast::<Timer>()) };
    }
}
