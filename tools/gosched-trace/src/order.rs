//! The rules of the scheduler: which event of an M may come next, and what it changes.
//!
//! Each M, P and goroutine has a state. An event of an M may need a state that an event of another M brings about: it then
//! *waits* ([`Step::Wait`]). The numbers of sequence in events say which event follows which: a status or a creation sets a
//! P's or goroutine's number to 0, and each event with a number must have the next one. The rules are those of Go's
//! `internal/trace/order.go`.

use std::collections::HashMap;

use crate::generation::Tables;
use crate::wire::{Arg, Kind, MAX_ARGS, NONE};

/// The states of a goroutine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GoState {
    Runnable,
    Running,
    Syscall,
    Waiting,
}

impl GoState {
    pub fn from_number(number: u64) -> Option<GoState> {
        match number {
            1 => Some(GoState::Runnable),
            2 => Some(GoState::Running),
            3 => Some(GoState::Syscall),
            4 => Some(GoState::Waiting),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            GoState::Runnable => "runnable",
            GoState::Running => "running",
            GoState::Syscall => "syscall",
            GoState::Waiting => "waiting",
        }
    }
}

/// The states of a P.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProcState {
    Running,
    Idle,
    Syscall,
    /// In a system call whose goroutine has left its M: the P waits to be taken.
    Abandoned,
}

impl ProcState {
    pub fn from_number(number: u64) -> Option<ProcState> {
        match number {
            1 => Some(ProcState::Running),
            2 => Some(ProcState::Idle),
            3 => Some(ProcState::Syscall),
            4 => Some(ProcState::Abandoned),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            ProcState::Running => "running",
            ProcState::Idle => "idle",
            ProcState::Syscall => "syscall",
            ProcState::Abandoned => "abandoned",
        }
    }
}

/// What an event waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// A goroutine, until the number follows its own and its state allows the event.
    G(u64, u64),
    /// A P, until the number follows its own and its state allows the event.
    P(u64, u64),
    /// An M, until another M takes its P.
    M(u64),
    /// The collector, until the number follows its own.
    Gc(u64),
}

/// What an M has when an event happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    pub m: u64,
    pub p: u64,
    pub g: u64,
}

/// Whether an event can happen.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// It has happened; the context is what it shall be shown with.
    Done(Context),
    Wait(Wait),
}

/// An event of an M, whose arguments are in [`Kind::args`].
#[derive(Clone, Copy, Debug)]
pub struct Raw {
    pub kind: Kind,
    pub args: [u64; MAX_ARGS],
}

/// A range of time of a goroutine that may be open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Range {
    Stw,
    MarkAssist,
}

struct Goroutine {
    state: GoState,
    seq: u64,
    /// The open regions, by task and name.
    regions: Vec<(u64, Box<str>)>,
    ranges: Vec<Range>,
}

struct Proc {
    state: ProcState,
    seq: u64,
    sweeps: bool,
}

#[derive(Clone, Copy)]
struct Thread {
    p: u64,
    g: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Collector {
    Unknown,
    Idle,
    Runs,
}

/// The states of all M's, P's and goroutines.
pub struct Order {
    gs: HashMap<u64, Goroutine>,
    ps: HashMap<u64, Proc>,
    ms: HashMap<u64, Thread>,
    /// The tasks that have begun.
    tasks: HashMap<u64, ()>,
    collector: Collector,
    gc_seq: u64,
    /// The number of the first generation.
    first: Option<u64>,
    /// Whether the events are those of the first generation: then what they mention may be new.
    initial: bool,
    /// What the last event has changed: events that wait for it may go on.
    pub touched: Vec<Wait>,
}

/// No number follows it: the number of what has none in this generation yet.
const NO_SEQ: u64 = u64::MAX;

/// What an event demands of the M.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Must,
    May,
    MustNot,
}

use Need::{May, Must, MustNot};

fn check(context: Context, p: Need, g: Need) -> Result<(), String> {
    let demand = |need: Need, has: bool, what: &str| match (need, has) {
        (Must, false) => Err(format!("it needs an M with a {what}, and M {} has none", context.m)),
        (MustNot, true) => {
            Err(format!("it needs an M without a {what}, and M {} has one", context.m))
        }
        _ => Ok(()),
    };
    if context.m == NONE {
        return Err("it needs an M, and its batch has none".to_string());
    }
    demand(p, context.p != NONE, "P")?;
    demand(g, context.g != NONE, "goroutine")
}

