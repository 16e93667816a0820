//! The copies of the C++ runtime that a process has, and what a thread knows of them.
//!
//! The C++ runtime keeps the exceptions that are being handled, and how many are in flight, in two
//! words of each thread, which `__cxa_get_globals` gives. A process may have several *copies* of
//! that runtime: a shared library, a copy that is linked into a plugin, another implementation.
//! Each has two words of its own. `sched/ext/EXCEPTIONS.md` has the protocol.

pub mod loader;

use crate::arch::{self, TlsSlot};
use crate::os::locked::Locked;
use crate::os::thread::{self, Thread};
use crate::os::{forking, futex, time};
use core::cell::{Cell, UnsafeCell};
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// `__cxa_eh_globals` of the Itanium C++ ABI: libstdc++, libc++abi and libcxxrt agree.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Globals {
    caught: usize,
    uncaught: u32,
}

impl Globals {
    const NONE: Globals = Globals { caught: 0, uncaught: 0 };

    /// Zero if there is no exception.
    #[inline(always)]
    pub fn bits(self) -> usize {
        self.caught | self.uncaught as usize
    }
}

/// The words that a thread watches if it has no copy to watch.
pub static NOTHING: Globals = Globals::NONE;

/// `__cxa_get_globals` of a copy. The function's address identifies the copy on all threads.
pub type Get = extern "C" fn() -> *mut Globals;

/// A generation that no thread has: see [`arch::tls_generation`].
pub const NEVER: usize = usize::MAX;

/// Where a copy has its two words on a thread.
#[derive(Clone, Copy, PartialEq)]
pub enum Offset {
    /// `offset`: bytes from the beginning of the object's block of thread-local storage.
    /// `generation`: that of a thread that had such a block. A thread of a lower generation may
    /// still have, at the object's number, the entry of an unloaded object that had the number
    /// before.
    InBlock { offset: usize, generation: usize },
    /// Most likely in the object's block too, at an offset that is not known yet: no thread that
    /// has searched has had such a block.
    Unknown,
    /// The words are not in that block: on each thread only a call of `get` tells where.
    Elsewhere,
}

/// A loaded copy.
#[derive(Clone, Copy)]
pub struct Copy {
    get: Get,
    /// The number of the copy's object among those with thread-local storage; 0: it has none.
    module: usize,
    offset: Offset,
}

/// Where a copy has its two words on one thread.
#[derive(Clone, Copy)]
pub struct CopyPlace {
    copy: Copy,
    /// Null while the thread has not used the copy.
    at: *mut Globals,
    /// The entry of the thread's vector that shows, while `at` is null, whether the thread has used
    /// the copy since. Null: a change of the thread's generation shows that.
    slot: *const TlsSlot,
}

impl CopyPlace {
    /// The place of a copy that a search on this thread has found. `block`: the object's block on
    /// this thread, or 0.
    pub fn seen(copy: Copy, at: *mut Globals, block: usize) -> CopyPlace {
        let slot = arch::tls_slot(copy.module);
        // SAFETY: `tls_slot` gives null or an entry of this thread's vector.
        let is_watchable =
            block == 0 && unsafe { slot.as_ref() }.is_some_and(TlsSlot::has_no_block);
        CopyPlace { copy, at, slot: if is_watchable { slot } else { ptr::null() } }
    }

    /// The place of a copy on the calling thread, which has this generation and has not searched.
    /// `None` if the thread has to search.
    pub fn of(copy: Copy, generation: usize) -> Option<CopyPlace> {
        // SAFETY: `tls_slot` gives null or an entry of this thread's vector.
        let slot = unsafe { arch::tls_slot(copy.module).as_ref() };
        let unused = CopyPlace { copy, at: ptr::null_mut(), slot: ptr::null() };
        match (slot, copy.offset) {
            (_, Offset::Elsewhere) => None,
            // A thread that gets a block gets another generation.
            (None, _) => Some(unused),
            (Some(slot), _) if slot.is_unset() => Some(unused),
            (Some(slot), _) if slot.has_no_block() => Some(CopyPlace { slot, ..unused }),
            (Some(slot), Offset::InBlock { offset, generation: least }) if generation >= least => {
                Some(CopyPlace { at: (slot.block() + offset) as *mut Globals, ..unused })
            }
            _ => None,
        }
    }

