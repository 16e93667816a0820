//! Walks over stacks.
//!
//! # Modules
//!
//! A walk needs the CFI of each *module*: a loaded object, or the kernel's vDSO, which the loader
//! lists too. The program headers lead to `.eh_frame_hdr` in memory, and that to `.eh_frame`; no
//! file is read. [`refresh_modules`] makes a [`Table`] of all modules when the loader's counts of
//! added and removed objects have changed. A walk uses the last table that was made, and takes no
//! lock.
//!
//! ```text
//!   walk:      slot.table = CURRENT      refresh:   CURRENT = new
//!              fence, and CURRENT again             fence, and slot.table of all slots
//!              (a new one: once more)               (not the old one: free it)
//! ```
//!
//! At least one of the two sees the other's write: either the walk uses the new table, or the
//! refresh keeps the old one until a later refresh.
//!
//! A module that was unloaded since has no CFI in memory any more. So before a walk reads a
//! module's CFI, it asks glibc's `_dl_find_object`, which takes no lock, whether the CFI is still
//! there. Before glibc 2.35, which lacks that function, a walk over frames of code that was loaded
//! at the addresses of an unloaded module may fault; no frame can belong to unloaded code.
//!
//! # Slots
//!
//! A walk needs memory that nothing else uses: about 40 KiB for the rules that framehop remembers
//! and for what it needs to read CFI, and 8 KiB of stack, which a goroutine may not have left.
//! [`SLOTS`] have both, and each walk takes a free slot, usually the slot that its thread used last.
//! A walk that finds no free slot follows frame pointers.

use crate::arch;
pub use crate::arch::Registers;
use crate::os::objects::{self, Changes, Finder, Object};
use crate::os::spin::LongLock;
use crate::os::{PAGE, cpu, heap, mem};
use crate::stack;
use core::ffi::c_void;
use core::ops::Deref;
use core::ptr;
use core::slice;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use framehop::{
    CacheNative, ExplicitModuleSectionInfo, FrameAddress, Module, MustNotAllocateDuringUnwind,
    UnwindRegsNative, Unwinder, UnwinderNative,
};
use gimli::{BaseAddresses, EhFrameHdr, LittleEndian, Pointer};

/// The most frames that a walk reports.
pub const MOST_FRAMES: usize = 128;

/// A frame of a stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Of the first frame: where its code goes on. Of all others: a return address, so the call is
    /// before it.
    pub pc: usize,
    /// Address of the stack slot that holds this return address; 0 for the first frame;
    /// [`arch::ReturnPlace::REGISTER`] if a register holds it.
    pub slot: usize,
}

/// Walks a stack from the registers `from` outwards, and calls `f` with each frame until `f`
/// returns false. `stack`: the lowest address and the size of the memory that may be read.
///
/// The walk ends at a frame whose CFI says that it has no caller, such as the entry of a goroutine,
/// after [`MOST_FRAMES`], and where neither CFI nor the frame pointer leads on.
///
/// It reads the stack from `from.sp` upwards, and the CFI of modules. It neither allocates nor
/// takes a lock, so it may be called in a signal handler and while the world is stopped. It uses
/// less than 1 KiB of the running stack (`a_walk_needs_little_stack`), because the walk and `f` run
/// on a stack of their own, with 48 KiB for `f`. `f` must not switch to another goroutine.
///
/// # Safety
/// The memory from `from.sp` to the end of `stack` is readable, and stays so. What the stack's
/// owner changes there meanwhile may end up in wrong frames.
pub unsafe fn walk(from: Registers, stack: (usize, usize), f: &mut dyn FnMut(Frame) -> bool) {
    if !f(Frame { pc: from.pc, slot: 0 }) {
        return;
    }
    let (lo, hi) = (stack.0, stack.0 + stack.1);
    // A stack pointer below the stack is that of an overflow.
    if from.sp >= hi {
        return;
    }
    // A function at its end may have its last values below the stack pointer.
    let lo = lo.max(from.sp.saturating_sub(arch::RED_ZONE));
    let mut walk = Walk { lo, hi, pc: FrameAddress::from_instruction_pointer(from.pc as u64) };
    match Reader::begin() {
        Some(reader) => by_cfi_on_own_stack(&mut walk, from, reader, f),
        None => walk.by_frame_pointers(from, f),
    }
}

