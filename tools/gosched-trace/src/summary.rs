//! Sums a trace up: who waited for what, who kept a P, what the P's did.
//!
//! The memory is that of the goroutines that live and of the functions that there are, whatever the length of the trace.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::io::{self, Write};
use std::rc::Rc;

use serde::Serialize;

use crate::change::{self, Change, GoState, ProcState};
use crate::generation::{Overhead, Tables};
use crate::names::{Names, UNKNOWN};
use crate::reader::Event;
use crate::wire::{Kind, NONE, Version};

/// Of the times for which goroutines kept a P, how many of the longest are remembered.
const KEPT: usize = 1000;

/// How often something took how long. Times are nanoseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Stat {
    pub count: u64,
    pub total: u64,
    pub max: u64,
    /// How many of `count` had not ended when the trace did.
    pub open: u64,
    /// The goroutine of `max`.
    pub longest: Option<u64>,
}

impl Stat {
    fn add(&mut self, time: u64, g: u64) {
        self.count += 1;
        self.total = self.total.saturating_add(time);
        if self.longest.is_none() || time > self.max {
            self.max = time;
            self.longest = Some(g);
        }
    }

    fn mean(&self) -> u64 {
        self.total.checked_div(self.count).unwrap_or(0)
    }
}

/// A distribution of times whose percentiles are at most 3 % too large.
struct Histogram {
    buckets: Vec<u64>,
    stat: Stat,
}

impl Histogram {
    /// A power of 2 has 32 buckets.
    const BITS: u32 = 5;

    fn new() -> Histogram {
        Histogram { buckets: vec![0; 64 << Self::BITS], stat: Stat::default() }
    }

    fn bucket(time: u64) -> usize {
        let power = 63 - (time | 1).leading_zeros();
        if power < Self::BITS {
            return time as usize;
        }
        let within = (time >> (power - Self::BITS)) as usize & ((1 << Self::BITS) - 1);
        (((power - Self::BITS + 1) as usize) << Self::BITS) + within
    }

    /// The largest time of a bucket.
    fn last(bucket: usize) -> u64 {
        let power = (bucket >> Self::BITS) as u32;
        let within = bucket as u64 & ((1 << Self::BITS) - 1);
        match power {
            0 => within,
            _ => (((1 << Self::BITS) + within) << (power - 1)) + ((1 << (power - 1)) - 1),
        }
    }

    fn add(&mut self, time: u64, g: u64) {
        self.buckets[Self::bucket(time)] += 1;
        self.stat.add(time, g);
    }

    /// The time that this share of all times doesn't exceed.
    fn percentile(&self, share: f64) -> u64 {
        let wanted = (self.stat.count as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return Self::last(bucket).min(self.stat.max);
            }
        }
        0
    }
}

struct Goroutine {
    state: GoState,
    since: i64,
    /// Why it waits, or which function makes the system call.
    reason: Rc<str>,
}

struct Proc {
    state: ProcState,
    /// The goroutine that has the P, and since when.
    holder: Option<(u64, i64)>,
    /// Until when the P's times are summed up.
    until: i64,
    times: Uses,
}

/// What a P did, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Uses {
    /// Ran a goroutine.
    pub goroutines: u64,
    /// Was in a system call, with its goroutine.
    pub syscalls: u64,
    /// Had an M that ran no goroutine: it looked for work.
    pub scheduler: u64,
    /// Had no M.
    pub idle: u64,
}

/// A time for which a goroutine kept a P.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Hold {
    pub time: u64,
    pub g: u64,
    pub p: u64,
    /// When it began: nanoseconds behind the first event.
    pub begin: i64,
    pub function: Rc<str>,
}

/// How many events of a kind there are, and how many bytes they take.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Size {
    pub count: u64,
    pub bytes: u64,
}

