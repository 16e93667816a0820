//! Deadlines, sleeping, and timers that call a function.

use crate::os::time;
use crate::sched::run::park::{FOREVER, sleep_to};
use crate::sched::types::runtime::Guest;
use crate::sched::types::task::GoFn;
use crate::sched::types::waiter::{Cause, Why};

pub use crate::sched::wait::timers::queue::{After, Timer};
use crate::sched::wait::timers::queue::{Fire, NoMemory};
use core::ffi::c_void;

/// The time `n` units of `unit` ns from now: at least 1, at most `i64::MAX`.
pub fn after(n: i64, unit: i64) -> i64 {
    time::now().saturating_add(n.saturating_mul(unit)).max(1)
}

/// Sleeps for `ns`; returns at once if `ns <= 0`. 0, `-ECANCELED`, or `-ENOMEM`.
pub fn sleep(ns: i64) -> i32 {
    if ns <= 0 {
        return 0;
    }
    park_until(after(ns, 1))
}

/// Sleeps until the deadline; `FOREVER`: until a cancel. Errors as [`sleep`].
pub fn sleep_until(deadline: i64) -> i32 {
    if deadline != FOREVER && deadline <= time::now() {
        return 0;
    }
    park_until(deadline)
}

/// Parks until the deadline. Whether it has passed is not checked here.
#[inline(always)]
fn park_until(deadline: i64) -> i32 {
    match sleep_to(deadline, Why::Sleep) {
        Cause::Cancelled => -libc::ECANCELED,
        Cause::NoMemory => -libc::ENOMEM,
        Cause::Woken | Cause::TimedOut => 0,
    }
}

/// Calls `f` with this thread inside the runtime, which is started if need be. Fails as
/// [`Guest::enter`].
fn inside<R>(f: impl FnOnce() -> R) -> Result<R, i32> {
    let _inside = Guest::enter_or_start()?;
    Ok(f())
}

/// The time at which a timer of `ns` that is started now fires; not before now if `ns` is negative.
fn from_now(ns: i64) -> i64 {
    after(ns.max(0), 1)
}

/// A timer that runs `f(arg)` in a goroutine of its own after `ns`. Fails as [`start`].
/// AfterFunc.
pub fn after_func(ns: i64, f: GoFn, arg: *mut c_void) -> Result<*const Timer, i32> {
    begin(Timer::of_function(f, arg), ns, 0)
}

/// A timer that fires after `ns`, and then each `period` ns (0: once). `-ENOMEM`, or what
/// [`Guest::enter`] fails with.
pub fn start(ns: i64, period: i64, fire: Fire, data: [usize; 2]) -> Result<*const Timer, i32> {
    begin(Timer::new(fire, data), ns, period)
}

/// Starts a timer that has just been made.
fn begin(timer: Option<*const Timer>, ns: i64, period: i64) -> Result<*const Timer, i32> {
    let timer = timer.ok_or(-libc::ENOMEM)?;
    // SAFETY: the timer has just been made and is not shared yet.
    let started = inside(|| unsafe { &*timer }.start(from_now(ns), period));
    match started.map(|r| r.map_err(|NoMemory| -libc::ENOMEM)) {
        Ok(Ok(_)) => Ok(timer),
        Err(e) | Ok(Err(e)) => {
            // SAFETY: it could not be started, so the caller alone has it.
            unsafe { Timer::free(timer) };
            Err(e)
        }
    }
}

/// Makes a timer fire after `ns` instead. True: the timer was pending. Fails as [`start`]; then the
/// timer is as before.
pub fn reset(timer: &Timer, ns: i64) -> Result<bool, i32> {
    inside(|| timer.start(from_now(ns), 0).map_err(|NoMemory| -libc::ENOMEM))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_saturate_and_are_never_below_one() {
        assert_eq!(after(i64::MAX, 1_000_000), i64::MAX);
        assert_eq!(after(i64::MIN, 1_000_000), 1);
        let now = time::now();
        assert!((now..now + 1_000_000_000).contains(&(after(1, 1_000_000) - 1_000_000)));
    }
}
