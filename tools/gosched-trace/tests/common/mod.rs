//! Writes traces for the tests: good ones, and each kind of bad ones.

#![allow(dead_code, reason = "each test uses a part")]

use std::collections::BTreeMap;

/// No M.
pub const NONE: u64 = u64::MAX;
/// When the traces begin, in nanoseconds.
pub const START: u64 = 1_000_000_000;

/// The numbers of events, and of states.
pub mod event {
    pub const PROCS_CHANGE: u8 = 9;
    pub const PROC_START: u8 = 10;
    pub const PROC_STOP: u8 = 11;
    pub const PROC_STEAL: u8 = 12;
    pub const PROC_STATUS: u8 = 13;
    pub const GO_CREATE: u8 = 14;
    pub const GO_CREATE_SYSCALL: u8 = 15;
    pub const GO_START: u8 = 16;
    pub const GO_DESTROY: u8 = 17;
    pub const GO_DESTROY_SYSCALL: u8 = 18;
    pub const GO_STOP: u8 = 19;
    pub const GO_BLOCK: u8 = 20;
    pub const GO_UNBLOCK: u8 = 21;
    pub const SYSCALL_BEGIN: u8 = 22;
    pub const SYSCALL_END: u8 = 23;
    pub const SYSCALL_END_BLOCKED: u8 = 24;
    pub const GO_STATUS: u8 = 25;
    pub const STW_BEGIN: u8 = 26;
    pub const STW_END: u8 = 27;
    pub const HEAP_ALLOC: u8 = 37;
    pub const GO_LABEL: u8 = 39;
    pub const TASK_BEGIN: u8 = 40;
    pub const TASK_END: u8 = 41;
    pub const REGION_BEGIN: u8 = 42;
    pub const REGION_END: u8 = 43;
    pub const LOG: u8 = 44;
    pub const GO_SWITCH: u8 = 45;
    pub const GO_SWITCH_DESTROY: u8 = 46;
    pub const GO_CREATE_BLOCKED: u8 = 47;
    pub const GO_STATUS_STACK: u8 = 48;
}

pub const RUNNABLE: u64 = 1;
pub const RUNNING: u64 = 2;
pub const SYSCALL: u64 = 3;
pub const WAITING: u64 = 4;
pub const P_RUNNING: u64 = 1;
pub const P_IDLE: u64 = 2;
pub const P_SYSCALL: u64 = 3;
pub const P_ABANDONED: u64 = 4;

pub fn uleb(out: &mut Vec<u8>, mut value: u64) {
    while value >= 128 {
        out.push(value as u8 | 128);
        value >>= 7;
    }
    out.push(value as u8);
}

/// What a file leaves out or has too much of.
#[derive(Clone, Copy, Default)]
pub struct Lack {
    pub sync: bool,
    pub snapshot: bool,
    pub end: bool,
}

/// A generation that is being written.
pub struct Generation {
    number: u64,
    begin: u64,
    /// For each M: the time of its first event and of its last, and its events.
    ms: BTreeMap<u64, (u64, u64, Vec<u8>)>,
    strings: Vec<String>,
    stacks: Vec<Vec<(u64, u64, u64)>>,
    samples: Vec<u8>,
}

impl Generation {
    pub fn new(number: u64, begin: u64) -> Generation {
        let (strings, stacks, samples) = (Vec::new(), Vec::new(), Vec::new());
        Generation { number, begin, ms: BTreeMap::new(), strings, stacks, samples }
    }

    /// The id of a string.
    pub fn string(&mut self, text: &str) -> u64 {
        if let Some(at) = self.strings.iter().position(|other| other == text) {
            return at as u64 + 1;
        }
        self.strings.push(text.to_string());
        self.strings.len() as u64
    }

    /// The id of a stack: its functions, the innermost first.
    pub fn stack(&mut self, functions: &[&str]) -> u64 {
        let frames = functions
            .iter()
            .map(|function| (self.string(function), self.string("source.c"), function.len() as u64))
            .collect();
        self.stacks.push(frames);
        self.stacks.len() as u64
    }

    /// An event of an M, `at` nanoseconds behind the generation's begin.
    pub fn event(&mut self, m: u64, at: u64, kind: u8, args: &[u64]) {
        let time = self.begin + at;
        let (_, last, data) = self.ms.entry(m).or_insert((time, time, Vec::new()));
        data.push(kind);
        uleb(data, time.checked_sub(*last).expect("an M's events are in order"));
        *last = time;
        for &arg in args {
            uleb(data, arg);
        }
    }