impl Order {
    pub fn new() -> Order {
        Order {
            gs: HashMap::new(),
            ps: HashMap::new(),
            ms: HashMap::new(),
            tasks: HashMap::new(),
            collector: Collector::Unknown,
            gc_seq: 0,
            first: None,
            initial: true,
            touched: Vec::new(),
        }
    }

    /// A generation with this number begins: no P and no goroutine has a number of sequence in it yet.
    pub fn begin(&mut self, generation: u64) {
        self.initial = *self.first.get_or_insert(generation) == generation;
        for proc in self.ps.values_mut() {
            proc.seq = NO_SEQ;
        }
        for goroutine in self.gs.values_mut() {
            goroutine.seq = NO_SEQ;
        }
    }

    /// Lets an event of M `m` happen, if it can. Err: it can never happen, and why.
    pub fn advance(&mut self, raw: &mut Raw, m: u64, tables: &Tables) -> Result<Step, String> {
        self.touched.clear();
        let mut context = Context { m, p: NONE, g: NONE };
        if m != NONE {
            let thread = *self.ms.entry(m).or_insert(Thread { p: NONE, g: NONE });
            context.p = thread.p;
            context.g = thread.g;
        }
        let mut next = context;
        let step = self.event(raw, context, &mut next, tables)?;
        if matches!(step, Step::Done(_)) && m != NONE {
            self.ms.insert(m, Thread { p: next.p, g: next.g });
        }
        Ok(step)
    }

