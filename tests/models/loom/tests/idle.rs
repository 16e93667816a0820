//! Parking and waking: an M that finds nothing and goes to sleep, against others
//! that submit work. The counters and the set of idle P's are the library's; what
//! its M's do with them is written here as in `schedule::go_idle`,
//! `schedule::stop_spinning` and `threads::start_one`.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};
use loom::thread;
use loom_models::check::check;
use loom_models::sched::prim::idle::{Idle, StartOne};
use loom_models::sched::types::node::Node;
use loom_models::sched::types::p::{P, PRef, PStatus};
use loom_models::stack::SizeClass;

struct World {
    idle: Idle,
    node: Box<Node>,
    ps: Vec<P>,
    /// What each P is.
    statuses: Vec<AtomicU32>,
    /// Tasks in a queue; Relaxed, as the queues' lengths are.
    work: AtomicUsize,
    done: AtomicUsize,
    /// Spinning M's, as a count that takes no part in the model.
    spinners: std::sync::atomic::AtomicUsize,
}

// SAFETY: all that is shared is atomic.
unsafe impl Sync for World {}
// SAFETY: likewise.
unsafe impl Send for World {}

impl World {
    /// All P's are taken.
    fn new(procs: usize) -> Arc<World> {
        let node = Box::new(Node::new(0, Vec::new(), &[0], None));
        let world = World {
            idle: Idle::new(),
            ps: (0..procs).map(|id| P::new(id, &node, SizeClass, 4, false)).collect(),
            statuses: (0..procs).map(|_| AtomicU32::new(PStatus::Running as u32)).collect(),
            node,
            work: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            spinners: Default::default(),
        };
        // The first use makes an atomic: before there are other threads.
        assert_eq!(world.node.take_any_idle_p(procs), None);
        assert_eq!((world.idle.ps(), world.idle.spinning()), (0, 0));
        Arc::new(world)
    }

    fn p(&self, id: usize) -> PRef {
        // SAFETY: it lives as long as the world.
        unsafe { PRef::from_ptr(&self.ps[id]) }
    }

    fn make_idle(&self, p: PRef) {
        self.statuses[p.id as usize].store(PStatus::Idle as u32, Ordering::Release);
        self.idle.p_idle();
        self.node.add_idle_p(p);
        fence(Ordering::SeqCst);
    }

    fn take_idle_p(&self, near: Option<PRef>) -> Option<PRef> {
        let taken = near
            .filter(|&p| self.node.take_idle_p(p))
            .or_else(|| self.node.take_any_idle_p(self.ps.len()).map(|id| self.p(id)))?;
        self.idle.p_taken();
        assert_eq!(
            self.statuses[taken.id as usize].swap(PStatus::Running as u32, Ordering::AcqRel),
            PStatus::Idle as u32,
            "a P has two owners"
        );
        Some(taken)
    }