/// Sums of what has been read so far.
pub struct Sums {
    version: Version,
    generations: u64,
    overhead: Overhead,
    begin: Option<i64>,
    end: i64,
    names: Names,
    reasons: HashMap<Box<str>, Rc<str>>,
    gs: HashMap<u64, Goroutine>,
    ps: BTreeMap<u64, Proc>,
    ms: HashMap<u64, ()>,
    kinds: BTreeMap<Kind, Size>,
    waits: HashMap<(Rc<str>, Rc<str>), Stat>,
    latency: Histogram,
    latencies: HashMap<Rc<str>, Stat>,
    runs: HashMap<Rc<str>, Stat>,
    syscalls: HashMap<(Rc<str>, Rc<str>), Stat>,
    taken: HashMap<(Rc<str>, Rc<str>), u64>,
    holds: BinaryHeap<Reverse<Hold>>,
    stops: HashMap<Rc<str>, Stat>,
    stopping: HashMap<u64, (Rc<str>, i64)>,
    created: u64,
    ended: u64,
    most: u64,
}

impl Sums {
    pub fn new(version: Version) -> Sums {
        Sums {
            version,
            generations: 0,
            overhead: Overhead::default(),
            begin: None,
            end: 0,
            names: Names::default(),
            reasons: HashMap::new(),
            gs: HashMap::new(),
            ps: BTreeMap::new(),
            ms: HashMap::new(),
            kinds: BTreeMap::new(),
            waits: HashMap::new(),
            latency: Histogram::new(),
            latencies: HashMap::new(),
            runs: HashMap::new(),
            syscalls: HashMap::new(),
            taken: HashMap::new(),
            holds: BinaryHeap::new(),
            stops: HashMap::new(),
            stopping: HashMap::new(),
            created: 0,
            ended: 0,
            most: 0,
        }
    }

    /// A generation begins.
    pub fn generation(&mut self, tables: &Tables) {
        self.generations += 1;
        self.overhead.headers += tables.overhead.headers;
        self.overhead.strings += tables.overhead.strings;
        self.overhead.stacks += tables.overhead.stacks;
        self.overhead.sync += tables.overhead.sync;
        self.overhead.experiments += tables.overhead.experiments;
    }

    /// Adds an event.
    pub fn event(&mut self, event: &Event, tables: &Tables) {
        self.names.learn(event, tables);
        let size = self.kinds.entry(event.kind).or_default();
        size.count += 1;
        size.bytes += u64::from(event.size);
        self.begin.get_or_insert(event.time);
        self.end = event.time;
        if event.m != NONE {
            self.ms.insert(event.m, ());
        }
        match event.kind {
            Kind::GoCreate | Kind::GoCreateBlocked | Kind::GoCreateSyscall => self.created += 1,
            Kind::GoDestroy | Kind::GoDestroySyscall | Kind::GoSwitchDestroy => self.ended += 1,
            Kind::STWBegin => {
                let kind = self.shared(tables.string(event.args[0]));
                self.stopping.insert(event.g, (kind, event.time));
            }
            Kind::STWEnd => {
                if let Some((kind, begin)) = self.stopping.remove(&event.g) {
                    self.stops.entry(kind).or_default().add(between(begin, event.time), event.g);
                }
            }
            _ => {}
        }
        let reason = match event.kind {
            Kind::GoBlock => self.shared(tables.string(event.args[0])),
            Kind::GoSyscallBegin => self.shared(tables.leaf(event.args[1]).unwrap_or(UNKNOWN)),
            Kind::GoStatusStack => self.shared(tables.leaf(event.args[3]).unwrap_or(UNKNOWN)),
            Kind::GoSwitch => self.shared("switch to another goroutine"),
            Kind::GoCreateBlocked => self.shared("not started yet"),
            _ => self.shared(UNKNOWN),
        };
        for change in change::of(event) {
            match change {
                Change::G { g, to, p, .. } => self.change_g(g, to, p, event.time, &reason),
                Change::P { p, to } => self.change_p(p, to, event.time),
            }
        }
        self.most = self.most.max(self.gs.len() as u64);
        self.names.forget(event);
    }

    fn shared(&mut self, text: &str) -> Rc<str> {
        if let Some(shared) = self.reasons.get(text) {
            return shared.clone();
        }
        let shared: Rc<str> = text.into();
        self.reasons.insert(text.into(), shared.clone());
        shared
    }