    /// Whether the thread still hasn't used the copy, or the place of the copy's words is known
    /// now.
    pub fn is_found(&mut self) -> bool {
        if !self.at.is_null() {
            return true;
        }
        // SAFETY: `slot` is null, or an entry of this thread's vector, which has not moved since,
        // because the thread's generation is unchanged. So the entry is this object's.
        let slot = unsafe { self.slot.as_ref() }.filter(|s| !s.has_no_block());
        match (slot, self.copy.offset) {
            (None, _) => true,
            (Some(slot), Offset::InBlock { offset, .. }) => {
                self.at = (slot.block() + offset) as *mut Globals;
                true
            }
            _ => false,
        }
    }
}

/// The copies that are loaded, for threads that begin.
pub struct Copies {
    list: Locked<(usize, Vec<Copy>)>,
}

impl Copies {
    /// Takes the copies that the parent of a fork knew, if the calling thread can have used no
    /// others; else searches. On a plain thread.
    pub fn new() -> Copies {
        let inherited =
            INHERITED.with(Option::take).filter(|(known, _)| arch::tls_generation() <= *known);
        let list = inherited.unwrap_or_else(|| match find_copies() {
            Some((generation, places)) => (generation, places.iter().map(|p| p.copy).collect()),
            None => (arch::tls_generation(), Vec::new()),
        });
        Copies { list: Locked::new(list) }
    }

    /// Locks the list around a fork, so that the child does not find it locked or half written.
    pub fn lock(&self) {
        self.list.lock();
    }

    /// Undoes [`Copies::lock`].
    ///
    /// # Safety
    /// The calling thread holds the lock.
    pub unsafe fn unlock(&self) {
        // SAFETY: the caller holds the lock.
        unsafe { self.list.unlock() };
    }

    pub fn with<R>(&self, f: impl FnOnce(&mut (usize, Vec<Copy>)) -> R) -> R {
        self.list.with(f)
    }

    /// Keeps what a thread's search has found, for all threads that don't know of newer copies.
    pub fn learn(&self, generation: usize, found: &mut [CopyPlace]) {
        self.with(|(known, list)| {
            if generation < *known {
                return;
            }
            for place in found.iter_mut().filter(|p| p.copy.offset == Offset::Unknown) {
                if let Some(copy) = list.iter().find(|c| c.get as usize == place.copy.get as usize)
                {
                    place.copy.offset = copy.offset;
                }
            }
            *known = generation;
            list.clear();
            list.extend(found.iter().map(|p| p.copy));
        });
    }

    /// The copies on the calling thread, if a search by another thread has found all that the
    /// calling thread can have used.
    pub fn places(&self, generation: usize) -> Option<Vec<CopyPlace>> {
        self.with(|(known, list)| {
            if generation > *known {
                return None;
            }
            list.iter().map(|&copy| CopyPlace::of(copy, generation)).collect()
        })
    }

    /// The copies on the calling thread, as far as they are known without a search.
    pub fn some_places(&self, generation: usize) -> Vec<CopyPlace> {
        self.with(|(_, list)| {
            list.iter().filter_map(|&copy| CopyPlace::of(copy, generation)).collect()
        })
    }
}

/// Resets the state of searches in the child of a fork: threads that were about to search are gone,
/// and perhaps a thread that had the loader's lock. `parent`: the copies of the parent's runtime,
/// which is not used any more.
pub fn forked(parent: Option<&Copies>) {
    forking::forget_searches();
    LOADER.store(lock::UNSURE, Ordering::Relaxed);
    // SAFETY: this is the child's only thread, and it doesn't hold the lock. A thread of the
    // parent's may have held it, but not in the middle of a change.
    unsafe { INHERITED.reset() };
    if let Some(parent) = parent {
        let list = parent.with(core::mem::take);
        INHERITED.with(|inherited| *inherited = Some(list));
    }
}