    pub fn sample(&mut self, at: u64, m: u64, p: u64, g: u64, stack: u64) {
        self.samples.push(7);
        for value in [self.begin + at, m, p, g, stack] {
            uleb(&mut self.samples, value);
        }
    }

    fn batch(&self, out: &mut Vec<u8>, m: u64, time: u64, data: &[u8]) {
        out.push(1);
        for value in [self.number, m, time, data.len() as u64] {
            uleb(out, value);
        }
        out.extend_from_slice(data);
    }

    /// The generation, for a format of this version.
    pub fn write(&self, version: u32, lack: Lack) -> Vec<u8> {
        let mut out = Vec::new();
        if !lack.sync {
            let mut data = Vec::new();
            if version >= 25 {
                data.push(50);
            }
            data.push(8);
            uleb(&mut data, 1_000_000_000);
            if version >= 25 && !lack.snapshot {
                data.push(51);
                for value in [0, self.begin + 5_000, 1_790_000_000, 7] {
                    uleb(&mut data, value);
                }
            }
            self.batch(&mut out, NONE, self.begin, &data);
        }
        for (&m, (begin, _, data)) in &self.ms {
            self.batch(&mut out, m, *begin, data);
        }
        if !self.samples.is_empty() {
            let data = [&[6][..], &self.samples].concat();
            self.batch(&mut out, NONE, self.begin, &data);
        }
        let mut data = vec![2];
        for (at, frames) in self.stacks.iter().enumerate() {
            data.push(3);
            uleb(&mut data, at as u64 + 1);
            uleb(&mut data, frames.len() as u64);
            for &(function, file, line) in frames {
                for value in [0x1000 + 16 * function, function, file, line] {
                    uleb(&mut data, value);
                }
            }
        }
        self.batch(&mut out, NONE, self.begin, &data);
        let mut data = vec![4];
        for (at, text) in self.strings.iter().enumerate() {
            data.push(5);
            uleb(&mut data, at as u64 + 1);
            uleb(&mut data, text.len() as u64);
            data.extend_from_slice(text.as_bytes());
        }
        self.batch(&mut out, NONE, self.begin, &data);
        if version >= 26 && !lack.end {
            out.push(52);
        }
        out
    }
}

/// A file of this version.
pub fn file(version: u32, generations: &[&Generation]) -> Vec<u8> {
    let mut out = format!("go 1.{version} trace\0\0\0").into_bytes();
    for generation in generations {
        out.extend(generation.write(version, Lack::default()));
    }
    out
}

/// A generation of which each event comes 10 ns after the one before. P 0 and goroutine 1 run on M 1.
pub fn one(events: &[(u64, u8, &[u64])]) -> Generation {
    let mut generation = Generation::new(1, START);
    generation.event(1, 0, event::PROC_STATUS, &[0, P_RUNNING]);
    generation.event(1, 5, event::GO_STATUS, &[1, 1, RUNNING]);
    for (place, &(m, kind, args)) in events.iter().enumerate() {
        generation.event(m, 10 * (place as u64 + 1), kind, args);
    }
    generation
}

