//! Making threads, or forking, and waiting in the signal handler: never both.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use loom_models::check::check;
use loom_models::sched::prim::gate::{Gate, Through};

struct World {
    gate: Gate,
    /// What goes on; Relaxed, so only the gate orders it.
    making: AtomicUsize,
    waiting: AtomicUsize,
    through: std::sync::atomic::AtomicUsize,
}

impl World {
    fn new() -> Arc<World> {
        let world = World {
            gate: Gate::new(),
            making: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            through: Default::default(),
        };
        // The first use makes an atomic: before there are other threads. Alone, each gets through.
        world.make();
        world.wait();
        Arc::new(world)
    }

    fn make(&self) {
        self.go(self.gate.begin_making(), &self.making, &self.waiting);
    }

    fn wait(&self) {
        self.go(self.gate.begin_waiting(), &self.waiting, &self.making);
    }

    fn go(&self, through: Option<Through>, own: &AtomicUsize, other: &AtomicUsize) {
        if through.is_some() {
            own.fetch_add(1, Ordering::Relaxed);
            assert_eq!(other.load(Ordering::Relaxed), 0);
            own.fetch_sub(1, Ordering::Relaxed);
            self.through.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }
}

/// A thread that forks closes the gate and waits until none is counted.
#[test]
fn no_thread_waits_once_a_closed_gate_counts_none() {
    check(3, || {
        let world = World::new();
        let other = world.clone();
        let other = thread::spawn(move || other.wait());
        world.gate.close();
        if world.gate.waiting() == 0 {
            assert_eq!(world.waiting.load(Ordering::Relaxed), 0);
            thread::yield_now();
            assert_eq!(world.waiting.load(Ordering::Relaxed), 0);
        }
        world.gate.open();
        other.join().unwrap();
        assert_eq!(world.gate.waiting(), 0);
    });
}

#[test]
fn no_thread_waits_while_another_is_made() {
    check(3, || {
        let world = World::new();
        let others: Vec<_> = [World::make as fn(&World), World::wait]
            .into_iter()
            .map(|f| {
                let world = world.clone();
                thread::spawn(move || f(&world))
            })
            .collect();
        world.wait();
        others.into_iter().for_each(|t| t.join().unwrap());
        assert!(world.through.load(std::sync::atomic::Ordering::Relaxed) >= 2);
    });
}
