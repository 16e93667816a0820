//! Notices for ThreadSanitizer, which sees a goroutine as a fiber: something with a stack
//! of its own that runs on one thread after the other. Only in a library that is built with
//! it (`--cfg gosched_tsan`, see tools/tsan); else there is nothing here.

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

    /// What the sanitizer knows of a goroutine, or of a thread's own stack. All bytes zero:
    /// nothing yet.
    pub struct Fiber(Cell<*mut c_void>);

    impl Fiber {
        pub const fn new() -> Fiber {
            Fiber(Cell::new(core::ptr::null_mut()))
        }

        /// The calling thread's own stack.
        pub fn bind_to_thread(&self) {
            // SAFETY: no preconditions.
            self.0.set(unsafe { __tsan_get_current_fiber() });
        }

        /// A function begins on an empty stack: the calls that have ended there without
        /// returning are forgotten.
        pub fn begin_anew(&self) {
            // SAFETY: made here, and not running: its stack is empty.
            unsafe {
                let old = self.0.replace(__tsan_create_fiber(0));
                if !old.is_null() {
                    __tsan_destroy_fiber(old);
                }
            }
        }

        /// The thread is about to switch to it. What was done before, on this thread, comes
        /// before all that it does.
        #[inline(always)]
        pub fn switch_to(&self) {
            // SAFETY: at rest, and resumed by the caller alone.
            unsafe { __tsan_switch_to_fiber(self.0.get(), 0) };
        }
    }
}

#[cfg(not(gosched_tsan))]
mod notices {
    /// See the other one.
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
