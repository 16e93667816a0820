//! Random sequences of operations on channels, against a model of what Go's channels do. When a
//! sequence fails, proptest prints the shortest that it finds.
//!
//! One P and no preemption: a goroutine that begins an operation runs until the operation is over or
//! waits. So the order of everything is known, and the model says after each step which operations
//! are over, and with what.

use core::ffi::c_void;
use gosched::capi::*;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use std::cell::Cell;
use std::collections::VecDeque;
use std::ptr;
use std::sync::Once;

/// A step, on the channel with this number.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A goroutine sends, and waits if it must.
    Send(usize),
    /// A goroutine receives, and waits if it must.
    Receive(usize),
    TrySend(usize),
    TryReceive(usize),
    /// One of: receive from the first channel, send to the second. It does not wait.
    TrySelect(usize, usize),
    Close(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let channel = || 0..CHANNELS;
    prop_oneof![
        6 => channel().prop_map(Step::Send),
        6 => channel().prop_map(Step::Receive),
        2 => channel().prop_map(Step::TrySend),
        2 => channel().prop_map(Step::TryReceive),
        2 => (channel(), channel()).prop_map(|(a, b)| Step::TrySelect(a, b)),
        1 => channel().prop_map(Step::Close),
    ]
}

/// Channels of a sequence.
const CHANNELS: usize = 3;
/// The deadline of an operation that does not wait.
const NOW: gs_deadline = GS_NOWAIT;

// ---- The model ----

/// What an operation has given: its result, and the element that was received.
type Outcome = (i32, u64);

/// The number of a goroutine's operation.
type Id = usize;

#[derive(Default)]
struct Model {
    capacity: usize,
    closed: bool,
    buffer: VecDeque<u64>,
    senders: VecDeque<(Id, u64)>,
    receivers: VecDeque<Id>,
}

impl Model {
    /// What a send gives at once; `None`: it would wait. `over` gets those that it ends.
    fn send(&mut self, value: u64, over: &mut impl FnMut(Id, Outcome)) -> Option<Outcome> {
        if self.closed {
            return Some((-libc::EPIPE, value));
        }
        if let Some(receiver) = self.receivers.pop_front() {
            over(receiver, (0, value));
        } else if self.buffer.len() < self.capacity {
            self.buffer.push_back(value);
        } else {
            return None;
        }
        Some((0, value))
    }

    /// What a receive gives at once; `None`: it would wait.
    fn receive(&mut self, over: &mut impl FnMut(Id, Outcome)) -> Option<Outcome> {
        if let Some((sender, value)) = self.senders.pop_front() {
            over(sender, (0, value));
            self.buffer.push_back(value);
        }
        match self.buffer.pop_front() {
            Some(value) => Some((0, value)),
            None if self.closed => Some((-libc::EPIPE, 0)),
            None => None,
        }
    }

    fn close(&mut self, over: &mut impl FnMut(Id, Outcome)) -> i32 {
        if self.closed {
            return -libc::EPIPE;
        }
        self.closed = true;
        self.senders.drain(..).for_each(|(id, value)| over(id, (-libc::EPIPE, value)));
        self.receivers.drain(..).for_each(|id| over(id, (-libc::EPIPE, 0)));
        0
    }

    fn can_send(&self) -> bool {
        self.closed || !self.receivers.is_empty() || self.buffer.len() < self.capacity
    }

    fn can_receive(&self) -> bool {
        self.closed || !self.senders.is_empty() || !self.buffer.is_empty()
    }
}

// ---- The library ----

/// A goroutine with one operation.
struct Actor {
    channel: *mut gs_chan,
    sends: bool,
    value: Cell<u64>,
    began: Cell<bool>,
    result: Cell<Option<i32>>,
}

impl Actor {
    fn outcome(&self) -> Option<Outcome> {
        self.result.get().map(|result| (result, self.value.get()))
    }
}

