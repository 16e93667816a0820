//! What a thread that runs goroutines is doing, for other threads to look at.

use crate::goroutine::object::Goroutine;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering};

/// What a thread that runs goroutines of Python is doing. Only that thread changes it.
pub struct Activity {
    /// The goroutine that runs Python code there; null while none does.
    current: AtomicPtr<Goroutine>,
    /// Goes up whenever a goroutine enters Python and at each checkpoint.
    tick: AtomicU32,
    /// The thread, as of gettid(2).
    id: AtomicI32,
}

impl Activity {
    pub const fn new() -> Activity {
        Activity {
            current: AtomicPtr::new(ptr::null_mut()),
            tick: AtomicU32::new(0),
            id: AtomicI32::new(0),
        }
    }

    /// Notes the calling thread as the one whose activity this is.
    pub fn note_thread(&self) {
        // SAFETY: no preconditions.
        self.id.store(unsafe { libc::gettid() }, Ordering::Relaxed);
    }

    /// The thread, as of gettid(2).
    pub fn id(&self) -> i32 {
        self.id.load(Ordering::Relaxed)
    }

    /// Notes that the thread gets on.
    #[inline(always)]
    pub fn tick(&self) {
        self.tick.store(self.tick.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// How often the thread has got on, modulo 2^32.
    #[inline(always)]
    pub fn ticks(&self) -> u32 {
        self.tick.load(Ordering::Relaxed)
    }

    /// Where the goroutine is noted that runs Python code there.
    #[inline(always)]
    pub fn place_of_current(&self) -> &AtomicPtr<Goroutine> {
        &self.current
    }

    /// The goroutine that runs Python code there; null while none does.
    #[inline(always)]
    pub fn current(&self) -> *mut Goroutine {
        self.place_of_current().load(Ordering::Relaxed)
    }

    /// Sets the goroutine that runs Python code there; null: none does.
    #[inline(always)]
    pub fn set_current(&self, g: *mut Goroutine) {
        self.current.store(g, Ordering::Relaxed);
    }

    /// For other threads: the tick at which a goroutine runs Python code there, or a call that gave
    /// the GIL back and is no wait of the library's. `None`: none does.
    pub fn busy_at(&self) -> Option<u32> {
        let is_busy = !self.current().is_null();
        is_busy.then(|| self.ticks())
    }

    /// For other threads: whether this goroutine runs Python code there.
    pub fn runs(&self, g: &Goroutine) -> bool {
        ptr::eq(self.current(), g)
    }
}
