//! Notices for ThreadSanitizer, to which a goroutine is a fiber: a context with a stack of its own
//! that runs on one thread after another. Without `--cfg gosched_tsan` (see tools/tsan) these
//! functions do nothing.

#[cfg(gosched_tsan)]
mod notices {
    use core::cell::Cell;
    use core::ffi::c_void;

    unsafe extern "C" {
        fn __tsan_get_current_fiber() -> *mut c_void;
        fn __tsan_create_fiber(flags: u32) -> *mut c_void;
        fn __tsan_destroy_fiber(fiber: *mut c_void);
        fn __tsan_switch_to_fiber(fiber: *mut c_void, flags: u32);
    }

    /// The sanitizer's fiber for a goroutine, or for a thread's own stack. All bytes zero: none
    /// yet.
    pub struct Fiber(Cell<*mut c_void>);

    impl Fiber {
        pub const fn new() -> Fiber {
            Fiber(Cell::new(core::ptr::null_mut()))
        }

        /// Makes this the fiber of the calling thread's own stack.
        pub fn bind_to_thread(&self) {
            // SAFETY: no preconditions.
            self.0.set(unsafe { __tsan_get_current_fiber() });
        }

        /// Forgets the calls that have ended on this stack without returning: a function begins on
        /// the empty stack.
        pub fn begin_anew(&self) {
            // SAFETY: the fiber was made here, and doesn't run, because its stack is empty.
            unsafe {
                let old = self.0.replace(__tsan_create_fiber(0));
                if !old.is_null() {
                    __tsan_destroy_fiber(old);
                }
            }
        }

        /// Announces a switch of the thread to this fiber: everything that the thread has done
        /// happens before everything that the fiber does next.
        #[inline(always)]
        pub fn switch_to(&self) {
            // SAFETY: the fiber is at rest, and only the caller resumes it.
            unsafe { __tsan_switch_to_fiber(self.0.get(), 0) };
        }
    }
}

#[cfg(not(gosched_tsan))]
mod notices {
    /// The `Fiber` of a library without the sanitizer: nothing.
    pub struct Fiber;

    impl Fiber {
        pub const fn new() -> Fiber {
            Fiber
        }

        #[inline(always)]
        pub fn bind_to_thread(&self) {}

        #[inline(always)]
        pub fn begin_anew(&self) {}

        #[inline(always)]
        pub fn switch_to(&self) {}
    }
}

pub use notices::Fiber;
