//! The search for leaked goroutines.

use super::blocks::{self, Block, Object};
use super::marks::{Go, Marks};
use crate::arch;
use crate::os::halt::Halted;
use crate::os::mapped::Mapped;
use crate::os::maps::{self, Kind, Mapping, Pages};
use crate::os::{signal, thread};
use crate::sched::ext::hooks;
use crate::sched::run::park::FOREVER;
use crate::sched::take::registers;
use crate::sched::types::attachment::G0_STACK;
use crate::sched::types::g::{G, GRef, Status, flags};
use crate::sched::types::m::{self, MRef};
use crate::sched::types::p::P;
use crate::sched::types::runtime::Runtime;
use crate::sched::types::waiter::{Waiter, Why, claim};
use core::ffi::c_void;
use core::mem::offset_of;
use core::ops::Range;
use core::sync::atomic::Ordering;

/// The caller, which is live.
pub struct Caller {
    /// Its callee-saved registers.
    pub registers: arch::Kept,
    /// The lowest address of its stack that is not the search's own.
    pub sp: usize,
}

/// Bytes below `Caller::sp` that the search itself uses at most.
const OWN_FRAMES: usize = 128 << 10;

/// Bytes of a channel into which its users' pointers may point: they may have a tag in their lowest
/// bits.
const CHANNEL: usize = 16;

/// Why a search has not come to an end.
pub enum Failure {
    /// For good: a negative errno value.
    Error(i32),
    /// A halted thread may hold a lock that the search needs. It most likely won't another time.
    Locked,
    /// A thread has not reacted in time. It may wait for another that stands still, so all must go
    /// on before the next search, which should be more patient.
    Late,
}

impl From<i32> for Failure {
    fn from(e: i32) -> Failure {
        Failure::Error(e)
    }
}

/// Lists the leaked goroutines by their descriptors' addresses. The world must be stopped. Waits
/// `patience` ns at most for threads that don't react. Not inlined: its frame has addresses of
/// objects, and must be below `Caller::sp`.
#[inline(never)]
pub fn leaked(rt: &Runtime, caller: &Caller, patience: i64) -> Result<Mapped<usize>, Failure> {
    registers::show_all(rt, patience);
    // Copied while no thread is halted: a halted thread may hold the lock of the list.
    let mut ms = Mapped::new();
    let mut has_room = true;
    rt.for_each_m(|m| has_room &= ms.push(m));
    if !has_room {
        return Err(Failure::Error(-libc::ENOMEM));
    }
    let halted = halt(rt, &ms, patience)?;
    if !ms.iter().all(|&m| registers::shows(m)) {
        return Err(Failure::Late);
    }
    Search::new(rt, &ms)?.run(caller, &halted)
}

/// Halts plain threads, and functions of `gs_blocking`. `ms`: all M's.
fn halt(rt: &Runtime, ms: &[MRef], patience: i64) -> Result<Halted, Failure> {
    let me = m::current();
    // A thread that is halted may hold the locks, so this thread must not wait for them: it gives
    // up, and the threads go on. An M that has come since `ms` was made counts as a lock.
    let mut is_locked = false;
    let halted = Halted::begin(rt.preempt_signal, patience, &mut |id| {
        let mut is_exempt = false;
        is_locked |= thread::each_own(|own, _| is_exempt |= own == id).is_none();
        if is_locked {
            return true;
        }
        let mut blocks = false;
        for &m in ms.iter().filter(|m| m.tid.load(Ordering::Relaxed) == id) {
            blocks |= Some(m) != me && !m.blocking.seen().is_null();
            is_exempt |= m.first_frame.seen() != 0;
        }
        is_exempt && !blocks
    });
    match halted {
        _ if is_locked || rt.try_count_ms() != Some(ms.len()) => Err(Failure::Locked),
        Ok(halted) => Ok(halted),
        Err(e) if e == -libc::EAGAIN => Err(Failure::Late),
        Err(e) => Err(Failure::Error(e)),
    }
}

struct Search<'a> {
    rt: &'a Runtime,
    /// All M's.
    ms: &'a [MRef],
    marks: Marks,
    maps: Mapped<Mapping>,
    /// Memory that is not looked at, or not as a whole.
    cuts: Mapped<(usize, usize)>,
    /// Bounds of the goroutines' stacks, with the goroutines' indexes, by address.
    stacks: Mapped<(usize, usize, u32)>,
    objects: Mapped<Object>,
    /// Words that are live wherever they are: registers and arguments.
    words: Mapped<u64>,
    room: Mapped<u64>,
    has_room: bool,
}

