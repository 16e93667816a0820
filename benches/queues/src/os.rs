//! What the queue uses of the library's `os`.

#[path = "../../../src/os/spin.rs"]
pub mod spin;

pub mod time {
    /// Sleeps for `ns` nanoseconds.
    pub fn sleep(ns: i64) {
        std::thread::sleep(std::time::Duration::from_nanos(ns as u64));
    }
}

/// What the pool uses of the library's `os`, for Miri, which knows neither parts of mappings nor policies of
/// memory.
#[cfg(miri)]
#[path = "../../../src/os/locked.rs"]
pub mod locked;

/// Bytes of a page.
#[cfg(miri)]
pub const PAGE: usize = 4096;

#[cfg(miri)]
pub mod heap {
    /// Makes room for `more` elements.
    pub fn reserve<T>(list: &mut Vec<T>, more: usize) -> bool {
        list.try_reserve(more).is_ok()
    }
}

#[cfg(miri)]
pub mod mem {
    use std::alloc::{Layout, alloc_zeroed, dealloc};

    fn layout(len: usize, align: usize) -> Layout {
        Layout::from_size_align(len, align).expect("a power of two")
    }

    /// Zeroed memory, aligned to `align`.
    pub fn reserve(len: usize, align: usize) -> Option<usize> {
        // SAFETY: the pool asks for chunks, whose length is not 0.
        let at = unsafe { alloc_zeroed(layout(len, align)) };
        (!at.is_null()).then(|| at.expose_provenance())
    }

    /// # Safety
    /// As the library's; and `reserve` gave it, with its length as the alignment.
    pub unsafe fn release(at: usize, len: usize) {
        // SAFETY: as the caller says.
        unsafe { dealloc(std::ptr::with_exposed_provenance_mut(at), layout(len, len)) };
    }

    pub fn prefer_node(_at: usize, _len: usize, _node: usize) {}
}