/// [`Walk::by_cfi`], on the stack of the reader's slot.
fn by_cfi_on_own_stack(
    walk: &mut Walk,
    from: Registers,
    mut reader: Reader,
    f: &mut dyn FnMut(Frame) -> bool,
) {
    struct Call<'a> {
        walk: &'a mut Walk,
        from: Registers,
        reader: &'a mut Reader,
        f: &'a mut dyn FnMut(Frame) -> bool,
    }
    extern "C" fn begin(_: i32, call: *mut c_void, _: *mut c_void) {
        // SAFETY: the caller passes the address of its `Call`, and waits.
        let Call { walk, from, reader, f } = unsafe { &mut *call.cast::<Call>() };
        walk.by_cfi(*from, reader, *f);
    }
    // SAFETY: the slot is the reader's, and the stack was made with its cache.
    let top = unsafe { (*reader.memory).stack } + STACK;
    let mut call = Call { walk, from, reader: &mut reader, f };
    let entry = begin as *const () as usize;
    // SAFETY: `begin` takes the three arguments of a handler, and nothing else is on the stack.
    unsafe { arch::call_handler(entry, 0, (&raw mut call).cast(), ptr::null_mut(), top) };
}

/// A walk that is under way.
struct Walk {
    /// The memory that may be read.
    lo: usize,
    hi: usize,
    pc: FrameAddress,
}

impl Walk {
    /// The word on the stack at this address.
    fn word(&self, at: usize) -> Option<usize> {
        const WORD: usize = size_of::<usize>();
        let fits = at.is_multiple_of(WORD) && at >= self.lo && at <= self.hi - WORD;
        // SAFETY: the word is within the stack. Volatile because the stack's owner may be running.
        fits.then(|| unsafe { (at as *const usize).read_volatile() })
    }

    /// Whether `fp` may be a frame pointer: in the stack, above `sp`.
    fn is_frame(&self, fp: usize, sp: usize) -> bool {
        const WORD: usize = size_of::<usize>();
        fp.is_multiple_of(WORD) && fp >= sp && fp < self.hi - WORD
    }

    fn by_cfi(&mut self, from: Registers, reader: &mut Reader, f: &mut dyn FnMut(Frame) -> bool) {
        let (table, cache) = reader.parts();
        let [first, sp, fp] = from.for_unwinder();
        let mut regs = UnwindRegsNative::new(first, sp, fp);
        let mut last = 0;
        let mut is_known = table.has_code(from.pc, &mut last);
        for _ in 1..MOST_FRAMES {
            let sp = regs.sp() as usize;
            if !is_known {
                NEEDS_REFRESH.store(true, Ordering::Relaxed);
                // Code that was made at run time, or a wrong address.
                if !self.is_frame(arch::frame_pointer!(regs) as usize, sp) {
                    return;
                }
            }
            let mut place = arch::ReturnPlace::new();
            let mut read = |at: u64| {
                let word = arch::code_address(self.word(at as usize).ok_or(())?);
                place.note(at as usize, word);
                Ok(word as u64)
            };
            let Ok(Some(pc)) = table.unwinder.unwind_frame(self.pc, &mut regs, cache, &mut read)
            else {
                return;
            };
            let Some(address) = FrameAddress::from_return_address(pc) else { return };
            if (regs.sp() as usize) < sp {
                return;
            }
            is_known = table.has_code(address.address_for_lookup() as usize, &mut last);
            let leads_on =
                is_known || self.is_frame(arch::frame_pointer!(regs) as usize, regs.sp() as usize);
            let slot = place.of(pc as usize, regs.sp() as usize);
            if !leads_on || !f(Frame { pc: pc as usize, slot }) {
                return;
            }
            self.pc = address;
        }
    }

