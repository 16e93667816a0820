//! Locks and other meeting points. Each is a state with queues of waiters, which sleep on a
//! semaphore of the library.
//!
//! - `queues`: the state and the queues.
//! - `wake`, `wait`: waking and waiting there.
//! - `lock`, `rlock`, `semaphore`, `event`, `wait_group`, `rw_mutex`: a class each.
//!
//! The classes take any arguments in `__new__`, and check them in `__init__`: that of a subclass
//! may have others.

pub mod event;
pub mod lock;
pub mod queues;
pub mod rlock;
pub mod rw_mutex;
pub mod semaphore;
pub mod wait;
pub mod wait_group;
pub mod wake;
