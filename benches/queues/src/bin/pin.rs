//! What a pin of crossbeam-epoch takes, beside the check of a generation that the library makes in its place. One part
//! a run, for a tool that counts instructions: `pin PART TIMES`. README.md has the figures.

use crossbeam_epoch as epoch;
use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};

/// A descriptor as a late reader finds it: still mapped, and its generation tells whether it is the one that was meant.
struct Descriptor {
    generation: AtomicU32,
}

fn main() {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let (part, times) = match &args[..] {
        [part, times] => (part.as_str(), times.parse().expect("TIMES is a number")),
        _ => panic!("pin PART TIMES"),
    };
    let one = Descriptor { generation: AtomicU32::new(1) };
    let one = black_box(&one);
    match part {
        // The reader's side of an epoch.
        "pin" => (0..times).for_each(|_| drop(black_box(epoch::pin()))),
        // A pin while the thread is pinned, as in a function that a pinned caller calls.
        "nested" => {
            let _outer = epoch::pin();
            (0..times).for_each(|_| drop(black_box(epoch::pin())));
        }
        // What the library does: one load and a comparison.
        "generation" => (0..times).for_each(|_| {
            let is_current = one.generation.load(Ordering::Acquire) == black_box(1);
            black_box(is_current);
        }),
        // Nothing: the loop itself.
        "loop" => (0..times).for_each(|i| {
            black_box(i);
        }),
        // The first pin of a thread, which registers the thread. The rest is what a thread costs.
        "first" => (0..times).for_each(|_| {
            std::thread::spawn(|| drop(black_box(epoch::pin()))).join().expect("it ends");
        }),
        "thread" => (0..times).for_each(|_| {
            std::thread::spawn(|| ()).join().expect("it ends");
        }),
        _ => panic!("PART is pin, nested, generation, loop, first or thread"),
    }
}