    fn change_g(&mut self, g: u64, to: Option<GoState>, p: u64, time: i64, reason: &Rc<str>) {
        let old = self.gs.get(&g);
        if old.is_some_and(|old| Some(old.state) == to) {
            return;
        }
        if let Some(old) = self.gs.remove(&g) {
            self.spend(g, &old, to, time, false);
        }
        if p != NONE && !matches!(to, Some(GoState::Syscall)) {
            self.account(p, time);
            let holder = self.ps.get(&p).and_then(|proc| proc.holder);
            if to == Some(GoState::Running) {
                if holder.is_none_or(|(holder, _)| holder != g) {
                    self.release(p, time);
                    self.hold(p, g, time);
                }
            } else if holder.is_some_and(|(holder, _)| holder == g) {
                self.release(p, time);
            }
        }
        if let Some(state) = to {
            self.gs.insert(g, Goroutine { state, since: time, reason: reason.clone() });
        }
    }

    /// Sums up what a goroutine did until now. `to`: what it does next.
    fn spend(&mut self, g: u64, old: &Goroutine, to: Option<GoState>, time: i64, open: bool) {
        let name = self.names.get(g);
        let spent = between(old.since, time);
        let stat = match old.state {
            GoState::Waiting => self.waits.entry((name, old.reason.clone())).or_default(),
            GoState::Syscall => self.syscalls.entry((name, old.reason.clone())).or_default(),
            GoState::Running => self.runs.entry(name).or_default(),
            GoState::Runnable => {
                if to == Some(GoState::Running) {
                    self.latency.add(spent, g);
                }
                self.latencies.entry(name).or_default()
            }
        };
        stat.add(spent, g);
        stat.open += u64::from(open);
    }

    fn change_p(&mut self, p: u64, to: ProcState, time: i64) {
        let proc = self.ps.entry(p).or_insert(Proc {
            state: to,
            holder: None,
            until: time,
            times: Uses::default(),
        });
        if proc.state == to {
            return;
        }
        let was = proc.state;
        self.account(p, time);
        if matches!(to, ProcState::Idle | ProcState::Abandoned) {
            let holder = self.ps.get(&p).and_then(|proc| proc.holder);
            if let Some(goroutine) = holder.and_then(|(g, _)| self.gs.get(&g))
                && was == ProcState::Syscall
                && goroutine.state == GoState::Syscall
                && let Some((g, _)) = holder
            {
                let call = (self.names.get(g), goroutine.reason.clone());
                *self.taken.entry(call).or_default() += 1;
            }
            self.release(p, time);
        }
        if let Some(proc) = self.ps.get_mut(&p) {
            proc.state = to;
        }
    }

    fn hold(&mut self, p: u64, g: u64, time: i64) {
        let proc = self.ps.entry(p).or_insert(Proc {
            state: ProcState::Running,
            holder: None,
            until: time,
            times: Uses::default(),
        });
        proc.holder = Some((g, time));
    }

    /// The goroutine that has a P leaves it.
    fn release(&mut self, p: u64, time: i64) {
        let Some((g, begin)) = self.ps.get_mut(&p).and_then(|proc| proc.holder.take()) else {
            return;
        };
        let time = between(begin, time);
        let shortest = self.holds.peek().map_or(0, |Reverse(hold)| hold.time);
        if self.holds.len() == KEPT && time <= shortest {
            return;
        }
        let begin = begin.saturating_sub(self.begin.unwrap_or(begin));
        let function = self.names.get(g);
        self.holds.push(Reverse(Hold { time, g, p, begin, function }));
        if self.holds.len() > KEPT {
            self.holds.pop();
        }
    }

    /// Adds the time since the P's last change to what the P did.
    fn account(&mut self, p: u64, time: i64) {
        let Some(proc) = self.ps.get_mut(&p) else { return };
        let spent = between(proc.until, time);
        proc.until = time;
        let times = &mut proc.times;
        *match (proc.state, proc.holder) {
            (ProcState::Idle | ProcState::Abandoned, _) => &mut times.idle,
            (ProcState::Syscall, _) => &mut times.syscalls,
            (ProcState::Running, Some(_)) => &mut times.goroutines,
            (ProcState::Running, None) => &mut times.scheduler,
        } += spent;
    }