/// The copies that a parent knew, for the runtime of its child: see [`Copies::new`].
static INHERITED: Locked<Option<(usize, Vec<Copy>)>> = Locked::new(None);

/// Whether the loader's lock is usable: one of the states in [`lock`].
pub static LOADER: AtomicU8 = AtomicU8::new(lock::FREE);

/// States of the loader's lock. glibc leaves the lock as it is in the child of a fork. So a thread
/// of the parent that was loading something, or throwing a C++ exception, keeps the lock for ever.
pub mod lock {
    pub const FREE: u8 = 0;
    /// The lock in the child of a fork, before a thread has searched.
    pub const UNSURE: u8 = 1;
    /// A thread that is gone has the lock. Nothing can be loaded or unloaded any more.
    pub const STUCK: u8 = 2;
    /// How long a search may take before the lock counts as stuck, in ns: a search takes some
    /// microseconds.
    pub const PATIENCE: i64 = 500_000_000;
}

/// Whether the loader's lock will be free again. In the child of a fork another thread tries the
/// lock first.
pub fn is_loader_usable() -> bool {
    pub extern "C" fn try_it(_: *mut c_void) -> *mut c_void {
        thread::set_up_current(c"gosched-loader");
        loader::take_lock_once();
        // Release: pairs with the Acquire below.
        TRIED.store(1, Ordering::Release);
        futex::wake(&TRIED, 1);
        ptr::null_mut()
    }
    static TRIED: AtomicU32 = AtomicU32::new(0);
    if LOADER.load(Ordering::Relaxed) == lock::UNSURE {
        TRIED.store(0, Ordering::Relaxed);
        let deadline = time::now() + lock::PATIENCE;
        let thread = Thread::start(try_it, ptr::null_mut());
        while thread.is_ok() && TRIED.load(Ordering::Acquire) == 0 && time::now() < deadline {
            futex::wait(&TRIED, 0, deadline);
        }
        let is_free = TRIED.load(Ordering::Acquire) == 1;
        if let (true, Ok(thread)) = (is_free, thread) {
            thread.join();
        }
        LOADER.store(if is_free { lock::FREE } else { lock::STUCK }, Ordering::Relaxed);
    }
    LOADER.load(Ordering::Relaxed) == lock::FREE
}

/// Finds the copies that are loaded, on the calling thread, and the generation for which that
/// holds. Waits for the loader's lock. `None`: the lock will never be free again.
pub fn find_copies() -> Option<(usize, Vec<CopyPlace>)> {
    let _searching = forking::Searching::begin();
    if !is_loader_usable() {
        return None;
    }
    loop {
        // The generation is read first: all objects that this thread knows of are in the loader's
        // list by now.
        let generation = arch::tls_generation();
        let mut places = Vec::<CopyPlace>::new();
        let weak = arch::address_of_cxa_get_globals();
        loader::each_definition_of(c"__cxa_get_globals", weak, &mut |object| {
            // SAFETY: the function's type in the Itanium C++ ABI.
            let get = unsafe { core::mem::transmute::<*mut c_void, Get>(object.function) };
            let mut copy = Copy { get, module: object.tls_module, offset: Offset::Unknown };
            // Without a block on this thread a call of `get` would make the block, from the C
            // library's heap.
            let mut at = ptr::null_mut();
            if object.tls_module == 0 || object.tls_block != 0 {
                at = get();
                let offset = (at as usize).wrapping_sub(object.tls_block);
                // SAFETY: `tls_slot` gives null or an entry of this thread's vector.
                let slot = unsafe { arch::tls_slot(copy.module).as_ref() };
                let is_inside =
                    slot.is_some_and(|s| s.block() == object.tls_block) && offset < object.tls_size;
                copy.offset = match is_inside {
                    true => Offset::InBlock { offset, generation },
                    false => Offset::Elsewhere,
                };
            }
            if at.is_null() || places.iter().all(|p| p.at != at) {
                places.push(CopyPlace::seen(copy, at, object.tls_block));
            }
        });
        if arch::tls_generation() == generation {
            return Some((generation, places));
        }
    }
}