    fn by_frame_pointers(&mut self, from: Registers, f: &mut dyn FnMut(Frame) -> bool) {
        let (mut sp, mut fp) = (from.sp, from.fp);
        for _ in 1..MOST_FRAMES {
            if !self.is_frame(fp, sp) {
                return;
            }
            let slot = fp + size_of::<usize>();
            let (Some(next), Some(pc)) = (self.word(fp), self.word(slot)) else { return };
            let pc = arch::code_address(pc);
            if pc == 0 || !f(Frame { pc, slot }) {
                return;
            }
            (sp, fp) = (slot + size_of::<usize>(), next);
        }
    }
}

/// CFI in memory, as framehop reads it.
#[derive(Clone, Default)]
struct Section {
    data: &'static [u8],
    /// Finds out whether the module is still there; `None`: it is not asked.
    check: Option<Finder>,
    /// An address in the module's code, and the address of its `.eh_frame_hdr`.
    code: usize,
    header: usize,
}

impl Deref for Section {
    type Target = [u8];

    /// Empty if the module was unloaded; then framehop finds no rule. Called once for each frame
    /// whose rule framehop doesn't remember.
    fn deref(&self) -> &[u8] {
        match self.check {
            Some(finder) if finder.unwind_header(self.code) != self.header => &[],
            _ => self.data,
        }
    }
}

/// The modules of the process at some time.
struct Table {
    unwinder: UnwinderNative<Section, MustNotAllocateDuringUnwind>,
    /// Begin and end of each segment with code, in order.
    code: Vec<(usize, usize)>,
    changes: Changes,
    /// The next of the tables that walks may still use.
    next: *mut Table,
}

impl Table {
    fn new() -> Table {
        let mut table = Table {
            unwinder: UnwinderNative::new(),
            code: Vec::new(),
            changes: Changes::default(),
            next: ptr::null_mut(),
        };
        let finder = Finder::new();
        objects::each(&mut |object, changes| {
            table.changes = changes;
            table.add(&object, finder);
            true
        });
        table.code.sort_unstable();
        table
    }

    fn add(&mut self, object: &Object, finder: Option<Finder>) {
        let at = |h: &libc::Elf64_Phdr| object.base + h.p_vaddr as usize;
        let range = |h: &libc::Elf64_Phdr| (at(h), at(h) + h.p_memsz as usize);
        let loaded = || object.headers.iter().filter(|h| h.p_type == libc::PT_LOAD);
        let code = || loaded().filter(|h| h.p_flags & libc::PF_X != 0).map(range);
        let (Some(begin), Some(end)) = (code().map(|c| c.0).min(), code().map(|c| c.1).max())
        else {
            return;
        };
        self.code.extend(code());
        let Some(header) = object.headers.iter().find(|h| h.p_type == libc::PT_GNU_EH_FRAME) else {
            return;
        };
        let header = range(header);
        // SAFETY: the loader has mapped the segment; `Section::deref` says what if it is unmapped.
        let header_data = unsafe { bytes(header) };
        // The length of `.eh_frame` isn't known, but the segment that it is in ends somewhere.
        let Some(frames) = frames_of(header_data, header.0)
            .and_then(|at| Some((at, loaded().map(range).find(|r| (r.0..r.1).contains(&at))?.1)))
        else {
            return;
        };
        let check = finder.filter(|f| f.unwind_header(begin) == header.0);
        let section = |data| Section { data, check, code: begin, header: header.0 };
        let in_file =
            |(lo, hi): (usize, usize)| Some((lo - object.base) as u64..(hi - object.base) as u64);
        let info = ExplicitModuleSectionInfo {
            eh_frame_hdr_svma: in_file(header),
            eh_frame_hdr: Some(section(header_data)),
            eh_frame_svma: in_file(frames),
            // SAFETY: as for the header.
            eh_frame: Some(section(unsafe { bytes(frames) })),
            ..Default::default()
        };
        let range = begin as u64..end as u64;
        self.unwinder.add_module(Module::new(String::new(), range, object.base as u64, info));
    }