/// What a scheduler writes: two M's that spawn, park, wake, call and hand over; two generations.
pub fn scheduler() -> [Generation; 2] {
    use event::*;
    let mut g = Generation::new(7, START);
    let [main, worker, reads, coroutine, thread] = [
        g.stack(&["spawn", "main"]),
        g.stack(&["worker"]),
        g.stack(&["read", "worker"]),
        g.stack(&["coroutine"]),
        g.stack(&["from a thread"]),
    ];
    let (receive, preempted, network) =
        (g.string("chan receive"), g.string("preempted"), g.string("network"));
    let (request, parse, key, length, five, stop) = (
        g.string("request"),
        g.string("parse"),
        g.string("path"),
        g.string("queue"),
        g.string("5"),
        g.string("gs_stop"),
    );
    let (a, b) = (11, 12);
    g.event(a, 0, PROC_STATUS, &[0, P_RUNNING]);
    g.event(a, 1, PROC_STATUS, &[1, P_IDLE]);
    g.event(a, 2, GO_STATUS_STACK, &[1, a, RUNNING, main]);
    g.event(NONE, 3, GO_STATUS_STACK, &[4, NONE, WAITING, reads]);
    g.event(NONE, 4, GO_STATUS, &[5, 13, SYSCALL]);
    g.event(a, 5, PROCS_CHANGE, &[2, 0]);
    g.event(a, 10, GO_CREATE, &[2, worker, main]);
    g.event(a, 11, TASK_BEGIN, &[3, 0, request, 0]);
    g.event(a, 12, REGION_BEGIN, &[3, parse, 0]);
    g.event(a, 13, LOG, &[3, key, request, 0]);
    g.event(a, 14, LOG, &[0, length, five, 0]);
    g.event(a, 15, REGION_END, &[3, parse, 0]);
    g.event(a, 16, HEAP_ALLOC, &[4096]);
    // M b takes P 1, and runs what M a has spawned.
    g.event(b, 17, PROC_START, &[1, 1]);
    g.event(b, 18, GO_START, &[2, 1]);
    g.event(b, 20, GO_BLOCK, &[receive, worker]);
    g.event(b, 21, PROC_STOP, &[]);
    g.event(a, 30, GO_UNBLOCK, &[2, 2, main]);
    g.event(b, 31, PROC_START, &[1, 2]);
    g.event(b, 32, GO_START, &[2, 3]);
    // A fast call, and a slow one that loses its P.
    g.event(b, 40, SYSCALL_BEGIN, &[3, reads]);
    g.event(b, 41, SYSCALL_END, &[]);
    g.event(b, 50, SYSCALL_BEGIN, &[4, reads]);
    g.event(a, 60, PROC_STEAL, &[1, 5, b]);
    g.event(b, 70, SYSCALL_END_BLOCKED, &[]);
    g.event(b, 71, PROC_START, &[1, 6]);
    g.event(b, 72, GO_START, &[2, 4]);
    g.event(b, 80, GO_STOP, &[preempted, worker]);
    g.event(b, 81, GO_START, &[2, 5]);
    g.event(b, 82, GO_LABEL, &[request]);
    g.event(b, 90, GO_DESTROY, &[]);
    // Hand-over.
    g.event(a, 100, GO_CREATE_BLOCKED, &[3, coroutine, 0]);
    g.event(a, 110, GO_SWITCH, &[3, 1]);
    g.event(a, 120, GO_SWITCH_DESTROY, &[1, 1]);
    g.event(a, 130, STW_BEGIN, &[stop, 0]);
    g.event(a, 140, STW_END, &[]);
    // A thread without a P wakes a goroutine.
    g.event(14, 150, GO_UNBLOCK, &[4, 1, 0]);
    g.event(b, 151, GO_START, &[4, 2]);
    g.event(b, 160, GO_BLOCK, &[network, reads]);
    // A goroutine of a thread, which the M that takes it from the queue creates.
    g.event(b, 170, GO_CREATE, &[6, thread, 0]);
    g.event(b, 171, GO_START, &[6, 1]);
    g.sample(175, b, 1, 6, thread);
    g.event(b, 180, GO_DESTROY, &[]);
    // A thread that calls in.
    g.event(15, 185, GO_CREATE_SYSCALL, &[8]);
    g.event(b, 181, PROC_STOP, &[]);
    g.event(15, 186, PROC_START, &[1, 7]);
    g.event(15, 187, SYSCALL_END_BLOCKED, &[]);
    g.event(15, 188, GO_START, &[8, 1]);
    g.event(15, 190, SYSCALL_BEGIN, &[8, 0]);
    g.event(15, 191, PROC_STEAL, &[1, 9, 15]);
    g.event(15, 192, GO_DESTROY_SYSCALL, &[]);

    let mut h = Generation::new(8, START + 1000);
    let main = h.stack(&["main"]);
    h.event(a, 1, PROC_STATUS, &[0, P_RUNNING]);
    h.event(a, 2, GO_STATUS, &[1, a, RUNNING]);
    h.event(a, 3, PROC_STATUS, &[1, P_IDLE]);
    h.event(NONE, 4, GO_STATUS, &[4, NONE, WAITING]);
    h.event(NONE, 5, GO_STATUS, &[5, 13, SYSCALL]);
    h.event(a, 10, GO_UNBLOCK, &[4, 1, main]);
    h.event(a, 11, TASK_END, &[3, 0]);
    h.event(b, 20, PROC_START, &[1, 1]);
    h.event(b, 21, GO_START, &[4, 2]);
    h.event(b, 30, GO_DESTROY, &[]);
    h.event(a, 40, GO_DESTROY, &[]);
    [g, h]
}

