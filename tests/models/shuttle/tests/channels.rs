//! Channels and select: a value goes to one receiver or stays with its sender,
//! and every waiter wakes up once.

use shuttle_models::chan::{Case, Chan, Op, select};
use shuttle_models::model::{Actor, Cast, Plain, actor, check, go_referenced, in_runtime};
use shuttle_models::sched::lifecycle::goroutine;
use shuttle_models::sched::run::park::{FOREVER, NOWAIT};
use shuttle_models::sched::types::g::GRef;
use shuttle_models::{os, with_each_cast};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

with_each_cast! {
    values_arrive_once_and_in_order: 600,
    values_arrive_once_and_in_order_through_a_buffer: 600,
    a_value_is_delivered_or_its_sender_times_out: 800,
    a_value_is_in_the_buffer_or_its_sender_times_out: 800,
    a_close_meets_senders_and_receivers: 800,
    a_close_meets_senders_and_receivers_of_a_buffer: 800,
    a_close_meets_selects_over_two_channels: 800,
    selects_with_their_cases_in_opposite_order_meet: 800,
    a_select_that_sends_and_receives_on_one_channel_meets_another: 800,
    a_select_is_done_or_times_out: 800,
    a_select_without_waiting_sees_one_moment: 800,
    the_receiver_frees_the_channel_at_once: 600,
}

/// A channel of numbers.
#[derive(Clone)]
struct Pipe(Arc<Chan>);

// SAFETY: nothing in a channel belongs to a thread.
unsafe impl Send for Pipe {}
// SAFETY: likewise.
unsafe impl Sync for Pipe {}

/// gs_chan_send.
///
/// # Safety
/// `elem` has the element size.
unsafe fn send(chan: &Chan, elem: *const u8, deadline: i64) -> i32 {
    // SAFETY: `elem` has the element size.
    let done = unsafe { chan.try_send(elem, deadline) };
    // SAFETY: likewise, just tried.
    done.unwrap_or_else(|| unsafe { chan.wait(Op::Send, elem.cast_mut(), deadline) })
}

/// gs_chan_recv.
///
/// # Safety
/// `elem` has room for an element.
unsafe fn recv(chan: &Chan, elem: *mut u8, deadline: i64) -> i32 {
    // SAFETY: `elem` has room for an element.
    let done = unsafe { chan.try_recv(elem, deadline) };
    // SAFETY: likewise, just tried.
    done.unwrap_or_else(|| unsafe { chan.wait(Op::Recv, elem, deadline) })
}

/// A value that is never sent.
const NOTHING: u64 = u64::MAX;

impl Pipe {
    fn new(capacity: usize) -> Pipe {
        Pipe(Arc::from(Chan::new(size_of::<u64>(), capacity).unwrap()))
    }

    fn send(&self, value: u64, deadline: i64) -> i32 {
        // SAFETY: elements are numbers.
        unsafe { send(&self.0, (&raw const value).cast(), deadline) }
    }

    fn recv(&self, deadline: i64) -> Result<u64, i32> {
        let mut value = NOTHING;
        // SAFETY: likewise.
        let result = unsafe { recv(&self.0, (&raw mut value).cast(), deadline) };
        received(value, result)
    }

    fn close(&self) -> i32 {
        self.0.close()
    }

    fn case(&self, op: Op, value: &mut u64) -> Case<'_> {
        Case { chan: Some(&self.0), op, elem: (&raw mut *value).cast() }
    }

    fn expect_no_waiter(&self) {
        assert!(!self.0.is_waited_for(), "a waiter is left in a queue");
    }
}

/// What a receive has given, whose element was `NOTHING` before.
fn received(value: u64, result: i32) -> Result<u64, i32> {
    match result {
        0 => assert_ne!(value, NOTHING, "a receive has succeeded without a value"),
        e if e == -libc::EPIPE => assert_eq!(value, 0, "a closed channel gives zeros"),
        _ => assert_eq!(value, NOTHING, "a receive has failed and taken a value"),
    }
    if result == 0 { Ok(value) } else { Err(result) }
}

/// Which values were sent and which have arrived; no part of the model.
#[derive(Clone, Default)]
struct Ledger(Arc<Mutex<[Vec<u64>; 2]>>);

impl Ledger {
    fn sent(&self, value: u64) {
        self.0.lock().unwrap()[0].push(value);
    }

    fn arrived(&self, value: u64) {
        self.0.lock().unwrap()[1].push(value);
    }

    fn expect_all_arrived(&self) {
        let [mut sent, mut arrived] = self.0.lock().unwrap().clone();
        sent.sort_unstable();
        arrived.sort_unstable();
        assert_eq!(sent, arrived, "a value is lost or doubled");
    }
}