    /// The summary, of a file of so many bytes. A table has at most so many rows.
    pub fn finish(mut self, bytes: u64, rows: usize) -> Summary {
        let end = self.end;
        let begin = self.begin.unwrap_or(end);
        let alive = self.gs.len() as u64;
        for p in self.ps.keys().copied().collect::<Vec<_>>() {
            self.account(p, end);
            self.release(p, end);
        }
        for (g, goroutine) in std::mem::take(&mut self.gs) {
            self.spend(g, &goroutine, None, end, true);
        }
        for (g, (kind, begin)) in std::mem::take(&mut self.stopping) {
            let stat = self.stops.entry(kind).or_default();
            stat.add(between(begin, end), g);
            stat.open += 1;
        }
        let mut holds: Vec<_> = self.holds.into_iter().map(|Reverse(hold)| hold).collect();
        holds.sort_by(|a, b| b.cmp(a));
        holds.truncate(rows);
        let pair =
            |((function, reason), stat)| Row { function, reason: Some(reason), taken: None, stat };
        let single = |(function, stat)| Row { function, reason: None, taken: None, stat };
        let taken = self.taken;
        let calls = self.syscalls.into_iter().map(|(call, stat)| {
            let taken = taken.get(&call).copied().unwrap_or(0);
            Row { taken: Some(taken), ..pair((call, stat)) }
        });
        let latency = Latency {
            count: self.latency.stat.count,
            mean: self.latency.stat.mean(),
            p50: self.latency.percentile(0.5),
            p90: self.latency.percentile(0.9),
            p99: self.latency.percentile(0.99),
            p999: self.latency.percentile(0.999),
            max: self.latency.stat.max,
            longest: self.latency.stat.longest,
        };
        let uses = self.ps.iter().map(|(&p, proc)| ProcUses { p, uses: proc.times }).collect();
        let kinds: Vec<_> =
            self.kinds.into_iter().map(|(kind, size)| (kind.name(), size)).collect();
        Summary {
            format: self.version.to_string(),
            bytes,
            generations: self.generations,
            begin,
            duration: between(begin, end),
            threads: self.ms.len() as u64,
            created: self.created,
            ended: self.ended,
            alive,
            most: self.most,
            waiting: top(self.waits.into_iter().map(pair), rows),
            latency,
            runnable: top(self.latencies.into_iter().map(single), rows),
            running: top(self.runs.into_iter().map(single), rows),
            holds,
            procs: uses,
            syscalls: top(calls, rows),
            stops: top(self.stops.into_iter().map(single), rows),
            events: sorted(kinds),
            overhead: self.overhead,
        }
    }
}

fn between(begin: i64, end: i64) -> u64 {
    u64::try_from(end.saturating_sub(begin)).unwrap_or(0)
}

fn sorted(mut kinds: Vec<(&'static str, Size)>) -> Vec<EventSize> {
    kinds.sort_by_key(|(name, size)| (Reverse(size.bytes), *name));
    kinds.into_iter().map(|(event, size)| EventSize { event, size }).collect()
}

/// The rows with the largest totals.
fn top(rows: impl Iterator<Item = Row>, most: usize) -> Table {
    let mut rows: Vec<_> = rows.collect();
    let key = |row: &Row| (row.function.clone(), row.reason.clone());
    rows.sort_by(|a, b| b.stat.total.cmp(&a.stat.total).then_with(|| key(a).cmp(&key(b))));
    let left_out = rows.len().saturating_sub(most) as u64;
    rows.truncate(most);
    Table { rows, left_out }
}

/// A row of a table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub function: Rc<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Rc<str>>,
    /// How many of these system calls lost their P.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken: Option<u64>,
    #[serde(flatten)]
    pub stat: Stat,
}

/// The rows with the largest totals.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    pub rows: Vec<Row>,
    /// How many rows there are besides.
    pub left_out: u64,
}

/// For how long goroutines that could run waited for a P. Times are nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    pub count: u64,
    pub mean: u64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p999: u64,
    pub max: u64,
    pub longest: Option<u64>,
}

/// What a P did.
#[derive(Clone, Debug, Serialize)]
pub struct ProcUses {
    pub p: u64,
    #[serde(flatten)]
    pub uses: Uses,
}

/// How much of the file the events of a kind take.
#[derive(Clone, Debug, Serialize)]
pub struct EventSize {
    pub event: &'static str,
    #[serde(flatten)]
    pub size: Size,
}