    fn take_work(&self) -> bool {
        let less = |n: usize| n.checked_sub(1);
        self.work.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    fn work_anywhere(&self) -> bool {
        self.work.load(Ordering::Relaxed) != 0
    }

    fn spin_begins(&self) {
        self.idle.spin_begins();
        self.spinners.fetch_add(1, Ordering::Relaxed);
    }

    fn spin_ended(&self) {
        self.spinners.fetch_sub(1, Ordering::Relaxed);
        self.idle.spin_ended();
    }

    fn spin_found(&self) {
        self.spinners.fetch_sub(1, Ordering::Relaxed);
        let one = self.idle.spin_found(|| self.work_anywhere());
        self.start(one, None);
    }

    fn work_added(&self) {
        let one = self.idle.work_added();
        self.start(one, None);
    }

    fn submit(&self) {
        self.work.fetch_add(1, Ordering::Relaxed);
        self.work_added();
    }

    /// The M that is started runs at once and in our place: we do nothing more.
    fn start(&self, one: Option<StartOne>, near: Option<PRef>) {
        let Some(StartOne) = one else { return };
        let before = self.spinners.fetch_add(1, Ordering::Relaxed);
        assert_eq!(before, 0, "an M is started though another one looks for work");
        if let Some(p) = self.take_idle_p(near) {
            return self.run(p, true);
        }
        self.spin_ended();
        // A thread that submitted meanwhile has relied on us.
        if self.work_anywhere()
            && let Some(p) = self.take_idle_p(near)
        {
            self.spin_begins();
            self.run(p, true);
        }
    }

    /// An M with a P, until it sleeps.
    fn run(&self, mut p: PRef, mut spinning: bool) {
        loop {
            if self.take_work() {
                if std::mem::take(&mut spinning) {
                    self.spin_found();
                }
                self.done.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            self.make_idle(p);
            if std::mem::take(&mut spinning) {
                self.spin_ended();
            }
            if !self.work_anywhere() {
                return;
            }
            let Some(again) = self.take_idle_p(Some(p)) else { return };
            p = again;
            spinning = true;
            self.spin_begins();
        }
    }

    fn expect_all_done(&self, tasks: usize) {
        assert_eq!(self.work.load(Ordering::Relaxed), 0, "work is left and every M sleeps");
        assert_eq!(self.done.load(Ordering::Relaxed), tasks);
        assert_eq!((self.idle.ps() as usize, self.idle.spinning()), (self.ps.len(), 0));
        assert!(self.statuses.iter().all(|s| s.load(Ordering::Relaxed) == PStatus::Idle as u32));
    }
}

fn submitters(world: &Arc<World>, n: usize) -> Vec<thread::JoinHandle<()>> {
    let submit = |world: Arc<World>| thread::spawn(move || world.submit());
    (0..n).map(|_| submit(world.clone())).collect()
}

/// The submitter sees no idle P while the M sees no work yet.
#[test]
fn work_is_done_though_the_only_m_goes_to_sleep_just_then() {
    check(4, || {
        let world = World::new(1);
        let others = submitters(&world, 1);
        world.run(world.p(0), false);
        others.into_iter().for_each(|t| t.join().unwrap());
        world.expect_all_done(1);
    });
}

/// The submitter relies on a spinning M that is just giving up.
#[test]
fn work_is_done_though_the_only_spinner_gives_up_just_then() {
    check(4, || {
        let world = World::new(1);
        world.spin_begins();
        let others = submitters(&world, 1);
        world.run(world.p(0), true);
        others.into_iter().for_each(|t| t.join().unwrap());
        world.expect_all_done(1);
    });
}

/// The second submitter relies on the M that the first one is to start, and the
/// first one finds no P left: the M that had one goes to sleep again meanwhile.
#[test]
fn work_is_done_though_the_wake_up_it_relies_on_comes_to_nothing() {
    check(2, || {
        let world = World::new(1);
        let others = submitters(&world, 2);
        world.run(world.p(0), false);
        others.into_iter().for_each(|t| t.join().unwrap());
        world.expect_all_done(2);
    });
}

/// With every M asleep, two submitters start one M or two, never none.
#[test]
fn two_submitters_wake_a_sleeping_scheduler() {
    check(2, || {
        let world = World::new(2);
        world.make_idle(world.p(0));
        world.make_idle(world.p(1));
        let others = submitters(&world, 2);
        others.into_iter().for_each(|t| t.join().unwrap());
        world.expect_all_done(2);
    });
}

/// One of two M's sleeps already, the other goes to sleep as spinner.
#[test]
fn the_last_of_two_spinners_looks_again() {
    check(2, || {
        let world = World::new(2);
        world.spin_begins();
        world.spin_begins();
        let w = world.clone();
        let second = thread::spawn(move || w.run(w.p(1), true));
        let others = submitters(&world, 1);
        world.run(world.p(0), true);
        second.join().unwrap();
        others.into_iter().for_each(|t| t.join().unwrap());
        world.expect_all_done(1);
    });
}
