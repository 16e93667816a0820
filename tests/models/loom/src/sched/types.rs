//! G, M, P and Node: the real files, and stand-ins for the rest.

#[path = "../../../../../src/sched/types/node.rs"]
pub mod node;
#[path = "../../../../../src/sched/types/p.rs"]
pub mod p;
#[path = "../../../../../src/sched/types/task.rs"]
pub mod task;

pub mod g {
    use core::cell::Cell;
    use core::sync::atomic::AtomicUsize;

    pub struct G {
        pub context: AtomicUsize,
        pub run_link: Cell<usize>,
        /// See `note_wait`, which no test calls.
        pub ready_at: Cell<i64>,
    }

    pub mod flags {
        pub const TIMED: u32 = 1;
    }

    #[derive(Clone, Copy, PartialEq, Eq)]
    pub struct GRef(*const G);

    impl GRef {
        /// # Safety
        /// `g` points to a descriptor.
        pub unsafe fn from_ptr(g: *const G) -> GRef {
            GRef(g)
        }

        pub fn as_ptr(self) -> *const G {
            self.0
        }

        /// No test has a goroutine with flags.
        pub fn set_flag(self, _flag: u32, _is: bool) {}
    }

    impl core::ops::Deref for GRef {
        type Target = G;
        fn deref(&self) -> &G {
            // SAFETY: by the contract of `from_ptr`.
            unsafe { &*self.0 }
        }
    }
}

pub mod m {
    #[repr(align(128))]
    pub struct M;

    /// A number: no test asks a P for its M.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub struct MRef(pub usize);

    impl MRef {
        /// # Safety
        /// None: the number is not used as an address.
        pub unsafe fn from_ptr(m: *const M) -> MRef {
            MRef(m as usize)
        }

        pub fn as_ptr(self) -> *mut M {
            self.0 as *mut M
        }

        pub fn is_runner(self) -> bool {
            self.0 == 0
        }

        pub fn is_attached(self) -> bool {
            false
        }

        pub fn set_between(self, _is: bool) {}
    }
}
