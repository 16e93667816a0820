//! Timers that call a function: each call is a goroutine of its own.

use super::spawn;
use crate::sched::take::boundary::Entered;
use crate::sched::types::g::{GRef, flags};
use crate::sched::types::m;
use crate::sched::types::runtime::Guest;
use crate::sched::types::task::GoFn;
use crate::sched::wait::timers::queue::{After, Timer};
use core::ffi::c_void;

/// The function of a timer's goroutine.
unsafe extern "C" fn call(timer: *mut c_void) {
    // SAFETY: `count_call` has counted a reference for this call, which `forget` gives back.
    let (f, arg) = unsafe { (*timer.cast::<Timer>()).function() };
    {
        // Entered, so that the goroutine isn't preempted in the library's code.
        let _entered = Entered::new();
        let g = m::current_g().expect("a goroutine calls this");
        g.set_flag(flags::TIMER, true);
    }
    // SAFETY: the user gave the function for this argument.
    unsafe { f(arg) };
}

/// Spawns the goroutine of a counted call. False: there is no memory, or the runtime is being
/// ended. A shutdown that has seen no goroutine ends the threads, and waits for no goroutine that
/// begins after that.
fn spawn_call(timer: *const Timer) -> bool {
    let Some(_inside) = Guest::try_enter() else { return false };
    spawn::spawn(call, timer.cast_mut().cast(), 0) == 0
}

/// Notes the end, in whatever way, of a goroutine with the flag `TIMER`. Others may have a
/// reference to the goroutine, and ask for its argument, so the timer stays until [`forget`].
pub fn call_ends(g: GRef) {
    // SAFETY: the goroutine's argument is the timer, with the reference of the call.
    unsafe { &*timer_of(g) }.call_ended();
}

/// Releases the timer before the descriptor of an ended goroutine with the flag `TIMER` is
/// recycled.
pub fn forget(g: GRef) {
    // SAFETY: the call's reference, which is not used after this.
    unsafe { Timer::release(timer_of(g)) };
}

fn timer_of(g: GRef) -> *const Timer {
    g.arg.get().cast_const().cast()
}

/// The argument of a goroutine's function, as the user gave it.
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
    /// Makes a timer, not started, that calls `f(arg)` in a goroutine each time it fires. Fails as
    /// `new`.
    pub fn of_function(f: GoFn, arg: *mut c_void) -> Option<*const Timer> {
        Timer::new(|_, _| After::Call(spawn_call), [f as usize, arg as usize])
    }

    /// The function and argument of a timer that [`Timer::of_function`] made.
    fn function(&self) -> (GoFn, *mut c_void) {
        // SAFETY: only timers made by `of_function` are asked, which has put a `GoFn` there.
        (unsafe { core::mem::transmute::<usize, GoFn>(self.data[0]) }, self.data[1] as *mut c_void)
    }
}
