//! The locks of Rust's standard library, which wait by `syscall`. rust.c calls this from goroutines and threads.

use std::sync::{Condvar, Mutex, Once, RwLock};
use std::time::Duration;

const ROOM: i64 = 3;

struct Buffer {
    inside: i64,
    moved: i64,
}

static BUFFER: Mutex<Buffer> = Mutex::new(Buffer { inside: 0, moved: 0 });
static CHANGED: Condvar = Condvar::new();
static WRITTEN: RwLock<i64> = RwLock::new(0);
static ONCE: Once = Once::new();
static TIMES: Mutex<i64> = Mutex::new(0);

unsafe extern "C" {
    fn usleep(us: u32) -> i32;
}

fn linger(us: u32) {
    // SAFETY: usleep takes any number.
    unsafe { usleep(us) };
}

/// Puts `rounds` times into the buffer if `id` is even, and takes as often if it is odd.
#[unsafe(no_mangle)]
pub extern "C" fn rust_work(id: i64, rounds: i64) {
    ONCE.call_once(|| {
        linger(20_000); // the others come meanwhile
        *TIMES.lock().unwrap() += 1;
    });
    for round in 0..rounds {
        let mut buffer = BUFFER.lock().unwrap();
        if id % 2 == 0 {
            while buffer.inside == ROOM {
                buffer = CHANGED.wait(buffer).unwrap();
            }
            buffer.inside += 1;
        } else {
            while buffer.inside == 0 {
                let us = if round % 2 == 0 { 300 } else { 1_000_000 };
                buffer = CHANGED.wait_timeout(buffer, Duration::from_micros(us)).unwrap().0;
            }
            buffer.inside -= 1;
        }
        buffer.moved += 1;
        CHANGED.notify_all();
        if round % 7 == 0 {
            linger(50);
        }
        drop(buffer);
        if round % 3 == 0 {
            let mut written = WRITTEN.write().unwrap();
            let before = *written;
            linger(30);
            *written = before + 1;
        } else {
            let written = WRITTEN.read().unwrap();
            let before = *written;
            linger(0);
            assert_eq!(before, *written, "a writer came in");
        }
    }
}

/// What all calls of [`rust_work`] have moved and written, and how often what is done once was done.
#[unsafe(no_mangle)]
pub extern "C" fn rust_total(moved: &mut i64, written: &mut i64, times: &mut i64) {
    *moved = BUFFER.lock().unwrap().moved;
    *written = *WRITTEN.read().unwrap();
    *times = *TIMES.lock().unwrap();
}