fn soon() -> i64 {
    os::time::now() + 30_000
}

fn values_arrive_once_and_in_order(cast: Cast) {
    two_senders_and_two_receivers(cast, 0);
}

fn values_arrive_once_and_in_order_through_a_buffer(cast: Cast) {
    two_senders_and_two_receivers(cast, 1);
}

fn two_senders_and_two_receivers(cast: Cast, capacity: usize) {
    let (pipe, ledger) = (Pipe::new(capacity), Ledger::default());
    let mut actors = Vec::new();
    for sender in [10, 20] {
        let (p, l) = (pipe.clone(), ledger.clone());
        actors.push(actor(move || {
            for value in [sender, sender + 1] {
                assert_eq!(p.send(value, FOREVER), 0);
                l.sent(value);
            }
        }));
        let (p, l) = (pipe.clone(), ledger.clone());
        actors.push(actor(move || {
            let got = [p.recv(FOREVER).unwrap(), p.recv(FOREVER).unwrap()];
            let same_sender = got[0] / 10 == got[1] / 10;
            assert!(!same_sender || got[0] < got[1], "one sender's values arrive in order");
            got.into_iter().for_each(|v| l.arrived(v));
        }));
    }
    cast.play(actors);
    ledger.expect_all_arrived();
    pipe.expect_no_waiter();
}

fn sender(
    pipe: &Pipe,
    ledger: &Ledger,
    value: u64,
    deadline: fn() -> i64,
    else_errno: i32,
) -> Actor {
    let (p, l) = (pipe.clone(), ledger.clone());
    actor(move || match p.send(value, deadline()) {
        0 => l.sent(value),
        e => assert_eq!(e, -else_errno),
    })
}

fn forever() -> i64 {
    FOREVER
}

fn a_value_is_delivered_or_its_sender_times_out(cast: Cast) {
    impatient_senders_and_receivers(cast, 0);
}

fn a_value_is_in_the_buffer_or_its_sender_times_out(cast: Cast) {
    impatient_senders_and_receivers(cast, 1);
}

fn impatient_senders_and_receivers(cast: Cast, capacity: usize) {
    let (pipe, ledger) = (Pipe::new(capacity), Ledger::default());
    let receiver = || {
        let (p, l) = (pipe.clone(), ledger.clone());
        actor(move || match p.recv(soon()) {
            Ok(value) => l.arrived(value),
            Err(e) => assert_eq!(e, -libc::ETIMEDOUT),
        })
    };
    let send = |value| sender(&pipe, &ledger, value, soon, libc::ETIMEDOUT);
    cast.play(vec![send(1), receiver(), receiver(), send(2), send(3)]);
    pipe.expect_no_waiter();
    while let Ok(value) = pipe.recv(NOWAIT) {
        ledger.arrived(value);
    }
    ledger.expect_all_arrived();
}

fn a_close_meets_senders_and_receivers(cast: Cast) {
    close_meets(cast, 0);
}

fn a_close_meets_senders_and_receivers_of_a_buffer(cast: Cast) {
    close_meets(cast, 2);
}

/// Receivers get all that was sent, then see the close.
fn close_meets(cast: Cast, capacity: usize) {
    let (pipe, ledger) = (Pipe::new(capacity), Ledger::default());
    let receiver = || {
        let (p, l) = (pipe.clone(), ledger.clone());
        actor(move || {
            loop {
                match p.recv(FOREVER) {
                    Ok(value) => l.arrived(value),
                    Err(e) => return assert_eq!(e, -libc::EPIPE),
                }
            }
        })
    };
    let send = |value| sender(&pipe, &ledger, value, forever, libc::EPIPE);
    let p = pipe.clone();
    let closer = actor(move || {
        assert_eq!(p.close(), 0);
        assert_eq!(p.close(), -libc::EPIPE);
    });
    cast.play(vec![send(1), receiver(), send(2), closer, receiver(), send(3)]);
    ledger.expect_all_arrived();
    pipe.expect_no_waiter();
}