/// Number of words that are copied at a time: 256 KiB, which the caches hold.
const ROOM: usize = 32 << 10;

impl<'a> Search<'a> {
    fn new(rt: &'a Runtime, ms: &'a [MRef]) -> Result<Search<'a>, i32> {
        // SAFETY: words may be zero.
        let room = unsafe { Mapped::zeroed(ROOM) };
        let (Some(room), Some(marks)) = (room, Marks::new()) else { return Err(-libc::ENOMEM) };
        Ok(Search {
            rt,
            ms,
            marks,
            maps: Mapped::new(),
            cuts: Mapped::new(),
            stacks: Mapped::new(),
            objects: Mapped::new(),
            words: Mapped::new(),
            room,
            has_room: true,
        })
    }

    fn run(mut self, caller: &Caller, halted: &Halted) -> Result<Mapped<usize>, Failure> {
        self.add_goroutines(caller).ok_or(Failure::Locked)?;
        if !self.marks.sort_goroutines() {
            return Err(Failure::Error(-libc::ENOMEM));
        }
        maps::list(&mut self.maps)?;
        self.add_stacks();
        self.add_waits();
        self.objects.sort_unstable_by_key(|o| o.at);
        blocks::find(&mut self.objects, &self.maps);
        for object in self.objects.iter() {
            self.marks.want_object(object);
        }
        self.add_words(caller, halted);
        if !self.marks.prepare() || !self.has_room {
            return Err(Failure::Error(-libc::ENOMEM));
        }
        if self.marks.gos.iter().any(|go| !go.is_live) {
            self.add_cuts(caller, halted).ok_or(Failure::Locked)?;
            if !self.has_room {
                return Err(Failure::Error(-libc::ENOMEM));
            }
            self.look_at_roots()?;
            self.look_at_stacks()?;
        }
        let mut found = Mapped::new();
        for go in self.marks.gos.iter().filter(|go| !go.is_live) {
            if !found.push(go.g) {
                return Err(Failure::Error(-libc::ENOMEM));
            }
        }
        Ok(found)
    }

    /// Adds all goroutines. Those that wait for an object without a deadline are not live yet.
    /// `None`: a lock is taken.
    fn add_goroutines(&mut self, caller: &Caller) -> Option<()> {
        let (rt, me) = (self.rt, m::current_g());
        rt.try_for_each_g(|g| {
            // SAFETY: `g` is a descriptor.
            let g = unsafe { GRef::from_ptr(g) };
            let is_me = Some(g) == me;
            let (lo, len) = match g.has(flags::ATTACHED) {
                // Its stack is a thread's, which is looked at as a whole.
                true => (0, 0),
                false => g.stack.get().map_or((0, 0), |s| s.bounds()),
            };
            let sp = match on_thread(self.ms, g) {
                _ if len == 0 => 0,
                // In `gs_blocking` the caller is on its thread's own stack.
                _ if is_me && (lo..lo + len).contains(&caller.sp) => caller.sp,
                Some(m) if m.blocking.seen().is_null() => sp_on(m).clamp(lo, lo + len),
                _ => sp_at_rest(g, lo).clamp(lo, lo + len),
            };
            let is_live = is_me || len == 0 || !may_be_leaked(g);
            self.marks.add_goroutine(Go { g: g.address(), sp, hi: lo + len, is_live });
            if g.has(flags::UNBORN) {
                self.add_word(g.arg.get() as usize);
            }
            if is_live {
                self.add_word(g.data.load(Ordering::Relaxed) as usize);
            }
        })?;
        rt.nodes.iter().try_for_each(|node| {
            node.newborns.try_for_each(|n| {
                if n.f.seen().is_some() {
                    self.add_word(n.arg.seen() as usize);
                }
            })
        })
    }

    fn add_word(&mut self, word: usize) {
        self.has_room &= self.words.push(word as u64);
    }

    fn add_stacks(&mut self) {
        for i in 0..self.marks.gos.len() {
            let Go { sp, hi, .. } = self.marks.gos[i];
            if hi != 0 {
                self.has_room &= self.stacks.push((sp, hi, i as u32));
            }
        }
        self.stacks.sort_unstable();
    }

    /// Adds what the goroutines wait for that are not live.
    fn add_waits(&mut self) {
        for i in 0..self.marks.gos.len() as u32 {
            let go = self.marks.gos[i as usize];
            if go.is_live {
                continue;
            }
            // SAFETY: the address of a descriptor.
            let g = unsafe { GRef::at(go.g) };
            if self.add_waits_of(i, go, g).is_none() {
                self.marks.set_live(i);
            }
            if g.shared.get() {
                // A thread that has the goroutine's pointer can cancel or wake it.
                self.marks.want(i, go.g, go.g + size_of::<G>(), true);
            }
        }
    }

    /// `None`: it isn't known what the goroutine waits for.
    fn add_waits_of(&mut self, i: u32, go: Go, g: GRef) -> Option<()> {
        let why = g.why.seen();
        if matches!(why, Why::Ready | Why::SelectNothing) {
            return Some(());
        }
        let mut waiters = Mapped::new();
        let mut has_room = true;
        each_waiter(&go, g, &mut self.room, &mut |object| has_room &= waiters.push(object))?;
        if waiters.is_empty() || !has_room {
            return None;
        }
        for &object in waiters.iter() {
            match why {
                Why::Receive | Why::Send | Why::Select => {
                    self.marks.want(i, object, object + CHANNEL, true);
                }
                Why::Join => {
                    let other = self.marks.index(object)?;
                    self.marks.follows(other, i);
                    self.marks.want(i, object, object + size_of::<G>(), true);
                }
                _ => self.add_object(i, object),
            }
        }
        Some(())
    }

    /// Adds an object in the user's memory.
    fn add_object(&mut self, waiter: u32, at: usize) {
        let before = self.stacks.partition_point(|&(sp, ..)| sp <= at);
        let on = before.checked_sub(1).map(|n| self.stacks[n]).filter(|&(_, hi, _)| at < hi);
        match on {
            // On a stack, code finds an object without a pointer.
            Some((sp, hi, owner)) => {
                self.marks.want(waiter, sp, hi, false);
                if owner != waiter {
                    self.marks.follows(owner, waiter);
                }
            }
            None => {
                let object = Object { at, waiter, block: Block::Unknown };
                self.has_room &= self.objects.push(object);
            }
        }
    }

    /// Adds the registers of all threads.
    fn add_words(&mut self, caller: &Caller, halted: &Halted) {
        caller.registers.into_iter().for_each(|word| self.add_word(word));
        contexts(self.ms, halted).for_each(|context| self.add_context(context));
    }

    fn add_context(&mut self, context: *const c_void) {
        // SAFETY: the handler that was given the context is still waiting. Its vector registers are
        // on a stack, near the context.
        let registers = unsafe { arch::all_registers(context) };
        registers.for_each(|word| self.add_word(word));
    }

    /// Cuts the memory of the scheduler and of the search. The library's heap stays, because it has
    /// the elements that are in channels, the arguments of timers and the values of keys. `None`: a
    /// lock is taken.
    fn add_cuts(&mut self, caller: &Caller, halted: &Halted) -> Option<()> {
        let rt = self.rt;
        for node in &rt.nodes {
            node.gs.try_each_memory(|at, len| self.cut(at..at + len))?;
            node.gs_with_stack.try_each_memory(|at, len| self.cut(at..at + len))?;
            node.newborns.try_each_memory(|at, len| self.cut(at..at + len))?;
            // Stacks in use are looked at from their stack pointers on.
            node.stacks.try_each_slab(|at, len| self.cut(at..at + len))?;
        }
        for p in rt.all_made_ps() {
            let at = p.as_ptr() as usize;
            self.cut(at..at + size_of::<P>());
        }
        // Hooks of an embedder, and functions of `gs_blocking`, run on the threads' own stacks.
        if !hooks::are_set() {
            self.cut_stacks_of_threads();
        }
        self.cut_alt_stacks(caller, halted);
        self.cut(caller.sp - OWN_FRAMES..caller.sp);
        self.has_room &= self.cuts.reserve(16);
        let own = [
            self.maps.memory(),
            self.stacks.memory(),
            self.objects.memory(),
            self.words.memory(),
            self.room.memory(),
            self.cuts.memory(),
        ];
        own.into_iter().chain(self.marks.memory()).for_each(|range| self.cut(range));
        self.cuts.sort_unstable();
        // Cuts that overlap become one.
        let mut kept = 0;
        for i in 0..self.cuts.len() {
            let (start, end) = self.cuts[i];
            if kept > 0 && start <= self.cuts[kept - 1].1 {
                self.cuts[kept - 1].1 = self.cuts[kept - 1].1.max(end);
            } else {
                self.cuts[kept] = (start, end);
                kept += 1;
            }
        }
        self.cuts.truncate(kept);
        Some(())
    }

    fn cut(&mut self, range: Range<usize>) {
        if !range.is_empty() {
            self.has_room &= self.cuts.push((range.start, range.end));
        }
    }

    fn cut_stacks_of_threads(&mut self) {
        let ms = self.ms;
        // If the lock is taken, more stays, which can only hide a leak.
        let _ = thread::each_own(|id, frame| {
            let is_it = |m: &MRef| m.tid.load(Ordering::Relaxed) == id;
            if !ms.iter().any(|m| is_it(m) && !m.blocking.seen().is_null()) {
                self.cut_below(frame);
            }
        });
        for m in ms {
            let frame = m.first_frame.seen();
            if frame == 0 || !m.blocking.seen().is_null() {
                continue;
            }
            // SAFETY: null, or the record of an attached thread, which stays while the M has it.
            match unsafe { m.attachment.seen().as_ref() } {
                Some(attached) => self.cut(attached.stack..attached.stack + G0_STACK),
                None => self.cut_below(frame),
            }
        }
    }

    /// Cuts the alternate signal stacks that hold only what the kernel has written there for the
    /// library's handler: registers, which are looked at by themselves, or are of a handler that is
    /// over. A stack on which a handler of the user's runs stays.
    fn cut_alt_stacks(&mut self, caller: &Caller, halted: &Halted) {
        for m in self.ms {
            let start = m.alt_stack.seen();
            if start == 0 {
                continue;
            }
            let stack = signal::alt_stack_at(start);
            let mut in_use = stack.contains(&caller.sp);
            for context in contexts(self.ms, halted).filter(|c| stack.contains(&c.addr())) {
                // SAFETY: the handler that was given the context is still waiting.
                in_use |= stack.contains(&unsafe { arch::interrupted(context) }.sp);
            }
            if !in_use {
                self.cut(stack);
            }
        }
    }

    /// Cuts the part of a thread's stack that is below a frame.
    fn cut_below(&mut self, frame: usize) {
        let mapping = self.maps.iter().find(|m| (m.start..m.end).contains(&frame));
        if let Some(start) = mapping.map(|m| m.start) {
            self.cut(start..frame);
        }
    }

    fn look_at_roots(&mut self) -> Result<(), i32> {
        let Search { marks, maps, cuts, words, room, .. } = self;
        words.iter().for_each(|&word| marks.word(word, 0));
        let mut pages = Pages::new()?;
        for mapping in maps.iter() {
            let is_device = mapping.kind == Kind::Device;
            if is_device || mapping.is_shared && !mapping.is_writable {
                continue;
            }
            let mut result = Ok(());
            let mut look = |range: Range<usize>| {
                let mut words = |run| look_at(marks, room, run);
                each_outside(cuts, range, &mut |run| {
                    if result.is_ok() {
                        result = words(run);
                    }
                });
            };
            pages.each(mapping.start..mapping.end, mapping.is_shared, &mut look)?;
            result?;
        }
        Ok(())
    }

    fn look_at_stacks(&mut self) -> Result<(), i32> {
        while let Some(go) = self.marks.next() {
            look_at(&mut self.marks, &mut self.room, go.sp..go.hi)?;
        }
        Ok(())
    }
}