    fn event(
        &mut self,
        raw: &mut Raw,
        context: Context,
        next: &mut Context,
        tables: &Tables,
    ) -> Result<Step, String> {
        let [a, b, c, _] = raw.args;
        match raw.kind {
            Kind::ProcStatus => return self.proc_status(raw, context, next),
            Kind::ProcStart => return self.proc_start(a, b, context, next),
            Kind::ProcStop => self.proc_stop(context, next)?,
            Kind::ProcSteal => return self.proc_steal(a, b, c, context, next),
            Kind::GoStatus | Kind::GoStatusStack => return self.go_status(a, b, c, context, next),
            Kind::GoCreate => self.go_create(a, GoState::Runnable, context)?,
            Kind::GoCreateBlocked => self.go_create(a, GoState::Waiting, context)?,
            Kind::GoCreateSyscall => {
                check(context, May, MustNot)?;
                self.new_goroutine(a, GoState::Syscall)?;
                next.g = a;
            }
            Kind::GoStart => {
                let Some(goroutine) = self.in_turn(a, b, GoState::Runnable) else {
                    return Ok(Step::Wait(Wait::G(a, b)));
                };
                check(context, Must, MustNot)?;
                goroutine.state = GoState::Running;
                goroutine.seq = b;
                self.touch_g(a);
                next.g = a;
            }
            Kind::GoUnblock => {
                let Some(goroutine) = self.in_turn(a, b, GoState::Waiting) else {
                    return Ok(Step::Wait(Wait::G(a, b)));
                };
                goroutine.state = GoState::Runnable;
                goroutine.seq = b;
                self.touch_g(a);
            }
            Kind::GoStop | Kind::GoBlock | Kind::GoDestroy => {
                check(context, Must, Must)?;
                let goroutine = self.current(context, GoState::Running)?;
                goroutine.state =
                    if raw.kind == Kind::GoStop { GoState::Runnable } else { GoState::Waiting };
                self.touch_g(context.g);
                if raw.kind == Kind::GoDestroy {
                    self.gs.remove(&context.g);
                }
                next.g = NONE;
            }
            Kind::GoSwitch | Kind::GoSwitchDestroy => {
                check(context, Must, Must)?;
                self.current(context, GoState::Running)?;
                let Some(goroutine) = self.in_turn(a, b, GoState::Waiting) else {
                    return Ok(Step::Wait(Wait::G(a, b)));
                };
                goroutine.state = GoState::Running;
                goroutine.seq = b;
                self.touch_g(a);
                if raw.kind == Kind::GoSwitch {
                    self.current(context, GoState::Running)?.state = GoState::Waiting;
                }
                self.touch_g(context.g);
                if raw.kind == Kind::GoSwitchDestroy {
                    self.gs.remove(&context.g);
                }
                next.g = a;
            }
            Kind::GoSyscallBegin => {
                check(context, Must, Must)?;
                self.current(context, GoState::Running)?;
                let proc = self.proc_of(context)?;
                if proc.seq.wrapping_add(1) != a || proc.seq == NO_SEQ {
                    let p = context.p;
                    return Err(match proc.seq {
                        NO_SEQ => format!("P {p} has no status in this generation yet"),
                        seq => format!("its number for P {p} is {a}, which doesn't follow {seq}"),
                    });
                }
                proc.state = ProcState::Syscall;
                proc.seq = a;
                self.current(context, GoState::Running)?.state = GoState::Syscall;
                self.touch_p(context.p);
                self.touch_g(context.g);
            }
            Kind::GoSyscallEnd => {
                check(context, Must, Must)?;
                self.current(context, GoState::Syscall)?;
                let proc = self.proc_of(context)?;
                if proc.state != ProcState::Syscall {
                    let state = proc.state.name();
                    return Err(format!("P {} is {state}, not in a system call", context.p));
                }
                proc.state = ProcState::Running;
                self.current(context, GoState::Syscall)?.state = GoState::Running;
                self.touch_p(context.p);
                self.touch_g(context.g);
            }
            Kind::GoSyscallEndBlocked => {
                if context.p != NONE && self.proc_of(context)?.state == ProcState::Syscall {
                    return Ok(Step::Wait(Wait::M(context.m)));
                }
                check(context, May, Must)?;
                self.current(context, GoState::Syscall)?.state = GoState::Runnable;
                self.touch_g(context.g);
                next.g = NONE;
            }
            Kind::GoDestroySyscall => self.go_destroy_syscall(context, next)?,
            Kind::STWBegin => self.begin_range(Range::Stw, context)?,
            Kind::STWEnd => self.end_range(Range::Stw, context)?,
            Kind::GCMarkAssistBegin => self.begin_range(Range::MarkAssist, context)?,
            Kind::GCMarkAssistEnd => self.end_range(Range::MarkAssist, context)?,
            Kind::GCMarkAssistActive => {
                let initial = self.initial;
                let goroutine =
                    self.gs.get_mut(&a).ok_or_else(|| format!("goroutine {a} doesn't exist"))?;
                match (initial, goroutine.ranges.contains(&Range::MarkAssist)) {
                    (true, false) => goroutine.ranges.push(Range::MarkAssist),
                    (true, true) => return Err("it comes a second time".to_string()),
                    (false, true) => {}
                    (false, false) => return Err("it hasn't begun".to_string()),
                }
            }
            Kind::GCActive | Kind::GCBegin | Kind::GCEnd => {
                if let Some(wait) = self.collector(raw.kind, a, context)? {
                    return Ok(Step::Wait(wait));
                }
            }
            Kind::GCSweepBegin | Kind::GCSweepEnd => {
                check(context, Must, May)?;
                let begins = raw.kind == Kind::GCSweepBegin;
                let proc = self.proc_of(context)?;
                if proc.sweeps == begins {
                    return Err(format!("P {} sweeps already, or doesn't sweep", context.p));
                }
                proc.sweeps = begins;
            }
            Kind::GCSweepActive => {
                let initial = self.initial;
                let proc = self.ps.get_mut(&a).ok_or_else(|| format!("P {a} doesn't exist"))?;
                if proc.sweeps == initial {
                    return Err(format!("P {a} sweeps already, or doesn't sweep"));
                }
                proc.sweeps = true;
            }
            Kind::HeapAlloc | Kind::HeapGoal => check(context, Must, May)?,
            Kind::ProcsChange | Kind::GoLabel | Kind::UserLog => check(context, Must, Must)?,
            Kind::UserTaskBegin => {
                check(context, Must, Must)?;
                if self.tasks.insert(a, ()).is_some() {
                    return Err(format!("task {a} has begun already"));
                }
            }
            Kind::UserTaskEnd => {
                check(context, Must, Must)?;
                self.tasks.remove(&a);
            }
            Kind::UserRegionBegin | Kind::UserRegionEnd => {
                check(context, Must, Must)?;
                let begins = raw.kind == Kind::UserRegionBegin;
                self.region(begins, a, tables.string(b), context)?;
            }
            Kind::Span
            | Kind::SpanAlloc
            | Kind::SpanFree
            | Kind::HeapObject
            | Kind::HeapObjectAlloc
            | Kind::HeapObjectFree
            | Kind::GoroutineStack
            | Kind::GoroutineStackAlloc
            | Kind::GoroutineStackFree => check(context, May, May)?,
            Kind::CPUSample => return Err("a CPU sample in a batch of events".to_string()),
        }
        Ok(Step::Done(context))
    }