/// All selects see the close of the one channel, and until then get what is sent
/// on the other one.
fn a_close_meets_selects_over_two_channels(cast: Cast) {
    let (closing, pipe, ledger) = (Pipe::new(0), Pipe::new(0), Ledger::default());
    let selecter = |swapped: bool| {
        let (c, p, l) = (closing.clone(), pipe.clone(), ledger.clone());
        actor(move || {
            loop {
                let (mut nothing, mut value) = (NOTHING, NOTHING);
                let mut cases = [c.case(Op::Recv, &mut nothing), p.case(Op::Recv, &mut value)];
                if swapped {
                    cases.swap(0, 1);
                }
                // SAFETY: elements are numbers.
                let (which, result) = unsafe { select(&cases, FOREVER) }.unwrap();
                match (which == 0) == swapped {
                    true => l.arrived(received(value, result).unwrap()),
                    false => {
                        assert_eq!(received(nothing, result), Err(-libc::EPIPE));
                        return assert_eq!(value, NOTHING, "both cases are done");
                    }
                }
            }
        })
    };
    let send = |value| sender(&pipe, &ledger, value, soon, libc::ETIMEDOUT);
    let c = closing.clone();
    let closer = actor(move || assert_eq!(c.close(), 0));
    cast.play(vec![selecter(false), selecter(true), send(1), closer, selecter(true), send(2)]);
    ledger.expect_all_arrived();
    closing.expect_no_waiter();
    pipe.expect_no_waiter();
}

/// Each of the ones offers on the first channel and takes from the second, each
/// of the others the other way round: they pair up.
fn selects_with_their_cases_in_opposite_order_meet(cast: Cast) {
    let (pipes, ledger) = ([Pipe::new(0), Pipe::new(0)], Ledger::default());
    let selecter = |mine: usize, value: u64| {
        let ([a, b], l) = (pipes.clone(), ledger.clone());
        actor(move || {
            let (to, from) = if mine == 0 { (a, b) } else { (b, a) };
            exchange(&to, &from, value, &l, FOREVER).unwrap();
        })
    };
    cast.play(vec![selecter(0, 1), selecter(1, 2), selecter(1, 3), selecter(0, 4)]);
    ledger.expect_all_arrived();
    pipes.iter().for_each(Pipe::expect_no_waiter);
    assert_eq!(ledger.0.lock().unwrap()[0].len(), 2, "of each pair one has sent");
}

/// A select that sends the value or receives another.
fn exchange(to: &Pipe, from: &Pipe, value: u64, ledger: &Ledger, deadline: i64) -> Result<(), i32> {
    let (mut mine, mut other) = (value, NOTHING);
    let cases = [to.case(Op::Send, &mut mine), from.case(Op::Recv, &mut other)];
    // SAFETY: elements are numbers.
    let done = unsafe { select(&cases, deadline) };
    if let Ok((1, result)) = done {
        ledger.arrived(received(other, result)?);
        return Ok(());
    }
    assert_eq!(other, NOTHING, "it has received besides");
    match done? {
        (_, 0) => ledger.sent(value),
        (_, e) => return Err(e),
    }
    Ok(())
}

fn a_select_that_sends_and_receives_on_one_channel_meets_another(cast: Cast) {
    let (pipe, ledger) = (Pipe::new(0), Ledger::default());
    let selecter = |value| {
        let (p, l) = (pipe.clone(), ledger.clone());
        actor(move || exchange(&p, &p, value, &l, FOREVER).unwrap())
    };
    cast.play((1..=4).map(selecter).collect());
    ledger.expect_all_arrived();
    pipe.expect_no_waiter();
}

fn a_select_is_done_or_times_out(cast: Cast) {
    let (pipes, ledger) = ([Pipe::new(0), Pipe::new(0)], Ledger::default());
    let selecter = |value| {
        let ([a, b], l) = (pipes.clone(), ledger.clone());
        actor(move || match exchange(&a, &b, value, &l, soon()) {
            Ok(()) => {}
            Err(e) => assert_eq!(e, -libc::ETIMEDOUT),
        })
    };
    let receiver = {
        let (p, l) = (pipes[0].clone(), ledger.clone());
        actor(move || match p.recv(soon()) {
            Ok(value) => l.arrived(value),
            Err(e) => assert_eq!(e, -libc::ETIMEDOUT),
        })
    };
    let sender = sender(&pipes[1], &ledger, 9, soon, libc::ETIMEDOUT);
    cast.play(vec![selecter(1), sender, receiver, selecter(2)]);
    ledger.expect_all_arrived();
    pipes.iter().for_each(Pipe::expect_no_waiter);
}

/// At every moment one of the two channels has a value, though not always the same.
fn a_select_without_waiting_sees_one_moment(cast: Cast) {
    let pipes = [Pipe::new(1), Pipe::new(1)];
    assert_eq!(pipes[0].send(1, NOWAIT), 0);
    let looker = {
        let [a, b] = pipes.clone();
        actor(move || {
            let mut values = [NOTHING; 2];
            let [of_a, of_b] = &mut values;
            let cases = [a.case(Op::Recv, of_a), b.case(Op::Recv, of_b)];
            // SAFETY: elements are numbers.
            assert!(unsafe { select(&cases, NOWAIT) }.is_ok(), "it has seen none");
        })
    };
    let mover = {
        let [a, b] = pipes.clone();
        actor(move || {
            assert_eq!(b.send(2, NOWAIT), 0);
            let _ = a.recv(NOWAIT);
        })
    };
    cast.play(vec![looker, mover]);
}

