//! Locks and other meeting points: a goroutine that gets in may be in, and no waiter waits for ever.

use shuttle_models::model::{Actor, Alone, Cast, Count, actor};
use shuttle_models::sched::run::park::{FOREVER, NOWAIT};
use shuttle_models::sync::{Cond, Mutex, Once, RwMutex, Sem, WaitGroup};
use shuttle_models::{os, with_each_cast};
use std::ops::Deref;
use std::sync::Arc;

with_each_cast! {
    one_at_a_time_has_a_mutex: 800,
    a_lock_of_a_mutex_is_had_or_times_out: 800,
    a_writer_is_alone_and_readers_are_among_themselves: 800,
    a_lock_of_an_rwmutex_is_had_or_times_out: 800,
    a_semaphore_gives_no_more_than_it_has: 800,
    a_request_that_times_out_holds_up_no_smaller_one: 800,
    a_signal_wakes_one_that_waits: 800,
    a_broadcast_wakes_all_that_wait: 800,
    a_waiter_that_times_out_takes_no_signal_along: 800,
    who_waits_for_a_group_sees_what_it_has_done: 800,
    a_thing_is_done_once_before_any_goroutine_goes_on: 800,
}

/// Objects in memory of the user's, zeroed, and how often something was done.
struct Shared<T> {
    object: T,
    mutex: Mutex,
    alone: Alone,
    /// Used with the mutex held.
    items: Count,
    done: Count,
}

// SAFETY: the objects may be used by any thread.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: likewise.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.object
    }
}

/// `T` is one of the objects, which are valid when zero.
fn shared<T>() -> Arc<Shared<T>> {
    // SAFETY: so are the counters.
    Arc::new(unsafe { std::mem::zeroed() })
}

fn actors<T: 'static>(n: usize, s: &Arc<Shared<T>>, f: fn(&Shared<T>)) -> Vec<Actor> {
    let one = |s: Arc<Shared<T>>| actor(move || f(&s));
    (0..n).map(|_| one(s.clone())).collect()
}

/// A few threads of one kind and a few of another, in turn.
fn in_turn(a: Vec<Actor>, b: Vec<Actor>) -> Vec<Actor> {
    let (mut a, mut b) = (a.into_iter(), b.into_iter());
    let longest = a.len().max(b.len());
    (0..longest).flat_map(|_| [a.next(), b.next()]).flatten().collect()
}

fn soon() -> i64 {
    os::time::now() + 30_000
}

/// Whether it was had.
fn had(result: i32) -> bool {
    assert!(result == 0 || result == -libc::ETIMEDOUT, "{result}");
    result == 0
}

fn one_at_a_time_has_a_mutex(cast: Cast) {
    let s = shared::<Mutex>();
    cast.play(actors(4, &s, |s| {
        for _ in 0..2 {
            assert_eq!(s.lock(FOREVER), 0);
            s.alone.visit();
            s.done.add(1);
            assert_eq!(s.unlock(), 0);
        }
    }));
    assert_eq!(s.done.get(), 8);
    assert!(s.try_lock());
}

fn a_lock_of_a_mutex_is_had_or_times_out(cast: Cast) {
    let s = shared::<Mutex>();
    let impatient = actors(3, &s, |s| {
        if had(s.lock(soon())) {
            s.alone.visit();
            assert_eq!(s.unlock(), 0);
        }
    });
    let patient = actors(2, &s, |s| {
        assert_eq!(s.lock(FOREVER), 0);
        s.alone.visit();
        // Long enough for the others to starve, sometimes.
        os::time::now();
        s.alone.visit();
        assert_eq!(s.unlock(), 0);
        s.done.add(1);
    });
    cast.play(in_turn(impatient, patient));
    assert_eq!(s.done.get(), 2);
    assert!(s.try_lock());
    assert_eq!(s.unlock(), 0);
    assert_eq!(s.unlock(), -libc::EPERM);
}

fn write(s: &Shared<RwMutex>) {
    s.alone.visit();
    assert_eq!(s.write_unlock(), 0);
}

/// Readers don't exclude each other, so they don't say that they are there: a
/// writer counts, and none may come or go while one reads.
fn read(s: &Shared<RwMutex>) {
    let before = s.done.get();
    s.alone.look();
    assert_eq!(s.done.get(), before, "there is a writer");
    assert_eq!(s.read_unlock(), 0);
}

fn a_writer_is_alone_and_readers_are_among_themselves(cast: Cast) {
    let s = shared::<RwMutex>();
    let writers = actors(2, &s, |s| {
        assert_eq!(s.write_lock(FOREVER), 0);
        s.done.add(1);
        write(s);
    });
    let readers = actors(3, &s, |s| {
        assert_eq!(s.read_lock(FOREVER), 0);
        read(s);
    });
    cast.play(in_turn(readers, writers));
    assert_eq!(s.done.get(), 2);
    assert_eq!(s.write_lock(NOWAIT), 0);
}

fn a_lock_of_an_rwmutex_is_had_or_times_out(cast: Cast) {
    let s = shared::<RwMutex>();
    let writers = actors(2, &s, |s| {
        if had(s.write_lock(soon())) {
            s.done.add(1);
            write(s);
        }
    });
    let readers = actors(3, &s, |s| {
        // Maybe behind a writer that gives up.
        assert_eq!(s.read_lock(FOREVER), 0);
        read(s);
        if had(s.read_lock(soon())) {
            read(s);
        }
    });
    cast.play(in_turn(readers, writers));
    assert_eq!(s.write_lock(NOWAIT), 0);
}

