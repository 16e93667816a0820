//! The scheduler's files that are checked, and stand-ins for their neighbours.

#[path = "../../../../src/sched/idle.rs"]
pub mod idle;
#[path = "../../../../src/sched/node.rs"]
pub mod node;
#[path = "../../../../src/sched/p.rs"]
pub mod p;
#[path = "../../../../src/sched/ring.rs"]
pub mod ring;

pub mod limits {
    //! Sizes that make every wrap-around and every full queue happen soon.

    pub const PROCS: usize = 64;
    pub const RING: usize = 4;
}

pub mod g {
    pub struct G;
}

pub mod m {
    pub struct M;

    #[derive(Clone, Copy, PartialEq, Eq)]
    pub struct MRef(pub usize);
}

pub mod pool {
    use std::marker::PhantomData;

    pub struct FreeList<T>(PhantomData<T>);

    impl<T> FreeList<T> {
        pub fn new() -> Self {
            FreeList(PhantomData)
        }
    }

    pub use FreeList as Pool;
}

pub mod task {
    pub struct Newborn;

    #[derive(Clone, Copy)]
    pub struct Task;

    /// Always empty.
    pub struct Fifo;

    impl Fifo {
        pub fn new() -> Fifo {
            Fifo
        }

        pub fn push(&self, _task: Task) {}

        pub fn is_empty(&self) -> bool {
            true
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