    /// A goroutine in this state, whose number is followed by `seq`.
    fn in_turn(&mut self, g: u64, seq: u64, state: GoState) -> Option<&mut Goroutine> {
        let goroutine = self.gs.get_mut(&g)?;
        let follows = goroutine.seq != NO_SEQ && goroutine.seq.wrapping_add(1) == seq;
        (follows && goroutine.state == state).then_some(goroutine)
    }

    /// The goroutine of the M, which must be in this state.
    fn current(&mut self, context: Context, state: GoState) -> Result<&mut Goroutine, String> {
        let g = context.g;
        match self.gs.get_mut(&g) {
            None => Err(format!("goroutine {g} doesn't exist")),
            Some(goroutine) if goroutine.state != state => {
                let (is, wanted) = (goroutine.state.name(), state.name());
                Err(format!("goroutine {g} is {is}, not {wanted}"))
            }
            Some(goroutine) => Ok(goroutine),
        }
    }

    fn proc_of(&mut self, context: Context) -> Result<&mut Proc, String> {
        let p = context.p;
        self.ps.get_mut(&p).ok_or_else(|| format!("P {p} doesn't exist"))
    }

    fn touch_g(&mut self, g: u64) {
        if let Some(goroutine) = self.gs.get(&g).filter(|goroutine| goroutine.seq != NO_SEQ) {
            self.touched.push(Wait::G(g, goroutine.seq.wrapping_add(1)));
        }
    }

    fn touch_p(&mut self, p: u64) {
        if let Some(proc) = self.ps.get(&p).filter(|proc| proc.seq != NO_SEQ) {
            self.touched.push(Wait::P(p, proc.seq.wrapping_add(1)));
        }
    }

    fn proc_status(
        &mut self,
        raw: &mut Raw,
        context: Context,
        next: &mut Context,
    ) -> Result<Step, String> {
        let p = raw.args[0];
        let number = raw.args[1];
        let state = ProcState::from_number(number)
            .ok_or_else(|| format!("no P has the status {number}"))?;
        let mut shown = context;
        match self.ps.get_mut(&p) {
            None => {
                self.ps.insert(p, Proc { state, seq: 0, sweeps: false });
            }
            Some(proc) => {
                proc.seq = 0;
                if state == ProcState::Abandoned && proc.state == ProcState::Syscall {
                    // What is said of a P that is about to be taken. The file says what its M was: nothing is lost.
                    let mut holders = self.ms.iter().filter(|(_, thread)| thread.p == p);
                    let Some((&m, thread)) = holders.next() else {
                        return Err(format!("no M has P {p}, which is in a system call"));
                    };
                    shown = Context { m, p, g: thread.g };
                    raw.args[1] = 3;
                } else if proc.state != state {
                    let (is, said) = (proc.state.name(), state.name());
                    return Err(format!("P {p} is {is}, and its status says {said}"));
                }
            }
        }
        if matches!(state, ProcState::Running | ProcState::Syscall) {
            next.p = p;
        }
        self.touch_p(p);
        Ok(Step::Done(shown))
    }

    fn proc_start(
        &mut self,
        p: u64,
        seq: u64,
        context: Context,
        next: &mut Context,
    ) -> Result<Step, String> {
        let follows = |proc: &&mut Proc| {
            proc.state == ProcState::Idle && proc.seq != NO_SEQ && proc.seq.wrapping_add(1) == seq
        };
        let Some(proc) = self.ps.get_mut(&p).filter(follows) else {
            return Ok(Step::Wait(Wait::P(p, seq)));
        };
        if context.p != NONE {
            return Ok(Step::Wait(Wait::M(context.m)));
        }
        check(context, MustNot, May)?;
        proc.state = ProcState::Running;
        proc.seq = seq;
        next.p = p;
        self.touch_p(p);
        Ok(Step::Done(context))
    }

