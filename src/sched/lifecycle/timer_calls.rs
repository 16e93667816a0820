//! Timers that call a function: each call is a goroutine of its own.

use super::spawn;
use crate::sched::take::boundary::Entered;
use crate::sched::types::g::{GRef, flags};
use crate::sched::types::m;
use crate::sched::types::runtime::Guest;
use crate::sched::types::task::GoFn;
use crate::sched::wait::timers::queue::{After, Timer};
use core::ffi::c_void;

/// What the goroutine of a timer runs.
unsafe extern "C" fn call(timer: *mut c_void) {
    // SAFETY: `count_call` has counted a reference for this call, which `forget` gives back.
    let (f, arg) = unsafe { (*timer.cast::<Timer>()).function() };
    {
        // It is the library's code: it is not preempted here.
        let _entered = Entered::new();
        let g = m::current_g().expect("a goroutine calls this");
        g.set_flag(flags::TIMER, true);
    }
    // SAFETY: the user gave the function for this argument.
    unsafe { f(arg) };
}

/// Makes the goroutine of a call that was counted. False: there is no memory, or the runtime is being ended. A shutdown
/// that has seen no goroutine ends the threads, and waits for none that begins after that.
fn spawn_call(timer: *const Timer) -> bool {
    let Some(_inside) = Guest::try_enter() else { return false };
    spawn::spawn(call, timer.cast_mut().cast(), 0) == 0
}

/// A goroutine with the flag `TIMER` ends, in whatever way. Others may have a reference to the goroutine, and ask for its
/// argument, so the timer stays until [`forget`].
pub fn call_ends(g: GRef) {
    // SAFETY: its argument is the timer, with the reference of the call.
    unsafe { &*timer_of(g) }.call_ended();
}

/// The descriptor of a goroutine with the flag `TIMER`, which has ended, is about to be recycled.
pub fn forget(g: GRef) {
    // SAFETY: the reference of the call, which ends now.
    unsafe { Timer::release(timer_of(g)) };
}

fn timer_of(g: GRef) -> *const Timer {
    g.arg.get().cast_const().cast()
}

/// The argument that a goroutine's function has for the user.
///
/// # Safety
/// The descriptor of the goroutine with this function and argument is not recycled.
pub unsafe fn argument(f: Option<GoFn>, arg: *mut c_void) -> *mut c_void {
    if f.map(|f| f as usize) != Some(call as *const () as usize) {
        return arg;
    }
    // SAFETY: the call's reference keeps the timer until the descriptor is recycled.
    unsafe { (*arg.cast::<Timer>()).function().1 }
}

impl Timer {
    /// A timer that isn't started, and calls `f(arg)` in a goroutine each time it fires. As `new`.
    pub fn of_function(f: GoFn, arg: *mut c_void) -> Option<*const Timer> {
        Timer::new(|_, _| After::Call(spawn_call), [f as usize, arg as usize])
    }

    /// Its function and argument, if it has been made with one.
    fn function(&self) -> (GoFn, *mut c_void) {
        // SAFETY: only those of `of_function` are asked, which has put a GoFn there.
        (unsafe { core::mem::transmute::<usize, GoFn>(self.data[0]) }, self.data[1] as *mut c_void)
    }
}