/// Looks at all words of a range of live memory.
fn look_at(marks: &mut Marks, room: &mut [u64], range: Range<usize>) -> Result<(), i32> {
    let mut before = None;
    maps::read(range, room, &mut |at, words| {
        let last = before.filter(|&(end, _)| end == at).map(|(_, word)| word);
        marks.words(at, last, words);
        before = words.last().map(|&word| (at + 8 * words.len(), word));
    })
}

/// Calls `f` with each part of a range that is in none of the cuts, which are sorted and apart.
fn each_outside(cuts: &[(usize, usize)], range: Range<usize>, f: &mut dyn FnMut(Range<usize>)) {
    let mut at = range.start;
    let first = cuts.partition_point(|&(_, end)| end <= range.start);
    for &(start, end) in cuts[first..].iter().take_while(|&&(start, _)| start < range.end) {
        if at < start {
            f(at..start);
        }
        at = at.max(end);
    }
    if at < range.end {
        f(at..range.end);
    }
}

/// The contexts (`ucontext_t`) of all threads that wait in the library's handler.
fn contexts(ms: &[MRef], halted: &Halted) -> impl Iterator<Item = *const c_void> {
    let shown = ms.iter().filter_map(|&m| registers::shown(m));
    shown.map(<*mut c_void>::cast_const).chain(halted.contexts())
}