/// Traces that are valid, by name.
pub fn good() -> Vec<(&'static str, Vec<u8>)> {
    use event::*;
    let [first, second] = scheduler();
    let mut all = vec![
        ("scheduler", file(26, &[&first, &second])),
        ("scheduler-1.25", file(25, &[&first, &second])),
        ("scheduler-1.23", file(23, &[&first, &second])),
        ("scheduler-1.22", file(22, &[&first, &second])),
        ("no-goroutine", file(26, &[&Generation::new(1, START)])),
        ("small", file(26, &[&one(&[(1, GO_DESTROY, &[])])])),
        ("no-reason", file(26, &[&one(&[(1, GO_BLOCK, &[0, 0])])])),
        (
            "start-on-the-same-p",
            file(26, &[&one(&[(1, GO_STOP, &[0, 0]), (1, GO_START, &[1, 1])])]),
        ),
    ];
    let mut add = |name, events: &[(u64, u8, &[u64])]| all.push((name, file(26, &[&one(events)])));
    // M 2 blocks without a word; M 1 writes the begin of a call for it.
    add(
        "preempt-a-blocked-m",
        &[
            (2, PROC_STATUS, &[1, P_RUNNING]),
            (2, GO_STATUS, &[2, 2, RUNNING]),
            (2, SYSCALL_BEGIN, &[1, 0]),
            (1, PROC_STEAL, &[1, 2, 2]),
            (2, SYSCALL_END_BLOCKED, &[]),
            (1, PROC_STOP, &[]),
            (2, PROC_START, &[1, 3]),
            (2, GO_START, &[2, 1]),
        ],
    );
    add(
        "p-before-the-end-of-the-call",
        &[
            (2, PROC_STATUS, &[1, P_RUNNING]),
            (2, GO_STATUS, &[2, 2, RUNNING]),
            (2, SYSCALL_BEGIN, &[1, 0]),
            (1, PROC_STEAL, &[1, 2, 2]),
            (2, PROC_START, &[1, 3]),
            (2, SYSCALL_END_BLOCKED, &[]),
            (2, GO_START, &[2, 1]),
        ],
    );
    add(
        "call-that-stops-its-p",
        &[
            (1, SYSCALL_BEGIN, &[1, 0]),
            (1, PROC_STOP, &[]),
            (1, SYSCALL_END_BLOCKED, &[]),
            (1, PROC_START, &[0, 2]),
            (1, GO_START, &[1, 1]),
        ],
    );
    add(
        "call-in-with-a-p-left-behind",
        &[
            (2, PROC_STATUS, &[1, P_IDLE]),
            (9, GO_CREATE_SYSCALL, &[7]),
            (9, PROC_START, &[1, 1]),
            (9, SYSCALL_END_BLOCKED, &[]),
            (9, GO_START, &[7, 1]),
            (9, SYSCALL_BEGIN, &[2, 0]),
            (9, GO_DESTROY_SYSCALL, &[]),
            (1, PROC_STEAL, &[1, 3, 9]),
            (2, PROC_START, &[1, 4]),
        ],
    );
    add(
        "create-without-a-goroutine",
        &[(9, PROC_STATUS, &[5, P_RUNNING]), (9, GO_CREATE, &[7, 0, 0]), (9, PROC_STOP, &[])],
    );
    add(
        "wake-by-no-thread",
        &[(NONE, GO_STATUS, &[5, NONE, WAITING]), (NONE, GO_UNBLOCK, &[5, 1, 0])],
    );
    add("wake-before-the-end", &[(1, SYSCALL_BEGIN, &[1, 0])]);
    // The file has M 2 and its GoStart before the GoCreate, whose clock is ahead.
    let mut clocks = one(&[(1, PROC_STATUS, &[1, P_IDLE])]);
    clocks.event(1, 500, GO_CREATE, &[2, 0, 0]);
    clocks.event(0, 100, PROC_START, &[1, 1]);
    clocks.event(0, 110, GO_START, &[2, 1]);
    all.push(("clocks-that-disagree", file(26, &[&clocks])));
    let numbers: Vec<_> = [1, 5, 3].map(|number| Generation::new(number, START + number)).into();
    all.push(("generations-of-any-number", file(26, &numbers.iter().collect::<Vec<_>>())));
    all
}

