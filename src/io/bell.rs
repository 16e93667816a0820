//! Bells: eventfds that plain threads poll beside the file for which they wait, so that
//! `gs_close` can wake them.
//!
//! They are kept when the wait is over, until the runtime ends. A descriptor that were taken for a moment would
//! take its number from a program that closes one and expects to get it back.

use crate::os::epoll;
use crate::sched::runtime;
use core::sync::atomic::{AtomicI32, Ordering};

/// Plain threads that can wait with a bell at the same time; others look every few ms.
const BELLS: usize = 1024;

/// 0: none yet. Above: one that is free. Below: one that is in use. One more than the
/// descriptor in each case.
static ALL: [AtomicI32; BELLS] = [const { AtomicI32::new(0) }; BELLS];

/// One that the caller uses, until it is dropped.
pub struct Bell {
    place: &'static AtomicI32,
    fd: i32,
}

impl Bell {
    /// `None`: there is none to be had.
    pub fn take() -> Option<Bell> {
        let change = |place: &'static AtomicI32, from: i32, fd: i32| {
            // Acquire: pairs with the Release of whoever has had it.
            let changed =
                place.compare_exchange(from, -(fd + 1), Ordering::Acquire, Ordering::Relaxed);
            // Not `then_some`: a bell that is made puts its place back when it is dropped.
            changed.is_ok().then(|| Bell { place, fd })
        };
        let free = ALL.iter().find_map(|place| match place.load(Ordering::Relaxed) {
            n if n > 0 => change(place, n, n - 1),
            _ => None,
        });
        if free.is_some() {
            return free;
        }
        let fd = epoll::create_eventfd().ok()?;
        let new = ALL.iter().find_map(|place| change(place, 0, fd));
        if new.is_none() {
            epoll::close(fd);
        }
        new
    }

    pub fn fd(&self) -> i32 {
        self.fd
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        // Nobody rings any more: the file's list of threads doesn't have it.
        epoll::silence(self.fd);
        // SeqCst: either we see that the runtime has ended, or `close_free`, which comes after
        // its end, sees that this one is free.
        self.place.store(self.fd + 1, Ordering::SeqCst);
        if runtime::try_rt().is_none() {
            close_free();
        }
    }
}

/// The runtime has ended: closes those that no thread waits with.
pub fn close_free() {
    for place in &ALL {
        let n = place.load(Ordering::Relaxed);
        // Acquire: pairs with the Release of the thread that had it last.
        let take = || place.compare_exchange(n, 0, Ordering::Acquire, Ordering::Relaxed);
        if n > 0 && take().is_ok() {
            epoll::close(n - 1);
        }
    }
}

/// In the child of a fork they are copies of the parent's, which would wake its threads.
pub fn forget_all() {
    for place in &ALL {
        match place.swap(0, Ordering::Relaxed) {
            0 => {}
            n => epoll::close(n.abs() - 1),
        }
    }
}