/// What an M knows of the copies on its thread. Used by that thread only.
pub struct ThreadCopies {
    /// The generation in which the thread has used no copy. [`NEVER`]: the thread has used a copy,
    /// or may use a copy without getting another generation.
    without: Cell<usize>,
    /// The generation in which a switch has no exception to take along while `probed` has the bits
    /// `bits`. [`NEVER`]: more must be checked.
    generation: Cell<usize>,
    probed: Cell<*const Globals>,
    bits: Cell<usize>,
    /// The generation for which `places` holds.
    known: Cell<usize>,
    places: UnsafeCell<Vec<CopyPlace>>,
    /// The thread's own exceptions from before its first goroutine: `gs_run` may be called in a
    /// catch block.
    own: UnsafeCell<Saved>,
    /// The record of the goroutine that has just been left, whose exceptions g0 must save. Null:
    /// none.
    pub(super) unsaved: Cell<*const Unsaved>,
}

impl ThreadCopies {
    pub fn new() -> ThreadCopies {
        ThreadCopies {
            without: Cell::new(NEVER),
            generation: Cell::new(NEVER),
            probed: Cell::new(&raw const NOTHING),
            bits: Cell::new(0),
            known: Cell::new(NEVER),
            places: UnsafeCell::default(),
            own: UnsafeCell::new(Saved::new()),
            unsaved: Cell::new(ptr::null()),
        }
    }

    /// Whether a switch has no exception to take along, as far as that can be told at once. If not,
    /// the caller checks `knows_all` and more.
    #[inline(always)]
    pub fn is_clean(&self) -> bool {
        let generation = arch::tls_generation();
        if generation == self.without.get() {
            return true;
        }
        generation == self.generation.get()
            // SAFETY: `NOTHING`, or the thread's own words, which stay while its generation is
            // unchanged.
            && unsafe { self.probed.get().read() }.bits() == self.bits.get()
    }

    #[allow(clippy::mut_from_ref, reason = "only the M's own thread calls this")]
    pub fn places(&self) -> &mut Vec<CopyPlace> {
        // SAFETY: `places` is the thread's own; no method keeps the reference over a call of
        // another method.
        unsafe { &mut *self.places.get() }
    }

    pub fn know(&self, generation: usize, places: Vec<CopyPlace>) {
        self.known.set(generation);
        *self.places() = places;
        self.probe();
    }

    /// Sets what [`ThreadCopies::is_clean`] compares.
    pub fn probe(&self) {
        let known = self.known.get();
        let nothing = &raw const NOTHING;
        let (without, generation, probed, bits) = match self.places()[..] {
            [] => (known, NEVER, nothing, 0),
            [p] if !p.at.is_null() => (NEVER, known, p.at.cast_const(), 0),
            [p] if !p.slot.is_null() => (NEVER, known, p.slot.cast(), TlsSlot::NO_BLOCK),
            // A thread that uses the copy gets another generation.
            [_] => (known, NEVER, nothing, 0),
            _ => (NEVER, NEVER, nothing, 0),
        };
        self.without.set(without);
        self.generation.set(generation);
        self.probed.set(probed);
        self.bits.set(bits);
    }

    /// Whether the places of all copies that the thread has used are known now.
    pub fn knows_all(&self, copies: &Copies) -> bool {
        let generation = arch::tls_generation();
        if self.known.get() != generation {
            match copies.places(generation) {
                Some(places) => self.know(generation, places),
                None => return false,
            }
        }
        let unused = self.places().iter().filter(|p| p.at.is_null()).count();
        if unused == 0 {
            return true;
        }
        let all = self.places().iter_mut().all(CopyPlace::is_found);
        if self.places().iter().filter(|p| p.at.is_null()).count() != unused {
            self.probe();
        }
        all
    }

