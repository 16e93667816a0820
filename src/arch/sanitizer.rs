//! Notices for AddressSanitizer and LeakSanitizer, if the program is built with them.
//! AddressSanitizer must know which stack a thread is on, or it reports C++ exceptions on a
//! goroutine's stack as errors. LeakSanitizer must know all stacks, or it reports memory as leaked
//! to which only a waiting goroutine has a pointer. `sanitizer/common_interface_defs.h` and
//! `sanitizer/lsan_interface.h` describe the functions.

use core::ffi::{CStr, c_void};
use core::mem::transmute;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

type Start = unsafe extern "C" fn(save: *mut *mut c_void, bottom: *const c_void, size: usize);
type Finish = unsafe extern "C" fn(*mut c_void, *mut *const c_void, *mut usize);
type Range = unsafe extern "C" fn(*const c_void, usize);

static ON: AtomicBool = AtomicBool::new(false);
static START: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static FINISH: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static UNPOISON: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static SEARCH: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static FORGET: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

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
    SEARCH.store(symbol(c"__lsan_register_root_region"), Ordering::Relaxed);
    FORGET.store(symbol(c"__lsan_unregister_root_region"), Ordering::Relaxed);
}

/// Whether there is a sanitizer to notify.
#[inline(always)]
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// A context's stack: lowest address, and size in bytes.
pub type Bounds = (usize, usize);

/// Announces that the running context is about to switch to the stack `to`. Returns the value that
/// the context must pass to [`arrived`] when it resumes. `for_ever`: the context never resumes.
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

/// Announces that a switch has resumed the running context. `saved`: the context's value of
/// [`leaving`]; null when the context begins.
#[cold]
pub fn arrived(saved: *mut c_void) {
    // SAFETY: as in `leaving`.
    unsafe {
        let finish: Finish = transmute(FINISH.load(Ordering::Relaxed));
        finish(saved, ptr::null_mut(), ptr::null_mut());
    }
}

/// Announces that the frames in this range are gone without having returned.
#[cold]
pub fn abandon((lo, size): Bounds) {
    // SAFETY: as in `leaving`.
    unsafe {
        let unpoison: Range = transmute(UNPOISON.load(Ordering::Relaxed));
        unpoison(lo as *const c_void, size);
    }
}

/// Has LeakSanitizer search these stacks, which are readable as a whole, for pointers until
/// [`forget`]. (gcc 12's takes about 0.5 ms for each stack at the end of the program, because it
/// reads `/proc/self/maps` each time.)
pub fn search(stacks: impl Iterator<Item = Bounds>) {
    for_leaks(&SEARCH, stacks);
}

/// Undoes [`search`], before the stacks are unmapped.
pub fn forget(stacks: impl Iterator<Item = Bounds>) {
    for_leaks(&FORGET, stacks);
}

fn for_leaks(f: &AtomicPtr<c_void>, stacks: impl Iterator<Item = Bounds>) {
    let f = f.load(Ordering::Relaxed);
    if f.is_null() {
        return;
    }
    // SAFETY: `find_by_name` has found the function, and this is its type.
    let f: Range = unsafe { transmute(f) };
    // SAFETY: the stacks are readable, as `search` says, and `forget` gets the ranges that `search`
    // got.
    stacks.for_each(|(lo, size)| unsafe { f(lo as *const c_void, size) });
}