/// A trace, summed up. Times are nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    pub format: String,
    pub bytes: u64,
    pub generations: u64,
    /// The time of the first event.
    pub begin: i64,
    pub duration: u64,
    pub threads: u64,
    /// Goroutines that were created.
    pub created: u64,
    pub ended: u64,
    /// Goroutines that lived when the trace ended.
    pub alive: u64,
    /// The most goroutines that lived at once.
    pub most: u64,
    /// Waiting goroutines, by function and reason.
    pub waiting: Table,
    pub latency: Latency,
    /// Goroutines that could run and did not, by function.
    pub runnable: Table,
    /// Goroutines that ran, by function.
    pub running: Table,
    /// The longest times for which a goroutine kept a P.
    pub holds: Vec<Hold>,
    pub procs: Vec<ProcUses>,
    /// System calls, by the goroutine's function and the function that made the call.
    pub syscalls: Table,
    /// The times when the world was stopped, by why.
    pub stops: Table,
    pub events: Vec<EventSize>,
    /// Bytes that are no events.
    pub overhead: Overhead,
}

impl Summary {
    /// Writes the summary as an object of JSON.
    pub fn json<W: Write>(&self, mut out: W) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut out, self)?;
        writeln!(out)
    }

    /// Writes the summary as text.
    pub fn text<W: Write>(&self, mut out: W) -> io::Result<()> {
        let out = &mut out;
        writeln!(
            out,
            "Trace: {}, {} bytes, {} generations, {}",
            self.format,
            self.bytes,
            self.generations,
            time(self.duration)
        )?;
        writeln!(
            out,
            "Goroutines: {} created, {} ended, {} at the end, {} at most; {} P's, {} threads",
            self.created,
            self.ended,
            self.alive,
            self.most,
            self.procs.len(),
            self.threads
        )?;
        table(out, "Waiting, by function and reason", &self.waiting, Some("reason"))?;
        let latency = &self.latency;
        writeln!(out, "\nScheduling latency: from when a goroutine can run until it runs")?;
        if latency.count == 0 {
            writeln!(out, "  none")?;
        } else {
            let parts = [
                ("mean", latency.mean),
                ("50 %", latency.p50),
                ("90 %", latency.p90),
                ("99 %", latency.p99),
                ("99.9 %", latency.p999),
                ("max", latency.max),
            ];
            write!(out, "  count {}", latency.count)?;
            for (name, value) in parts {
                write!(out, ", {name} {}", time(value))?;
            }
            writeln!(out, "{}", latency.longest.map_or(String::new(), |g| format!(" (G {g})")))?;
        }
        table(out, "Runnable, by function", &self.runnable, None)?;
        table(out, "Running, by function", &self.running, None)?;
        writeln!(out, "\nLongest times with a P without a break")?;
        if self.holds.is_empty() {
            writeln!(out, "  none")?;
        } else {
            writeln!(out, "  {:>10} {:>12} {:>4} {:>8}  function", "time", "at", "P", "G")?;
        }
        for hold in &self.holds {
            let at = time(between(0, hold.begin));
            let Hold { g, p, function, .. } = hold;
            writeln!(out, "  {:>10} {at:>12} {p:>4} {g:>8}  {function}", time(hold.time))?;
        }
        writeln!(out, "\nP's: what they did")?;
        writeln!(
            out,
            "  {:>4} {:>11} {:>13} {:>10} {:>8}",
            "P", "goroutines", "system calls", "scheduler", "idle"
        )?;
        for ProcUses { p, uses } in &self.procs {
            let all = uses.goroutines + uses.syscalls + uses.scheduler + uses.idle;
            let share = |part: u64| format!("{:.1} %", part as f64 * 100.0 / all.max(1) as f64);
            let [goroutines, syscalls, scheduler, idle] =
                [uses.goroutines, uses.syscalls, uses.scheduler, uses.idle].map(share);
            writeln!(out, "  {p:>4} {goroutines:>11} {syscalls:>13} {scheduler:>10} {idle:>8}")?;
        }
        table(out, "System calls, by function and call", &self.syscalls, Some("call"))?;
        if !self.stops.rows.is_empty() {
            table(out, "Stops of the world, by reason", &self.stops, None)?;
        }
        self.sizes(out)
    }

    fn sizes(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "\nEvents")?;
        writeln!(out, "  {:>10} {:>12} {:>7}  event", "count", "bytes", "each")?;
        let mut sum = Size::default();
        for EventSize { event, size } in &self.events {
            let each = size.bytes as f64 / size.count.max(1) as f64;
            writeln!(out, "  {:>10} {:>12} {each:>7.1}  {event}", size.count, size.bytes)?;
            sum.count += size.count;
            sum.bytes += size.bytes;
        }
        let each = sum.bytes as f64 / sum.count.max(1) as f64;
        writeln!(out, "  {:>10} {:>12} {each:>7.1}  all events", sum.count, sum.bytes)?;
        let Overhead { headers, strings, stacks, sync, experiments } = self.overhead;
        let rest = [
            ("headers of batches", headers),
            ("strings", strings),
            ("stacks", stacks),
            ("clocks", sync),
            ("experiments", experiments),
        ];
        for (what, bytes) in rest.iter().filter(|(_, bytes)| *bytes > 0) {
            writeln!(out, "  {:>10} {bytes:>12} {:>7}  {what}", "", "")?;
        }
        Ok(())
    }
}

