//! The scheduler's files that are checked, and stand-ins for their neighbours.

#[path = "../../../../src/sched/gate.rs"]
pub mod gate;
#[path = "../../../../src/sched/idle.rs"]
pub mod idle;
#[path = "../../../../src/sched/node.rs"]
pub mod node;
#[path = "../../../../src/sched/p.rs"]
pub mod p;
#[path = "../../../../src/sched/ring.rs"]
pub mod ring;
#[path = "../../../../src/sched/task.rs"]
pub mod task;

pub mod limits {
    //! Sizes that make every wrap-around and every full queue happen soon.

    pub const PROCS: usize = 64;
    pub const RING: usize = 4;
    pub const FREE_GS: usize = 1;
    pub const NEWBORNS: usize = 1;
}

pub mod g {
    use core::cell::Cell;
    use core::sync::atomic::AtomicUsize;

    pub struct G {
        pub context: AtomicUsize,
        pub run_link: Cell<usize>,
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

pub mod gang {
    pub struct OfP;

    impl OfP {
        pub fn new() -> OfP {
            OfP
        }
    }
}

pub mod netpoll {
    pub struct OfP;

    impl OfP {
        pub fn new() -> OfP {
            OfP
        }
    }

    pub struct OfNode;

    impl OfNode {
        pub fn new() -> OfNode {
            OfNode
        }
    }
}

pub mod pool {
    use std::marker::PhantomData;

    pub struct Cache<T, const N: usize>(PhantomData<T>);

    impl<T, const N: usize> Cache<T, N> {
        pub fn new() -> Self {
            Cache(PhantomData)
        }
    }

    pub struct Pool<T>(PhantomData<T>);

    impl<T> Pool<T> {
        pub fn new(_memory: Option<usize>) -> Self {
            Pool(PhantomData)
        }
    }
}

pub mod timers {
    pub struct Timers;

    impl Timers {
        pub fn new(_id: u16) -> Timers {
            Timers
        }
    }
}