    fn proc_stop(&mut self, context: Context, next: &mut Context) -> Result<(), String> {
        check(context, Must, May)?;
        let proc = self.proc_of(context)?;
        if !matches!(proc.state, ProcState::Running | ProcState::Syscall) {
            return Err(format!("P {} is {}", context.p, proc.state.name()));
        }
        proc.state = ProcState::Idle;
        next.p = NONE;
        self.touch_p(context.p);
        Ok(())
    }

    fn proc_steal(
        &mut self,
        p: u64,
        seq: u64,
        from: u64,
        context: Context,
        next: &mut Context,
    ) -> Result<Step, String> {
        let follows = |proc: &&mut Proc| {
            matches!(proc.state, ProcState::Syscall | ProcState::Abandoned)
                && proc.seq != NO_SEQ
                && proc.seq.wrapping_add(1) == seq
        };
        let Some(proc) = self.ps.get_mut(&p).filter(follows) else {
            return Ok(Step::Wait(Wait::P(p, seq)));
        };
        check(context, May, May)?;
        let abandoned = proc.state == ProcState::Abandoned;
        proc.state = ProcState::Idle;
        proc.seq = seq;
        self.touch_p(p);
        if abandoned {
            return Ok(Step::Done(context));
        }
        let has = |holder: u64| match holder {
            NONE => "no P".to_string(),
            other => format!("P {other}"),
        };
        if from == context.m {
            if context.p != p {
                return Err(format!("M {from} gives P {p} up, and has {}", has(context.p)));
            }
            next.p = NONE;
            return Ok(Step::Done(context));
        }
        match self.ms.get_mut(&from) {
            None => return Err(format!("it takes P {p} from M {from}, which doesn't exist")),
            Some(thread) if thread.p != p => {
                return Err(format!("it takes P {p} from M {from}, which has {}", has(thread.p)));
            }
            Some(thread) => thread.p = NONE,
        }
        self.touched.push(Wait::M(from));
        Ok(Step::Done(context))
    }

    fn go_status(
        &mut self,
        g: u64,
        m: u64,
        number: u64,
        context: Context,
        next: &mut Context,
    ) -> Result<Step, String> {
        let state = GoState::from_number(number)
            .ok_or_else(|| format!("no goroutine has the status {number}"))?;
        match self.gs.get_mut(&g) {
            Some(goroutine) if goroutine.state != state => {
                let (is, said) = (goroutine.state.name(), state.name());
                return Err(format!("goroutine {g} is {is}, and its status says {said}"));
            }
            Some(goroutine) => goroutine.seq = 0,
            None if self.initial => self.new_goroutine(g, state)?,
            None => {
                let what = "is new, and only the first generation may say the status of a new one";
                return Err(format!("goroutine {g} {what}"));
            }
        }
        self.touch_g(g);
        let mut shown = context;
        match state {
            GoState::Running => next.g = g,
            GoState::Syscall if m == NONE => {
                return Err(format!("goroutine {g} is in a system call, and the M is missing"));
            }
            GoState::Syscall if m == context.m => {
                if !self.initial && context.g != g {
                    return Err(format!(
                        "goroutine {g} is in a system call of M {m}, which hasn't it"
                    ));
                }
                next.g = g;
            }
            GoState::Syscall => {
                // The goroutine has been in this call since before the generation; its M has no P.
                match self.ms.get(&m) {
                    Some(thread) if thread.g != g => {
                        return Err(format!(
                            "goroutine {g} is in a system call of M {m}, which hasn't it"
                        ));
                    }
                    Some(_) => shown.g = g,
                    None => {
                        self.ms.insert(m, Thread { p: NONE, g });
                    }
                }
                shown.m = m;
            }
            GoState::Runnable | GoState::Waiting => {}
        }
        Ok(Step::Done(shown))
    }

    fn new_goroutine(&mut self, g: u64, state: GoState) -> Result<(), String> {
        let goroutine = Goroutine { state, seq: 0, regions: Vec::new(), ranges: Vec::new() };
        if self.gs.contains_key(&g) {
            return Err(format!("goroutine {g} exists already"));
        }
        self.gs.insert(g, goroutine);
        self.touch_g(g);
        Ok(())
    }