    /// Whether a module has code at this address. `last`: the index into `code` that was right last.
    #[inline]
    fn has_code(&self, pc: usize, last: &mut usize) -> bool {
        let is_at = |i: usize| self.code.get(i).is_some_and(|&(lo, hi)| (lo..hi).contains(&pc));
        if !is_at(*last) {
            *last = self.code.partition_point(|&(lo, _)| lo <= pc).wrapping_sub(1);
        }
        is_at(*last)
    }
}

/// # Safety
/// The memory is mapped, and read no more when it is unmapped.
unsafe fn bytes((lo, hi): (usize, usize)) -> &'static [u8] {
    // SAFETY: as the caller says.
    unsafe { slice::from_raw_parts(lo as *const u8, hi - lo) }
}

/// The address of the `.eh_frame` that belongs to a `.eh_frame_hdr`.
fn frames_of(header: &[u8], at: usize) -> Option<usize> {
    let bases = BaseAddresses::default().set_eh_frame_hdr(at as u64);
    let word = size_of::<usize>() as u8;
    match EhFrameHdr::new(header, LittleEndian).parse(&bases, word).ok()?.eh_frame_ptr() {
        Pointer::Direct(frames) => Some(frames as usize),
        Pointer::Indirect(_) => None,
    }
}

/// Size in bytes of the stack of a walk. A handler of the host's may run there too.
const STACK: usize = 64 << 10;

/// What a walk needs for itself.
struct Memory {
    cache: CacheNative<MustNotAllocateDuringUnwind>,
    /// The lowest address of a stack of [`STACK`] bytes.
    stack: usize,
}

impl Memory {
    /// `None`: there is no memory.
    fn new() -> Option<Box<Memory>> {
        let stack = mem::reserve(STACK, PAGE)?;
        arch::valgrind_register(stack, stack + STACK);
        heap::boxed_to_keep(Memory { cache: CacheNative::new_in(), stack })
    }
}

/// A place for one walk at a time.
struct Slot {
    /// The table that the walk uses, which must not be freed; null: the slot is free.
    table: AtomicPtr<Table>,
    /// Null: not made yet. Made by `refresh_modules`.
    memory: AtomicPtr<Memory>,
}

/// The most slots. There are two more than CPUs, for walks that others have interrupted.
const MOST_SLOTS: usize = 64;

static SLOTS: [Slot; MOST_SLOTS] = [const {
    Slot { table: AtomicPtr::new(ptr::null_mut()), memory: AtomicPtr::new(ptr::null_mut()) }
}; MOST_SLOTS];

/// The table that walks use; null: none yet.
static CURRENT: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());

/// Older tables that walks may still use. Used with `REFRESHES` held.
static RETIRED: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());

/// Held by the thread that refreshes the modules. Not a [`SpinLock`](crate::os::spin::SpinLock):
/// its holder waits for the loader's lock.
static REFRESHES: LongLock = LongLock::new();

/// A walk came to an address that is in no module of the table.
static NEEDS_REFRESH: AtomicBool = AtomicBool::new(false);

/// Whether a walk came to code that is in no known module since the last [`refresh_modules`].
#[allow(dead_code, reason = "for callers that walk often, and so refresh seldom")]
pub fn needs_refresh() -> bool {
    NEEDS_REFRESH.load(Ordering::Relaxed)
}

