//! The state of C++ exceptions, which belongs to the goroutine.
//!
//! A goroutine that is left takes its exceptions along, from all copies of the C++ runtime
//! (`src/cxx`), and gets them back on the thread where it goes on. `EXCEPTIONS.md` has the
//! protocol.

use super::hooks;
use crate::cxx::{Get, Globals, Saved, Unsaved};
use crate::os::futex;
use crate::sched::run::ready;
use crate::sched::take::{blocking, boundary};
use crate::sched::types::m::{self, MRef};
use crate::sched::types::runtime::rt;
use core::ptr;
use core::sync::atomic::Ordering;

impl Saved {
    /// Gives the goroutine its exceptions back, on the thread where it runs now. May switch.
    pub fn restore(mut self) {
        for (get, globals) in self.drain() {
            put(get, globals);
        }
    }
}

/// Gives the running goroutine its exceptions of one copy of the C++ runtime back.
fn put(get: Get, globals: Globals) {
    loop {
        // SAFETY: `restore` is called on a goroutine.
        let m = unsafe { m::must_current() };
        let mut at = m.cxa.place_of(&rt().copies, get);
        if at.is_none() {
            // `get` may allocate from the C library's heap, as the goroutine's own code would.
            at = boundary::outside(|| Some(get()));
        }
        // The goroutine may have come back on another thread.
        // SAFETY: `restore` is called on a goroutine.
        if unsafe { m::must_current() } == m
            && let Some(at) = at
        {
            // SAFETY: `at` points to this thread's words.
            unsafe { at.write(globals) };
            return;
        }
    }
}

impl Unsaved {
    /// Waits, on the resumed goroutine, until g0, which has this record's address, is done with the
    /// record. May switch.
    fn wait(&self) {
        // Acquire: pairs with the Release in `save_unsaved`.
        while self.is_saved.load(Ordering::Acquire) == 0 {
            // Outside, so that other goroutines may have the P: g0 may wait for one of them.
            boundary::outside(|| futex::wait(&self.is_saved, 0, -1));
        }
    }
}

/// Leaves the running goroutine by `switch`, and takes its exceptions along. The argument of
/// `switch` says whether it must go to g0. Returns the M on which the goroutine goes on.
pub fn carry(m: MRef, switch: impl FnOnce(bool) -> MRef) -> MRef {
    if !m.blocking.get().is_null() {
        // In `gs_blocking` the goroutine keeps the thread, for the function on g0.
        return switch(false);
    }
    if m.cxa.knows_all(&rt().copies) {
        let mut saved = Saved::new();
        m.cxa.take(&mut saved);
        let m = switch(false);
        if saved.count == 0 {
            return m;
        }
        saved.restore();
    } else {
        let unsaved = Unsaved::new();
        m.cxa.unsaved.set(&raw const unsaved);
        switch(true);
        unsaved.wait();
        unsaved.saved.into_inner().restore();
    }
    // SAFETY: the goroutine has been resumed, so a goroutine runs this.
    unsafe { m::must_current() }
}

/// Saves the exceptions of the goroutine that has been left, if that goroutine could not do so. On
/// g0.
#[inline(always)]
pub fn save_left(m: MRef) {
    if !m.cxa.unsaved.get().is_null() {
        save_unsaved(m);
    }
}

#[cold]
fn save_unsaved(m: MRef) {
    let unsaved = m.cxa.unsaved.replace(ptr::null());
    // The stash is emptied first: the P may be gone afterwards.
    hooks::leave_entered(m);
    if let Some(task) = m.stash.take() {
        ready::put_back(m.p(), task);
    }
    blocking::off_p(m, || {
        // SAFETY: the goroutine doesn't return from `Unsaved::wait` before it is told.
        let unsaved = unsafe { &*unsaved };
        m.cxa.find_all(&rt().copies);
        // SAFETY: the goroutine reads `saved` only after `is_saved` is set, below.
        m.cxa.take(unsafe { &mut *unsaved.saved.get() });
        let note = &raw const unsaved.is_saved;
        // Release: pairs with the Acquire in `wait`. The record may be gone from here on.
        unsaved.is_saved.store(1, Ordering::Release);
        futex::wake(note, 1);
    });
}

/// Drops the exceptions of a goroutine that ends in the middle of its function. Returns the M on
/// which the goroutine goes on.
pub fn forget(m: MRef) -> MRef {
    if m.cxa.is_clean() {
        return m;
    }
    let mut lost = Saved::new();
    if m.cxa.knows_all(&rt().copies) {
        m.cxa.take(&mut lost);
    } else {
        blocking::leave_exceptions(m);
    }
    // SAFETY: the goroutine that ends runs this.
    unsafe { m::must_current() }
}