/// With units of a semaphore that has two.
fn use_units(s: &Shared<Sem>, n: u64) {
    s.items.add(n);
    assert!(s.items.get() <= 2, "more units are out than there are");
    s.alone.look();
    s.items.add(n.wrapping_neg());
    assert_eq!(s.release(n as i64), 0);
}

fn a_semaphore_gives_no_more_than_it_has(cast: Cast) {
    let s = shared::<Sem>();
    assert_eq!(s.init(2), 0);
    let small = actors(3, &s, |s| {
        assert_eq!(s.acquire(1, FOREVER), 0);
        use_units(s, 1);
    });
    let large = actors(2, &s, |s| {
        assert_eq!(s.acquire(2, FOREVER), 0);
        use_units(s, 2);
    });
    cast.play(in_turn(small, large));
    assert_eq!(s.acquire(2, NOWAIT), 0);
}

fn a_request_that_times_out_holds_up_no_smaller_one(cast: Cast) {
    let s = shared::<Sem>();
    assert_eq!(s.init(1), 0);
    // There never are two, so these only stand in the others' way.
    let large = actors(2, &s, |s| assert_eq!(s.acquire(2, soon()), -libc::ETIMEDOUT));
    let small = actors(2, &s, |s| {
        assert_eq!(s.acquire(1, FOREVER), 0);
        use_units(s, 1);
        if had(s.acquire(1, soon())) {
            use_units(s, 1);
        }
    });
    cast.play(in_turn(large, small));
    assert_eq!(s.acquire(1, NOWAIT), 0);
}

/// Takes one of the items that others bring.
fn consume(s: &Shared<Cond>) {
    assert_eq!(s.mutex.lock(FOREVER), 0);
    while s.items.get() == 0 {
        assert_eq!(s.wait(&s.mutex, FOREVER), 0);
    }
    s.items.add(1u64.wrapping_neg());
    s.alone.visit();
    s.done.add(1);
    assert_eq!(s.mutex.unlock(), 0);
}

fn produce(s: &Shared<Cond>) {
    assert_eq!(s.mutex.lock(FOREVER), 0);
    s.items.add(1);
    s.alone.visit();
    assert_eq!(s.mutex.unlock(), 0);
    s.signal();
}

fn a_signal_wakes_one_that_waits(cast: Cast) {
    let s = shared::<Cond>();
    cast.play(in_turn(actors(3, &s, consume), actors(3, &s, produce)));
    assert_eq!((s.done.get(), s.items.get()), (3, 0));
}

fn a_broadcast_wakes_all_that_wait(cast: Cast) {
    let s = shared::<Cond>();
    let waiters = actors(3, &s, |s| {
        assert_eq!(s.mutex.lock(FOREVER), 0);
        while s.items.get() == 0 {
            assert_eq!(s.wait(&s.mutex, FOREVER), 0);
        }
        s.alone.visit();
        assert_eq!(s.mutex.unlock(), 0);
        s.done.add(1);
    });
    let all = actors(1, &s, |s| {
        assert_eq!(s.mutex.lock(FOREVER), 0);
        s.items.add(1);
        assert_eq!(s.mutex.unlock(), 0);
        s.broadcast();
    });
    cast.play(in_turn(waiters, all));
    assert_eq!(s.done.get(), 3);
}

/// One consumer waits for ever, and one gives up without another look. The item
/// that comes is for whoever is woken.
fn a_waiter_that_times_out_takes_no_signal_along(cast: Cast) {
    let s = shared::<Cond>();
    let mut all = actors(1, &s, |s| {
        assert_eq!(s.mutex.lock(FOREVER), 0);
        let woken = had(s.wait(&s.mutex, soon()));
        if woken && s.items.get() > 0 {
            s.items.add(1u64.wrapping_neg());
        }
        s.alone.visit();
        assert_eq!(s.mutex.unlock(), 0);
        if woken {
            produce(s);
        }
    });
    all.extend(in_turn(actors(1, &s, consume), actors(1, &s, produce)));
    cast.play(all);
    assert_eq!(s.done.get(), 1);
}

fn who_waits_for_a_group_sees_what_it_has_done(cast: Cast) {
    let s = shared::<WaitGroup>();
    assert_eq!(s.add(3), 0);
    let workers = actors(3, &s, |s| {
        s.done.add(1);
        assert_eq!(s.add(-1), 0);
    });
    let mut waiters = actors(2, &s, |s| {
        assert_eq!(s.object.wait(FOREVER), 0);
        assert_eq!(s.done.get(), 3);
    });
    waiters.extend(actors(1, &s, |s| {
        if had(s.object.wait(soon())) {
            assert_eq!(s.done.get(), 3);
        }
    }));
    cast.play(in_turn(waiters, workers));
    assert_eq!(s.add(-1), -libc::EINVAL);
}

fn a_thing_is_done_once_before_any_goroutine_goes_on(cast: Cast) {
    let s = shared::<Once>();
    cast.play(actors(4, &s, |s| {
        let done = || {
            s.alone.visit();
            s.done.add(1);
        };
        assert_eq!(s.run(done), 0);
        assert_eq!(s.done.get(), 1, "it is not done yet, or twice");
    }));
}
