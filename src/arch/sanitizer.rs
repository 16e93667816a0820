//! Notices for AddressSanitizer, if the program is built with it. The sanitizer must know which stack a thread is on,
//! or it takes a C++ exception on a goroutine's stack for a mistake. `sanitizer/common_interface_defs.h` describes the
//! functions.

use core::ffi::{CStr, c_void};
use core::mem::transmute;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

type Start = unsafe extern "C" fn(save: *mut *mut c_void, bottom: *const c_void, size: usize);
type Finish = unsafe extern "C" fn(*mut c_void, *mut *const c_void, *mut usize);
type Unpoison = unsafe extern "C" fn(*const c_void, usize);

static ON: AtomicBool = AtomicBool::new(false);
static START: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static FINISH: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static UNPOISON: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Finds the sanitizer's functions by name. Called before there are goroutines.
pub fn find_by_name(symbol: impl Fn(&CStr) -> *mut c_void) {
    let found = [
        (&START, c"__sanitizer_start_switch_fiber"),
        (&FINISH, c"__sanitizer_finish_switch_fiber"),
        (&UNPOISON, c"__asan_unpoison_memory_region"),
    ]
    .map(|(place, name)| {
        let f = symbol(name);
        place.store(f, Ordering::Relaxed);
        !f.is_null()
    });
    ON.store(found == [true; 3], Ordering::Relaxed);
}

/// Whether there is a sanitizer to notify.
#[inline(always)]
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Where a context's stack is: its lowest address and its size.
pub type Bounds = (usize, usize);

/// The running context is about to switch to the stack `to`. Returns what the context must pass to [`arrived`] when it
/// resumes. `for_ever`: it never will.
#[cold]
pub fn leaving(to: Bounds, for_ever: bool) -> *mut c_void {
    let mut saved = ptr::null_mut();
    let save = if for_ever { ptr::null_mut() } else { &raw mut saved };
    // SAFETY: `find_by_name` has found the function, and this is its type.
    unsafe {
        let start: Start = transmute(START.load(Ordering::Relaxed));
        start(save, to.0 as *const c_void, to.1);
    }
    saved
}

/// A switch has resumed the running context. `saved`: what [`leaving`] gave it; null when the context begins.
#[cold]
pub fn arrived(saved: *mut c_void) {
    // SAFETY: as in `leaving`.
    unsafe {
        let finish: Finish = transmute(FINISH.load(Ordering::Relaxed));
        finish(saved, ptr::null_mut(), ptr::null_mut());
    }
}

/// The frames in this range are gone without having returned.
#[cold]
pub fn abandon((lo, size): Bounds) {
    // SAFETY: as in `leaving`.
    unsafe {
        let unpoison: Unpoison = transmute(UNPOISON.load(Ordering::Relaxed));
        unpoison(lo as *const c_void, size);
    }
}