/// The M on which the goroutine is.
fn on_thread(ms: &[MRef], g: GRef) -> Option<MRef> {
    let is_its = |m: &&MRef| m.curg.seen() == g.as_ptr().cast_const();
    if g.status() == Status::Waiting { None } else { ms.iter().rfind(is_its).copied() }
}

/// The lowest address in use on the stack of a goroutine on a thread; 0: not known.
fn sp_on(m: MRef) -> usize {
    // SAFETY: the handler that has put the context there is still waiting.
    registers::shown(m).map_or(0, |c| unsafe { arch::interrupted(c) }.sp - arch::RED_ZONE)
}

/// The lowest address in use, saved registers included, of a goroutine's stack at rest.
fn sp_at_rest(g: GRef, lo: usize) -> usize {
    // Acquire: pairs with the Release in `switch_to_g0`.
    match g.context.load(Ordering::Acquire) {
        0 => lo,
        // SAFETY: the world is stopped, so the goroutine doesn't run on its stack.
        context => unsafe { arch::lowest_in_use(context) },
    }
}

/// Whether the goroutine waits, without a deadline, for something that only the program does.
fn may_be_leaked(g: GRef) -> bool {
    let for_program = match g.why.seen() {
        Why::Receive | Why::Send | Why::Select | Why::SelectNothing => true,
        Why::Mutex | Why::ReadLock | Why::WriteLock | Why::Cond => true,
        Why::WaitGroup | Why::Semaphore | Why::Once | Why::Join | Why::Ready => true,
        Why::Sleep | Why::File | Why::Thread | Why::Timer => false,
    };
    if g.status() != Status::Waiting || !for_program || g.has(flags::TIMER) {
        return false;
    }
    // A park without a claim has no deadline.
    let word = g.parker.claim.load(Ordering::Relaxed);
    let request = g.request.get();
    match word & claim::MASK {
        claim::PARKED => request.number == word >> claim::BITS && request.deadline == FOREVER,
        claim::ARMING => false,
        _ => true,
    }
}