    fn go_create(&mut self, g: u64, state: GoState, context: Context) -> Result<(), String> {
        check(context, Must, May)?;
        if self.gs.contains_key(&context.g) {
            self.current(context, GoState::Running)?;
        }
        self.new_goroutine(g, state)
    }

    fn go_destroy_syscall(&mut self, context: Context, next: &mut Context) -> Result<(), String> {
        check(context, May, Must)?;
        self.current(context, GoState::Syscall)?;
        if context.p != NONE {
            let proc = self.proc_of(context)?;
            if proc.state != ProcState::Syscall {
                return Err(format!("P {} is {}", context.p, proc.state.name()));
            }
            proc.state = ProcState::Abandoned;
            self.touch_p(context.p);
        }
        self.gs.remove(&context.g);
        next.g = NONE;
        next.p = NONE;
        Ok(())
    }

    fn begin_range(&mut self, range: Range, context: Context) -> Result<(), String> {
        check(context, Must, Must)?;
        let g = context.g;
        let goroutine =
            self.gs.get_mut(&g).ok_or_else(|| format!("goroutine {g} doesn't exist"))?;
        if goroutine.ranges.contains(&range) {
            return Err(format!("goroutine {g} has begun it already"));
        }
        goroutine.ranges.push(range);
        Ok(())
    }

    fn end_range(&mut self, range: Range, context: Context) -> Result<(), String> {
        check(context, Must, Must)?;
        let g = context.g;
        let goroutine =
            self.gs.get_mut(&g).ok_or_else(|| format!("goroutine {g} doesn't exist"))?;
        let open = goroutine.ranges.iter().position(|&open| open == range);
        let open = open.ok_or_else(|| format!("goroutine {g} hasn't begun it"))?;
        goroutine.ranges.swap_remove(open);
        Ok(())
    }

    fn region(
        &mut self,
        begins: bool,
        task: u64,
        name: &str,
        context: Context,
    ) -> Result<(), String> {
        let g = context.g;
        let goroutine =
            self.gs.get_mut(&g).ok_or_else(|| format!("goroutine {g} doesn't exist"))?;
        if begins {
            goroutine.regions.push((task, name.into()));
            return Ok(());
        }
        match goroutine.regions.last() {
            // It began before the trace.
            None => Ok(()),
            Some((open_task, open)) if *open_task != task || &**open != name => Err(format!(
                "the region {name:?} of task {task} ends within the region {open:?} of task {open_task}"
            )),
            Some(_) => {
                goroutine.regions.pop();
                Ok(())
            }
        }
    }

    fn collector(
        &mut self,
        kind: Kind,
        seq: u64,
        context: Context,
    ) -> Result<Option<Wait>, String> {
        let first = match kind {
            Kind::GCActive => self.initial,
            Kind::GCBegin => self.collector == Collector::Unknown,
            _ => false,
        };
        if first {
            if self.collector != Collector::Unknown {
                return Err("the collector has been seen before".to_string());
            }
        } else {
            if seq != self.gc_seq.wrapping_add(1) {
                return Ok(Some(Wait::Gc(seq)));
            }
            let needed = if kind == Kind::GCBegin { Collector::Idle } else { Collector::Runs };
            if self.collector != needed {
                return Err("the collector is in another state".to_string());
            }
            check(context, Must, Must)?;
        }
        self.gc_seq = seq;
        self.collector = if kind == Kind::GCEnd { Collector::Idle } else { Collector::Runs };
        self.touched.push(Wait::Gc(seq.wrapping_add(1)));
        Ok(None)
    }
}

/// Whether the strings and stacks of an event are in the tables; else which is missing.
pub fn check_tables(raw: &Raw, tables: &Tables) -> Result<(), String> {
    for (&arg, &value) in raw.kind.args().iter().zip(&raw.args) {
        match arg {
            Arg::String(name) if !tables.has_string(value) => {
                return Err(format!("its {name} is the string {value}, which doesn't exist"));
            }
            Arg::Stack | Arg::NewStack if !tables.has_stack(value) => {
                return Err(format!("the stack {value} doesn't exist"));
            }
            _ => {}
        }
    }
    Ok(())
}
