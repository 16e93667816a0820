//! The bells of plain threads: a thread polls its bell together with the file for which it waits,
//! so that `gs_close` can wake it.
//!
//! A bell is kept until the runtime ends, also when its wait is over. If a bell took a descriptor
//! for a moment only, a program that closes a file and expects to get the same number again might
//! not get it.

use crate::os::bell::Bell;
use crate::sched::types::runtime;
use core::sync::atomic::{AtomicU64, Ordering, fence};

/// Plain threads that can wait with a bell at one time, at most. Further threads poll every 10 ms
/// (`wait::SLICE`).
const BELLS: usize = 1024;

/// A bit of an entry of [`ALL`]: a thread waits with the bell.
const IN_USE: u64 = 1 << 63;

/// Bells ([`Bell::to_bits`]), with [`IN_USE`] or without; 0: none yet.
static ALL: [AtomicU64; BELLS] = [const { AtomicU64::new(0) }; BELLS];

/// A bell that the caller uses until this is dropped.
pub struct Borrowed {
    place: &'static AtomicU64,
    bell: Bell,
}

impl Borrowed {
    /// A free bell, or a new one. `None`: there is neither.
    pub fn take() -> Option<Borrowed> {
        let change = |place: &'static AtomicU64, from: u64, bell: Bell| {
            let to = bell.to_bits() | IN_USE;
            // Acquire: pairs with the store of the thread that gave it back.
            let changed = place.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed);
            // Not `then_some`: it would always make a `Borrowed`, whose drop gives the bell back.
            changed.is_ok().then(|| Borrowed { place, bell })
        };
        let free = ALL.iter().find_map(|place| match place.load(Ordering::Relaxed) {
            bits if bits & IN_USE == 0 => change(place, bits, Bell::from_bits(bits)?),
            _ => None,
        });
        if free.is_some() {
            return free;
        }
        let bell = Bell::new().ok()?;
        let new = ALL.iter().find_map(|place| change(place, 0, bell));
        if new.is_none() {
            bell.close();
        }
        new
    }

    pub fn bell(&self) -> Bell {
        self.bell
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        // No thread rings the bell any more: it is in no file's list.
        self.bell.silence();
        // Release: pairs with the Acquire in `close_free`.
        self.place.store(self.bell.to_bits(), Ordering::Release);
        // Pairs with the fence in `close_free`: either this thread sees that the runtime has ended,
        // or `close_free`, which comes after its end, sees that this bell is free.
        fence(Ordering::SeqCst);
        if runtime::try_rt().is_none() {
            close_free();
        }
    }
}

/// The runtime has ended: closes the bells with which no thread waits.
pub fn close_free() {
    // Pairs with the fence in `Borrowed::drop`.
    fence(Ordering::SeqCst);
    for place in &ALL {
        let bits = place.load(Ordering::Relaxed);
        // Acquire: pairs with the store of the thread that gave it back.
        let take = || place.compare_exchange(bits, 0, Ordering::Acquire, Ordering::Relaxed);
        if bits & IN_USE == 0
            && let Some(bell) = Bell::from_bits(bits)
            && take().is_ok()
        {
            bell.close();
        }
    }
}

/// In the child of a fork: the bells are copies of the parent's, and would wake the parent's
/// threads.
pub fn forget_all() {
    for place in &ALL {
        let bell = Bell::from_bits(place.swap(0, Ordering::Relaxed) & !IN_USE);
        bell.into_iter().for_each(Bell::close);
    }
}
