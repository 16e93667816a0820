//! Bells: eventfds that plain threads poll beside the file for which they wait, so that
//! `gs_close` can wake them.
//!
//! They are kept when the wait is over. A descriptor that were taken for a moment would
//! take its number from a program that closes one and expects to get it back.

use crate::os::epoll;
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
            changed.is_ok().then_some(Bell { place, fd })
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
        self.place.store(self.fd + 1, Ordering::Release);
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
