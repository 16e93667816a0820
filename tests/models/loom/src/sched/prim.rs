//! What the scheduler is built of: the real files, and stand-ins for the rest.

#[path = "../../../../../src/sched/prim/gate.rs"]
pub mod gate;
#[path = "../../../../../src/sched/prim/histogram.rs"]
pub mod histogram;
#[path = "../../../../../src/sched/prim/idle.rs"]
pub mod idle;
#[path = "../../../../../src/sched/prim/ring.rs"]
pub mod ring;

pub mod limits {
    //! Sizes that make every wrap-around and every full queue happen soon.

    pub const PROCS: usize = 64;
    pub const RING: usize = 4;
    pub const FREE_GS: usize = 1;
    pub const NEWBORNS: usize = 1;
}

pub mod pool {
    use std::marker::PhantomData;

    /// What a pool can hold.
    ///
    /// # Safety
    /// As the real one.
    pub unsafe trait Pooled {}

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