/// A channel in memory that stays, so that a use after its end is noticed.
struct Place(MaybeUninit<Chan>);

// SAFETY: a channel's.
unsafe impl Send for Place {}
// SAFETY: likewise.
unsafe impl Sync for Place {}

/// What the memory is filled with.
const GONE: u8 = 0xa5;

/// The sender may still be in its call, but it uses the channel no more.
fn the_receiver_frees_the_channel_at_once(cast: Cast) {
    let chan = *Chan::new(size_of::<u64>(), 0).unwrap();
    let place = Arc::new(Place(MaybeUninit::new(chan)));
    let at = |place: &Arc<Place>| place.0.as_ptr().cast_mut();
    let p = place.clone();
    let sender = actor(move || {
        let value = 7u64;
        // SAFETY: the receiver frees it after it has received.
        assert_eq!(unsafe { send(&*at(&p), (&raw const value).cast(), FOREVER) }, 0);
    });
    let p = place.clone();
    let receiver = actor(move || {
        let mut value = NOTHING;
        // SAFETY: freed only once; the memory stays.
        unsafe {
            assert_eq!(recv(&*at(&p), (&raw mut value).cast(), FOREVER), 0);
            at(&p).drop_in_place();
            at(&p).cast::<u8>().write_bytes(GONE, size_of::<Chan>());
        }
        assert_eq!(value, 7);
    });
    cast.play(vec![sender, receiver]);
    // SAFETY: filled above.
    let bytes = unsafe { std::slice::from_raw_parts(at(&place).cast::<u8>(), size_of::<Chan>()) };
    assert!(bytes.iter().all(|&b| b == GONE), "the channel was used after its end");
}

/// The receiver is woken by the value or by the cancel, and the sender knows by
/// which.
#[test]
fn a_cancel_meets_a_send() {
    check(2000, || {
        let (pipe, ledger) = (Pipe::new(0), Ledger::default());
        in_runtime(2, 1, || {
            let (p, l) = (pipe.clone(), ledger.clone());
            let g = go_referenced(move || match p.recv(FOREVER) {
                Ok(value) => l.arrived(value),
                Err(e) => assert_eq!(e, -libc::ECANCELED),
            });
            let cancel = Plain::start(cancel(g));
            sender(&pipe, &ledger, 1, soon, libc::ETIMEDOUT)();
            cancel.join();
            assert_eq!(goroutine::join(g, FOREVER), 0);
            goroutine::release(g);
        });
        ledger.expect_all_arrived();
        pipe.expect_no_waiter();
    });
}

/// A select is cancelled, gets a value or sees the close: one of the three.
#[test]
fn a_cancel_meets_a_select_and_a_close() {
    check(2000, || {
        let (pipe, closing, ledger) = (Pipe::new(0), Pipe::new(0), Ledger::default());
        let woken = Arc::new(AtomicBool::new(false));
        in_runtime(2, 1, || {
            let (p, c, l, w) = (pipe.clone(), closing.clone(), ledger.clone(), woken.clone());
            let g = go_referenced(move || {
                match exchange(&c, &p, 5, &l, FOREVER) {
                    Ok(()) => {}
                    Err(e) => assert!(e == -libc::ECANCELED || e == -libc::EPIPE, "{e}"),
                }
                assert!(!w.swap(true, Ordering::Relaxed), "it wakes up twice");
            });
            let cancel = Plain::start(cancel(g));
            let c = closing.clone();
            let close = Plain::start(move || assert_eq!(c.close(), 0));
            sender(&pipe, &ledger, 1, soon, libc::ETIMEDOUT)();
            cancel.join();
            close.join();
            assert_eq!(goroutine::join(g, FOREVER), 0);
            goroutine::release(g);
        });
        assert!(woken.load(Ordering::Relaxed));
        ledger.expect_all_arrived();
        pipe.expect_no_waiter();
        closing.expect_no_waiter();
    });
}

/// As `gs_cancel` does.
fn cancel(g: GRef) -> impl FnOnce() + Send + 'static {
    struct Shared(GRef);
    // SAFETY: a pointer to what stays while there are references.
    unsafe impl Send for Shared {}
    let g = Shared(g);
    move || {
        let Shared(g) = { g };
        shuttle_models::sched::lifecycle::cancel::cancel(g);
    }
}