/// Makes the modules known that are loaded now. Cheap if no object was loaded or unloaded since the
/// last call.
///
/// Takes the loader's lock, which a goroutine that was stopped in the middle of dlopen(3) may hold:
/// called in an announced call or on a thread without a P, and never with the world stopped. Needs
/// little stack.
pub fn refresh_modules() {
    // A clear before the look: a walk that meets new code after that sets the flag again.
    NEEDS_REFRESH.store(false, Ordering::Relaxed);
    REFRESHES.with(|| {
        let old = CURRENT.load(Ordering::Relaxed);
        // SAFETY: only a refresh frees a table, and never the current one.
        let is_old = unsafe { old.as_ref() }.is_none_or(|t| t.changes != objects::changes());
        if is_old || slots_without_memory().next().is_some() {
            // Making the memory takes 100 KiB of stack.
            let made = stack::on_large(|| {
                make_memory();
                heap::boxed_to_keep(Table::new())
            });
            let Some(Some(table)) = made else { return };
            let new = Box::into_raw(table);
            CURRENT.store(new, Ordering::SeqCst);
            if !old.is_null() {
                // SAFETY: the old table was the current one, so it is in no list.
                unsafe { (*old).next = RETIRED.load(Ordering::Relaxed) };
                RETIRED.store(old, Ordering::Relaxed);
            }
        }
        free_retired();
    });
}

/// Frees the tables that no walk uses. Called with `REFRESHES` held.
fn free_retired() {
    let mut rest = RETIRED.swap(ptr::null_mut(), Ordering::Relaxed);
    while !rest.is_null() {
        let table = rest;
        // SAFETY: a table in the list, which only the holder of `REFRESHES` changes.
        rest = unsafe { (*table).next };
        // SeqCst: after the store to `CURRENT`. Pairs with those in `Reader::begin`.
        if SLOTS.iter().any(|slot| slot.table.load(Ordering::SeqCst) == table) {
            // SAFETY: as above.
            unsafe { (*table).next = RETIRED.load(Ordering::Relaxed) };
            RETIRED.store(table, Ordering::Relaxed);
        } else {
            // SAFETY: it came from a box; it is not current, so no walk begins with it, and no slot
            // has it.
            drop(unsafe { Box::from_raw(table) });
        }
    }
}

fn slots_without_memory() -> impl Iterator<Item = &'static Slot> {
    SLOTS.iter().take(cpu::count() + 2).filter(|s| s.memory.load(Ordering::Relaxed).is_null())
}

/// Makes slots usable, as many as walks may need at a time. Called with `REFRESHES` held.
fn make_memory() {
    for slot in slots_without_memory() {
        let Some(memory) = Memory::new() else { return };
        // Release: pairs with the Acquire in `Reader::begin`.
        slot.memory.store(Box::into_raw(memory), Ordering::Release);
    }
}