    /// Finds all copies. The caller has no P, because this waits for locks that a goroutine may
    /// have.
    pub fn find_all(&self, copies: &Copies) {
        while !self.knows_all(copies) {
            if let Some((generation, mut places)) = find_copies() {
                copies.learn(generation, &mut places);
                self.know(generation, places);
            } else {
                let generation = arch::tls_generation();
                self.know(generation, copies.some_places(generation));
            }
        }
    }

    /// Moves the thread's exceptions to `saved`. The places of all copies are known.
    pub fn take(&self, saved: &mut Saved) {
        for place in self.places().iter().filter(|p| !p.at.is_null()) {
            // SAFETY: the thread's own words.
            unsafe {
                let globals = place.at.read();
                if globals.bits() != 0 {
                    saved.push((place.copy.get, globals));
                    place.at.write(Globals::NONE);
                }
            }
        }
    }

    /// Where a copy has its words on this thread, if that is known at once.
    pub fn place_of(&self, copies: &Copies, get: Get) -> Option<*mut Globals> {
        if !self.knows_all(copies) {
            return None;
        }
        let place = self.places().iter().find(|p| p.copy.get as usize == get as usize)?;
        (!place.at.is_null()).then_some(place.at)
    }

    /// Prepares a thread that begins to run goroutines. `may_wait`: the thread has no P, and gets
    /// none meanwhile.
    pub fn begin(&self, copies: &Copies, may_wait: bool) {
        self.know(NEVER, Vec::new());
        if may_wait {
            self.find_all(copies);
            // SAFETY: `own` is used by this thread only.
            self.take(unsafe { &mut *self.own.get() });
        } else {
            // If places are missing, the first switch leads to a search.
            self.knows_all(copies);
        }
    }

    /// Restores the exceptions that the thread had when it came: the thread goes back to its owner.
    pub fn end(&self) {
        // SAFETY: `own` is used by this thread only.
        let own = unsafe { &mut *self.own.get() };
        for (get, globals) in own.drain() {
            // SAFETY: the thread's own words; it is a plain thread, and may wait.
            unsafe { get().write(globals) };
        }
    }

    /// Moves the thread's exceptions to `saved`, on g0 without a P.
    pub fn take_without_p(&self, copies: &Copies, saved: &mut Saved) {
        if !self.is_clean() {
            self.find_all(copies);
            self.take(saved);
        }
    }
}

/// The exceptions that a goroutine takes along, by copy.
pub struct Saved {
    pub(super) count: usize,
    few: [MaybeUninit<(Get, Globals)>; Saved::FEW],
    more: Vec<(Get, Globals)>,
}

impl Saved {
    /// Exceptions of up to this number of copies need no memory from the heap.
    const FEW: usize = 4;

    #[inline(always)]
    pub fn new() -> Saved {
        Saved { count: 0, few: [const { MaybeUninit::uninit() }; Saved::FEW], more: Vec::new() }
    }

    pub fn push(&mut self, one: (Get, Globals)) {
        if self.count < Saved::FEW {
            self.few[self.count].write(one);
            self.count += 1;
        } else {
            self.more.push(one);
        }
    }

    pub fn drain(&mut self) -> impl Iterator<Item = (Get, Globals)> + '_ {
        let count = core::mem::take(&mut self.count);
        // SAFETY: `push` has written the first `count`.
        let few = self.few[..count].iter().map(|one| unsafe { one.assume_init_read() });
        few.chain(self.more.drain(..))
    }
}

/// The exceptions of a goroutine that is left while the M doesn't know all copies. The thread's g0
/// finds and saves them; the goroutine, which may be resumed before that, waits for g0.
pub struct Unsaved {
    pub(super) is_saved: AtomicU32,
    pub(super) saved: UnsafeCell<Saved>,
}

impl Unsaved {
    pub fn new() -> Unsaved {
        Unsaved { is_saved: AtomicU32::new(0), saved: UnsafeCell::new(Saved::new()) }
    }
}