/// Traces that are not valid, by name, and a part of what the reader says of each.
pub fn bad() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    use event::*;
    let mut all = Vec::new();
    let mut add = |name, events: &[(u64, u8, &[u64])], said| {
        all.push((name, file(26, &[&one(events)]), said));
    };
    let waits = "no event can happen next";
    add("create-without-p", &[(9, GO_CREATE, &[7, 0, 0])], "needs an M with a P");
    add(
        "start-without-p",
        &[(2, GO_STATUS, &[5, NONE, RUNNABLE]), (2, GO_START, &[5, 1])],
        "needs an M with a P",
    );
    add(
        "two-goroutines-on-an-m",
        &[(1, GO_STATUS, &[5, NONE, RUNNABLE]), (1, GO_START, &[5, 1])],
        "without a goroutine",
    );
    add(
        "gap",
        &[(1, GO_STOP, &[0, 0]), (1, GO_STATUS, &[5, NONE, RUNNABLE]), (1, GO_START, &[5, 2])],
        waits,
    );
    add("no-status", &[(1, GO_STOP, &[0, 0]), (1, GO_START, &[5, 1])], waits);
    add("second-p", &[(1, PROC_STATUS, &[1, P_IDLE]), (1, PROC_START, &[1, 1])], waits);
    add(
        "steal-of-a-running-p",
        &[(2, PROC_STATUS, &[1, P_RUNNING]), (1, PROC_STEAL, &[1, 1, 2])],
        waits,
    );
    add(
        "end-of-a-call-that-blocks-with-its-p",
        &[(1, SYSCALL_BEGIN, &[1, 0]), (1, SYSCALL_END_BLOCKED, &[])],
        waits,
    );
    add("call-with-a-wrong-number", &[(1, SYSCALL_BEGIN, &[2, 0])], "doesn't follow 0");
    add("end-without-a-call", &[(1, SYSCALL_END, &[])], "not syscall");
    add(
        "wake-of-a-runnable",
        &[(1, GO_STATUS, &[5, NONE, RUNNABLE]), (1, GO_UNBLOCK, &[5, 1, 0])],
        waits,
    );
    add("wake-of-an-unknown-goroutine", &[(1, GO_UNBLOCK, &[77, 1, 0])], waits);
    add("no-string", &[(1, GO_BLOCK, &[99, 0])], "the string 99");
    add("no-stack", &[(1, GO_BLOCK, &[0, 99])], "the stack 99");
    add("born-twice", &[(1, GO_CREATE, &[1, 0, 0])], "exists already");
    add("call-of-no-thread", &[(NONE, GO_STATUS, &[5, NONE, SYSCALL])], "the M is missing");
    add("status-of-none", &[(1, GO_STATUS, &[5, NONE, 9])], "the status 9");
    add("p-status-of-none", &[(1, PROC_STATUS, &[5, 9])], "the status 9");
    add("another-status", &[(1, GO_STATUS, &[1, NONE, WAITING])], "its status says waiting");
    add(
        "procs-without-a-goroutine",
        &[(1, GO_STOP, &[0, 0]), (1, PROCS_CHANGE, &[2, 0])],
        "with a goroutine",
    );
    add("stop-twice", &[(1, PROC_STOP, &[]), (1, PROC_STOP, &[])], "with a P");
    add("stops-nested", &[(1, STW_BEGIN, &[0, 0]), (1, STW_BEGIN, &[0, 0])], "begun it already");
    add(
        "task-twice",
        &[(1, TASK_BEGIN, &[3, 0, 0, 0]), (1, TASK_BEGIN, &[3, 0, 0, 0])],
        "has begun already",
    );
    add("switch-to-a-runnable", &[(1, GO_CREATE, &[2, 0, 0]), (1, GO_SWITCH, &[2, 1])], waits);
    add("no-such-event", &[(1, 77, &[])], "is no event");
    add("event-of-a-table", &[(1, 5, &[])], "is no event");
    let mut regions = one(&[]);
    let (one_name, other) = (regions.string("one"), regions.string("other"));
    regions.event(1, 10, REGION_BEGIN, &[0, one_name, 0]);
    regions.event(1, 20, REGION_END, &[0, other, 0]);
    all.push(("regions-that-cross", file(26, &[&regions]), "within the region"));
    let mut late = Generation::new(2, START + 900);
    late.event(1, 0, GO_STATUS, &[42, NONE, WAITING]);
    all.push(("late-status", file(26, &[&one(&[]), &late]), "is new"));
    let mut long = one(&[]);
    long.string(&"x".repeat(1025));
    all.push(("long-string", file(26, &[&long]), "a string of 1025 bytes"));
    let mut deep = one(&[]);
    deep.stack(&["f"; 129]);
    all.push(("deep-stack", file(26, &[&deep]), "a stack of 129 frames"));
    let mut lack = |name, lack: Lack, said| {
        let mut data = file(26, &[]);
        data.extend(one(&[]).write(26, lack));
        all.push((name, data, said));
    };
    lack("no-sync", Lack { sync: true, ..Lack::default() }, "no frequency");
    lack("no-snapshot", Lack { snapshot: true, ..Lack::default() }, "no snapshot");
    lack("no-end", Lack { end: true, ..Lack::default() }, "the file ends within");
    all.push(("new-format", file(27, &[&one(&[])]), "the format go 1.27 is unknown"));
    all.push(("no-trace", b"#!/bin/sh\nexit 0\n".to_vec(), "no Go execution trace"));
    all.push(("nothing", Vec::new(), "no Go execution trace"));
    all
}
