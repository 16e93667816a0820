//! Whether the world is stopped. `core::world` has the protocol.

use crate::os::spin::LongLock;
use core::sync::atomic::{AtomicBool, AtomicU32};

/// The state of stopping, one for each runtime.
pub struct World {
    /// Held from stop to start.
    pub lock: LongLock,
    pub stopping: AtomicBool,
    /// Changes when a P has stopped.
    pub note: AtomicU32,
}

impl World {
    pub fn new() -> World {
        World { lock: LongLock::new(), stopping: AtomicBool::new(false), note: AtomicU32::new(0) }
    }

    /// Keeps other threads from stopping the world until [`World::unlock`]. False: a stopper has the lock.
    #[must_use]
    pub fn try_lock(&self) -> bool {
        self.lock.try_lock()
    }

    /// # Safety
    /// The caller has locked it by [`World::try_lock`].
    pub unsafe fn unlock(&self) {
        // SAFETY: as the caller says.
        unsafe { self.lock.unlock() };
    }
}