unsafe extern "C" fn act(actor: *mut c_void) {
    // SAFETY: the goroutine that spawned this one keeps the actor until the operation is over, and
    // both run on one P.
    let actor = unsafe { &*actor.cast::<Actor>() };
    actor.began.set(true);
    let mut value = actor.value.get();
    // SAFETY: the channel is freed after the last operation, and carries u64.
    let result = unsafe {
        match actor.sends {
            true => gs_chan_send(actor.channel, (&raw const value).cast(), GS_FOREVER),
            false => gs_chan_recv(actor.channel, (&raw mut value).cast(), GS_FOREVER),
        }
    };
    actor.value.set(value);
    actor.result.set(Some(result));
}

/// A sequence, and what was wrong with it.
struct Case {
    capacities: [usize; CHANNELS],
    /// The capacities of the models. Others than those of the channels are an error that the sequence
    /// may find.
    modelled: [usize; CHANNELS],
    steps: Vec<Step>,
    verdict: Result<(), TestCaseError>,
}

unsafe extern "C" fn play(case: *mut c_void) {
    // SAFETY: the case of `run_case`, which waits for this goroutine.
    let case = unsafe { &mut *case.cast::<Case>() };
    case.verdict = case.play();
}

impl Case {
    fn play(&self) -> Result<(), TestCaseError> {
        let channels = self.capacities.map(|n| gs_chan_make(size_of::<u64>(), n));
        let mut models = self.modelled.map(|capacity| Model { capacity, ..Model::default() });
        let mut actors: Vec<Box<Actor>> = Vec::new();
        let mut expected: Vec<Option<Outcome>> = Vec::new();
        let close_all = (0..CHANNELS).map(Step::Close);
        for (number, step) in self.steps.iter().copied().chain(close_all).enumerate() {
            // A value that no other step sends.
            let mut value = number as u64 + 1;
            let id = actors.len();
            let mut over = |id: Id, outcome| expected[id] = Some(outcome);
            let mut start = |channel: usize, sends: bool| {
                actors.push(Box::new(Actor {
                    channel: channels[channel],
                    sends,
                    value: Cell::new(if sends { value } else { u64::MAX }),
                    began: Cell::new(false),
                    result: Cell::new(None),
                }));
                let actor = ptr::from_ref(&*actors[id]).cast_mut();
                // SAFETY: the actors live until all have ended.
                assert_eq!(unsafe { gs_spawn(Some(act), actor.cast()) }, 0);
                while !actors[id].began.get() {
                    gs_yield();
                }
            };
            match step {
                Step::Send(c) => {
                    let outcome = models[c].send(value, &mut over);
                    expected.push(outcome);
                    if outcome.is_none() {
                        models[c].senders.push_back((id, value));
                    }
                    start(c, true);
                }
                Step::Receive(c) => {
                    let outcome = models[c].receive(&mut over);
                    expected.push(outcome);
                    if outcome.is_none() {
                        models[c].receivers.push_back(id);
                    }
                    start(c, false);
                }
                Step::TrySend(c) => {
                    let wanted = models[c].send(value, &mut over).map_or(-libc::EAGAIN, |o| o.0);
                    // SAFETY: the channel carries u64.
                    let got = unsafe { gs_chan_send(channels[c], (&raw const value).cast(), NOW) };
                    prop_assert_eq!(got, wanted, "step {}, {:?}", number, step);
                }
                Step::TryReceive(c) => {
                    let wanted = models[c].receive(&mut over).unwrap_or((-libc::EAGAIN, value));
                    // SAFETY: the channel carries u64.
                    let got = unsafe { gs_chan_recv(channels[c], (&raw mut value).cast(), NOW) };
                    prop_assert_eq!((got, value), wanted, "step {}, {:?}", number, step);
                }
                Step::TrySelect(from, to) => {
                    let mut received = u64::MAX;
                    let mut cases = [
                        gs_case {
                            ch: channels[from],
                            elem: (&raw mut received).cast(),
                            op: GS_RECV,
                            result: 1,
                        },
                        gs_case {
                            ch: channels[to],
                            elem: (&raw mut value).cast(),
                            op: GS_SEND,
                            result: 1,
                        },
                    ];
                    let ready = [models[from].can_receive(), models[to].can_send()];
                    // SAFETY: two cases, whose channels carry u64.
                    let chosen = unsafe { gs_select(cases.as_mut_ptr(), cases.len(), NOW) };
                    match chosen {
                        0 if ready[0] => {
                            let wanted = models[from].receive(&mut over);
                            let got = Some((cases[0].result, received));
                            prop_assert_eq!(got, wanted, "step {}, {:?}", number, step);
                        }
                        1 if ready[1] => {
                            let wanted = models[to].send(value, &mut over).map(|o| o.0);
                            let got = Some(cases[1].result);
                            prop_assert_eq!(got, wanted, "step {}, {:?}", number, step);
                        }
                        _ => {
                            let nothing_is_ready = ready == [false, false];
                            prop_assert_eq!(chosen, -libc::EAGAIN, "step {}, {:?}", number, step);
                            prop_assert!(
                                nothing_is_ready,
                                "step {}, {:?}: a case was ready",
                                number,
                                step
                            );
                        }
                    }
                }
                Step::Close(c) => {
                    let wanted = models[c].close(&mut over);
                    // SAFETY: a channel.
                    let got = unsafe { gs_chan_close(channels[c]) };
                    prop_assert_eq!(got, wanted, "step {}, {:?}", number, step);
                }
            }
            // Those that the step has made ready run now: as many turns as there are goroutines.
            (0..=actors.len()).for_each(|_| gs_yield());
            let got: Vec<_> = actors.iter().map(|actor| actor.outcome()).collect();
            prop_assert_eq!(&got, &expected, "after step {}, {:?}", number, step);
            for (&channel, model) in channels.iter().zip(&models) {
                // SAFETY: a channel.
                let sizes = unsafe { (gs_chan_len(channel), gs_chan_cap(channel)) };
                let wanted = (model.buffer.len(), model.capacity);
                prop_assert_eq!(sizes, wanted, "after step {}, {:?}", number, step);
            }
        }
        for channel in channels {
            // SAFETY: all channels are closed, so no goroutine waits in one.
            prop_assert_eq!(unsafe { gs_chan_free(channel) }, 0);
        }
        Ok(())
    }
}

