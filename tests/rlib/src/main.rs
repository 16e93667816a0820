//! The allocator of a Rust program that depends on the rlib stays the program's own, for the
//! library too; and no signal stops a goroutine inside of it.

use core::ffi::c_void;
use gosched::capi::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

static BLOCKS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator, whose blocks are counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BLOCKS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller says.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller says.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const GOROUTINES: usize = 100;

unsafe extern "C" fn send_a_box(ch: *mut c_void) {
    for i in 0..100_u64 {
        let mut block = Box::into_raw(Box::new(i));
        // SAFETY: the channel is there until all have sent, and carries pointers.
        let sent = unsafe { gs_chan_send(ch.cast(), (&raw mut block).cast(), GS_FOREVER) };
        assert_eq!(sent, 0);
    }
}

unsafe extern "C" fn receive(_: *mut c_void) {
    let before = BLOCKS.load(Ordering::Relaxed);
    // SAFETY: the goroutines use the channel as long as it is there.
    unsafe {
        let ch = gs_chan_make(size_of::<*mut u64>(), 0);
        assert!(!ch.is_null());
        assert!(BLOCKS.load(Ordering::Relaxed) > before, "a channel is not the program's memory");
        for _ in 0..GOROUTINES {
            assert_eq!(gs_spawn(Some(send_a_box), ch.cast()), 0);
        }
        let mut sum = 0;
        for _ in 0..GOROUTINES * 100 {
            let mut block: *mut u64 = ptr::null_mut();
            assert_eq!(gs_chan_recv(ch, (&raw mut block).cast(), GS_FOREVER), 0);
            sum += *Box::from_raw(block);
        }
        assert_eq!(sum, GOROUTINES as u64 * 4950);
        assert_eq!(gs_chan_free(ch), 0);
    }
}

/// Whether the process has a handler for SIGURG, which preempts.
fn handles_sigurg() -> bool {
    const SIGURG: u32 = 23;
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let caught = status.lines().find_map(|l| l.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << (SIGURG - 1)) != 0
}

fn main() {
    // SAFETY: the function takes no argument.
    unsafe { assert_eq!(gs_run(Some(receive), ptr::null_mut()), 0) };
    assert!(!handles_sigurg(), "goroutines are preempted by a signal");
    assert_eq!(gs_shutdown(GS_FOREVER), 0);
}