/// Calls `f` with the object of each waiter of a goroutine that is in a queue. Waiters lie on the
/// goroutine's stack, where their fields tell them: [`Waiter::parker`] is the goroutine's own, and
/// [`Waiter::queued`] is set only in a queue. `None`: the object of a waiter isn't known.
fn each_waiter(go: &Go, g: GRef, room: &mut [u64], f: &mut dyn FnMut(usize)) -> Option<()> {
    const WORDS: usize = size_of::<Waiter>() / 8;
    const PARKER: usize = offset_of!(Waiter, parker) / 8;
    const NUMBER: usize = offset_of!(Waiter, number) / 8;
    const OBJECT: usize = offset_of!(Waiter, object) / 8;
    const QUEUED: usize = offset_of!(Waiter, queued) / 8;
    let word = g.parker.claim.load(Ordering::Relaxed);
    let number = if word & claim::MASK == claim::PARKED { word >> claim::BITS } else { 0 };
    let mut known = Some(());
    let mut visit = |words: &[u64]| {
        for waiter in words.windows(WORDS) {
            let is_waiter = waiter[PARKER] == go.g as u64
                && waiter[QUEUED] >> (offset_of!(Waiter, queued) % 8 * 8) & 0xff == 1
                && waiter[NUMBER] == number
                // A `Block` looks like a waiter up to here, and then has the deadline.
                && waiter[OBJECT] != FOREVER as u64;
            match waiter[OBJECT] {
                _ if !is_waiter => {}
                0 => known = None,
                object => f(object as usize),
            }
        }
    };
    let mut overlap = go.sp..go.hi;
    // In pieces that overlap by less than a waiter.
    while overlap.start < overlap.end {
        let piece = overlap.start..overlap.end.min(overlap.start + size_of_val(room));
        maps::read(piece.clone(), room, &mut |_, words| visit(words)).ok()?;
        if piece.end == overlap.end {
            break;
        }
        overlap.start = piece.end - 8 * (WORDS - 1);
    }
    known
}