/// In a goroutine, on one P.
fn run_case(
    capacities: [usize; CHANNELS],
    modelled: [usize; CHANNELS],
    steps: Vec<Step>,
) -> Result<(), TestCaseError> {
    static INIT: Once = Once::new();
    INIT.call_once(|| {
        // SAFETY: all zero is a configuration that asks for nothing.
        let mut config: gs_config = unsafe { core::mem::zeroed() };
        config.size = size_of::<gs_config>();
        config.gomaxprocs = 1;
        config.flags = GS_CONFIG_COOPERATIVE;
        // SAFETY: the configuration is whole.
        assert_eq!(unsafe { gs_init(&raw const config) }, 0);
    });
    let mut case = Case { capacities, modelled, steps, verdict: Ok(()) };
    // SAFETY: `case` stays until the goroutine has ended.
    let result = unsafe { gs_run(Some(play), (&raw mut case).cast()) };
    assert_eq!(result, 0);
    case.verdict
}

proptest! {
    #[test]
    fn channels_do_what_the_model_does(
        capacities in [0usize..4, 0usize..4, 0usize..4],
        steps in prop::collection::vec(step(), 0..60),
    ) {
        run_case(capacities, capacities, steps)?;
    }
}

/// The test above can fail.
#[test]
fn a_model_of_another_capacity_is_found_wrong() {
    let steps = vec![Step::TrySend(0), Step::TrySend(0)];
    assert!(run_case([1, 0, 0], [1, 0, 0], steps.clone()).is_ok());
    assert!(run_case([1, 0, 0], [2, 0, 0], steps).is_err());
    let steps = vec![Step::Receive(1), Step::Send(1), Step::TrySend(1)];
    assert!(run_case([0; CHANNELS], [0; CHANNELS], steps.clone()).is_ok());
    assert!(run_case([0; CHANNELS], [0, 1, 0], steps).is_err());
}
