//! The atomics of the protocols that are model-checked: the models in
//! `tests/models` compile the same files with the checker's atomics here.

pub use core::{
    hint::spin_loop,
    sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};