fn table(out: &mut impl Write, title: &str, table: &Table, reason: Option<&str>) -> io::Result<()> {
    writeln!(out, "\n{title}")?;
    if table.rows.is_empty() {
        return writeln!(out, "  none");
    }
    let taken = table.rows.iter().any(|row| row.taken.is_some());
    write!(out, "  {:>10} {:>10} {:>10} {:>9} {:>6}", "total", "max", "mean", "count", "open")?;
    if taken {
        write!(out, " {:>7}", "lost P")?;
    }
    let width =
        table.rows.iter().map(|row| row.function.chars().count()).max().unwrap_or(0).min(40);
    match reason {
        Some(reason) => writeln!(out, "  {:<width$}  {reason}", "function")?,
        None => writeln!(out, "  function")?,
    }
    for row in &table.rows {
        let Stat { count, total, max, open, .. } = row.stat;
        let [total, max, mean] = [total, max, row.stat.mean()].map(time);
        write!(out, "  {total:>10} {max:>10} {mean:>10} {count:>9} {open:>6}")?;
        if let Some(taken) = row.taken {
            write!(out, " {taken:>7}")?;
        }
        match &row.reason {
            Some(reason) => writeln!(out, "  {:<width$}  {reason}", row.function)?,
            None => writeln!(out, "  {}", row.function)?,
        }
    }
    if table.left_out > 0 {
        writeln!(out, "  ... and {} rows more (--rows)", table.left_out)?;
    }
    Ok(())
}

/// A time with its unit, to three digits or more.
fn time(nanoseconds: u64) -> String {
    let value = nanoseconds as f64;
    let (value, unit) = match nanoseconds {
        0..1_000 => return format!("{nanoseconds} ns"),
        1_000..1_000_000 => (value / 1e3, "µs"),
        1_000_000..1_000_000_000 => (value / 1e6, "ms"),
        _ => (value / 1e9, "s"),
    };
    let digits = match value {
        ..10.0 => 2,
        ..100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_its_own_largest_time_and_no_larger() {
        for bucket in 0..(60 << Histogram::BITS) - 1 {
            let last = Histogram::last(bucket);
            assert_eq!(Histogram::bucket(last), bucket);
            assert_eq!(Histogram::bucket(last + 1), bucket + 1);
        }
        assert!(Histogram::bucket(u64::MAX) < Histogram::new().buckets.len());
    }

    #[test]
    fn percentiles_are_at_most_three_percent_too_large() {
        let mut histogram = Histogram::new();
        for time in 1..=100_000 {
            histogram.add(time, 1);
        }
        for (share, exact) in [(0.5, 50_000), (0.99, 99_000), (0.999, 99_900)] {
            let found = histogram.percentile(share);
            assert!((exact..=exact + exact / 32).contains(&found), "{share}: {found}");
        }
        assert_eq!(histogram.percentile(1.0), 100_000);
    }

    #[test]
    fn times_have_three_digits_and_a_unit() {
        let all = [7, 999, 1_000, 12_345, 678_901, 23_456_789, 1_500_000_000].map(time);
        assert_eq!(all, ["7 ns", "999 ns", "1.00 µs", "12.3 µs", "679 µs", "23.5 ms", "1.50 s"]);
    }
}