/// In the child of a fork: frees the slots and the lock of threads that the child lacks.
pub fn forget_threads() {
    if !REFRESHES.is_free() {
        // The list of tables may be half changed: the child leaves them, and makes a new one.
        CURRENT.store(ptr::null_mut(), Ordering::Relaxed);
        RETIRED.store(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: the child has one thread, which doesn't refresh the modules: it forks.
        unsafe { REFRESHES.reset() };
    }
    for slot in &SLOTS {
        if !slot.table.load(Ordering::Relaxed).is_null() {
            // A walk of another thread may have changed the memory by half.
            slot.memory.store(ptr::null_mut(), Ordering::Relaxed);
            slot.table.store(ptr::null_mut(), Ordering::Relaxed);
        }
    }
}

/// A slot that a walk has, and the table that it uses.
struct Reader {
    slot: &'static Slot,
    table: *mut Table,
    memory: *mut Memory,
}

impl Reader {
    /// Takes a free slot. `None`: there is none, or no table yet.
    fn begin() -> Option<Reader> {
        let mut table = CURRENT.load(Ordering::SeqCst);
        if table.is_null() {
            return None;
        }
        // A thread finds the rules that it used last. Threads of the library differ by their M's,
        // others by their stacks.
        let me = match arch::tls_get() {
            0 => ptr::from_ref(&table) as usize >> 16,
            m => m >> 8,
        };
        let count =
            SLOTS.iter().take_while(|s| !s.memory.load(Ordering::Relaxed).is_null()).count();
        for i in 0..count {
            let slot = &SLOTS[me.wrapping_add(i) % count];
            let taken = slot.table.compare_exchange(
                ptr::null_mut(),
                table,
                // SeqCst: before the load of `CURRENT`. Pairs with `free_retired`. Acquire: pairs
                // with the Release in `drop`, by which the last walk has left the memory.
                Ordering::SeqCst,
                Ordering::Relaxed,
            );
            if taken.is_err() {
                continue;
            }
            loop {
                let now = CURRENT.load(Ordering::SeqCst);
                if now == table {
                    let memory = slot.memory.load(Ordering::Acquire);
                    return Some(Reader { slot, table, memory });
                }
                table = now;
                slot.table.store(table, Ordering::SeqCst);
            }
        }
        None
    }

    fn parts(&mut self) -> (&Table, &mut CacheNative<MustNotAllocateDuringUnwind>) {
        // SAFETY: the slot names the table, so it isn't freed; and the slot is this walk's, so its
        // memory is too.
        unsafe { (&*self.table, &mut (*self.memory).cache) }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // Release: pairs with the next walk's exchange.
        self.slot.table.store(ptr::null_mut(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::thread;
    use core::hint::black_box;

    fn frames_from(from: Registers, stack: (usize, usize)) -> Vec<Frame> {
        let mut frames = Vec::new();
        // SAFETY: the stack of a function that waits.
        unsafe {
            walk(from, stack, &mut |frame| {
                frames.push(frame);
                true
            });
        }
        frames
    }

    #[inline(never)]
    fn deep(levels: usize, frames: &mut Vec<Frame>) -> usize {
        match levels {
            0 => *frames = frames_from(Registers::here(), thread::stack_bounds()),
            _ => _ = black_box(deep(levels - 1, frames)),
        }
        black_box(levels)
    }

    #[test]
    fn each_frame_of_a_recursion_is_found_once_in_the_slot_of_its_return_address() {
        refresh_modules();
        let mut frames = Vec::new();
        deep(20, &mut frames);
        let first = frames[0];
        assert_eq!(first.slot, 0);
        assert!(first.pc.abs_diff(deep as *const () as usize) < 4096);
        for pair in frames[1..].windows(2) {
            assert!(pair[0].slot < pair[1].slot);
        }
        let recursive = frames[1..].iter().filter(|f| f.pc == frames[1].pc).count();
        assert_eq!(recursive, 20);
        assert!(frames.len() > 25, "only {} frames", frames.len());
    }

    #[test]
    fn a_walk_ends_at_the_most_frames_and_when_the_caller_says_so() {
        refresh_modules();
        let mut frames = Vec::new();
        deep(200, &mut frames);
        assert_eq!(frames.len(), MOST_FRAMES);
        let mut count = 0;
        // SAFETY: the stack of this thread.
        unsafe {
            walk(Registers::here(), thread::stack_bounds(), &mut |_| {
                count += 1;
                count < 2
            });
        }
        assert_eq!(count, 2);
    }

    #[test]
    fn a_goroutine_that_has_not_begun_has_one_frame() {
        refresh_modules();
        let stack = vec![0u128; 64];
        let (lo, size) = (stack.as_ptr() as usize, size_of_val(&stack[..]));
        // SAFETY: an empty stack, on which nothing runs.
        let context = unsafe { arch::prepare(lo + size, arch::FpControl::current()) };
        // SAFETY: the context is at rest.
        let frames = frames_from(unsafe { Registers::of_context(context) }, (lo, size));
        assert_eq!(frames.len(), 1);
    }

    #[test]
    fn a_walk_reads_nothing_outside_of_the_stack() {
        refresh_modules();
        let from = Registers::here();
        assert_eq!(frames_from(from, (from.sp, 8)).len(), 1);
        assert_eq!(frames_from(from, (from.sp - 4096, 4096)).len(), 1);
        assert_eq!(frames_from(from, (from.sp + (64 << 10), 8)).len(), 1);
        let wild = Registers::new(8, from.sp, usize::MAX - 7);
        assert_eq!(frames_from(wild, (from.sp, 4096)).len(), 1);
    }

    #[test]
    fn without_a_slot_a_walk_follows_frame_pointers() {
        let mut words = [0usize; 16];
        let at = |i: usize, words: &[usize; 16]| &raw const words[i] as usize;
        (words[4], words[5]) = (at(8, &words), 0x1111);
        (words[8], words[9]) = (0, 0x2222);
        let from = Registers::new(0x3333, at(2, &words), at(4, &words));
        let mut found = Vec::new();
        let lo = at(0, &words);
        let hi = lo + size_of_val(&words);
        let pc = FrameAddress::from_instruction_pointer(0x3333);
        Walk { lo, hi, pc }.by_frame_pointers(from, &mut |f| {
            found.push((f.pc, f.slot));
            true
        });
        assert_eq!(found, [(0x1111, at(5, &words)), (0x2222, at(9, &words))]);
    }

    #[test]
    fn walks_on_many_threads_while_modules_are_refreshed_find_the_same_frames() {
        refresh_modules();
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let walker = || {
                let count = |levels| {
                    let mut frames = Vec::new();
                    deep(levels, &mut frames);
                    frames.len()
                };
                let least = count(5);
                while !ends.load(Ordering::Relaxed) {
                    let now = count(5);
                    assert!(now.abs_diff(least) <= 1, "{now} frames after {least}");
                }
            };
            let walkers: Vec<_> = (0..4).map(|_| scope.spawn(walker)).collect();
            for _ in 0..200 {
                // The table looks old.
                REFRESHES.with(|| {
                    // SAFETY: only a refresh frees tables.
                    let table = unsafe { &mut *CURRENT.load(Ordering::Relaxed) };
                    table.changes = Changes::default();
                });
                refresh_modules();
            }
            ends.store(true, Ordering::Relaxed);
            walkers.into_iter().for_each(|w| w.join().unwrap());
        });
    }

    #[test]
    #[cfg_attr(gosched_tsan, ignore = "instrumented code takes more")]
    fn a_walk_needs_little_stack() {
        const ROOM: usize = 64 << 10;
        const MARK: u8 = 0xa5;
        refresh_modules();
        struct Job {
            from: Registers,
            stack: (usize, usize),
            frames: usize,
        }
        extern "C" fn run(_: i32, job: *mut c_void, _: *mut c_void) {
            // SAFETY: the test waits for this function.
            let job = unsafe { &mut *job.cast::<Job>() };
            let count = &mut job.frames;
            // SAFETY: the stack of the test, which waits.
            unsafe {
                walk(job.from, job.stack, &mut |_| {
                    *count += 1;
                    true
                });
            }
        }
        let mut job = Job { from: Registers::here(), stack: thread::stack_bounds(), frames: 0 };
        let mut used = Vec::new();
        // The first walk reads CFI, later ones remember it.
        for _ in 0..2 {
            let mut stack = vec![MARK; ROOM];
            let hi = stack.as_mut_ptr() as usize + ROOM;
            // SAFETY: `run` takes three arguments; nothing is on the stack.
            unsafe {
                arch::call_handler(
                    run as *const () as usize,
                    0,
                    (&raw mut job).cast(),
                    ptr::null_mut(),
                    hi,
                );
            }
            used.push(ROOM - stack.iter().position(|&b| b != MARK).unwrap());
        }
        assert!(job.frames > 10);
        println!("a walk uses {used:?} bytes of stack");
        assert!(used.iter().all(|&n| n < 1 << 10), "{used:?} bytes");
    }
}
