//! What is alike on every CPU. The file of the CPU has what this needs.

use super::{interrupted, prefetch, tls_vector, valgrind_request};
use core::arch::global_asm;
use core::ffi::c_void;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

// Contexts.

/// Three words that a context passes to the context that runs next. Only the callers of [`super::switch`]
/// know the meaning.
pub type Words = [usize; 3];

/// Function and argument of the goroutine that begins on this stack now.
///
/// The ABI returns the two words in registers.
#[repr(C)]
pub struct Begin {
    pub f: unsafe extern "C" fn(*mut c_void),
    pub arg: *mut c_void,
}

/// Addresses of `begin` and `end`, as given to [`set_body`].
///
/// Atomics of `std`, because assembly reads them, and a model's atomics have another layout.
pub(super) static BODY: [std::sync::atomic::AtomicUsize; 2] =
    [const { std::sync::atomic::AtomicUsize::new(0) }; 2];

/// Sets what every goroutine calls before and after its function.
///
/// `begin` gets the words of the switch and returns function and argument. `end` returns only when
/// another new goroutine begins on this stack, with that goroutine's function and argument. Called
/// before the first goroutine is made, always with the same two functions: whatever publishes a
/// goroutine to another thread publishes these words too.
pub fn set_body(
    begin: unsafe extern "C" fn(usize, usize, usize) -> Begin,
    end: extern "C" fn() -> Begin,
) {
    let [first, last] = &BODY;
    first.store(begin as *const () as usize, std::sync::atomic::Ordering::Relaxed);
    last.store(end as *const () as usize, std::sync::atomic::Ordering::Relaxed);
}

// Signals.

/// Whether an interrupted context ran on the thread's alternate signal stack, in a signal handler.
///
/// # Safety
/// `context` is the `ucontext_t` that a signal handler was given.
pub unsafe fn was_on_alternate_stack(context: *const c_void) -> bool {
    // SAFETY: a handler's `ucontext_t`, as the caller says.
    let (sp, stack) =
        unsafe { (interrupted(context).sp, (*context.cast::<libc::ucontext_t>()).uc_stack) };
    sp.wrapping_sub(stack.ss_sp as usize) < stack.ss_size
}

// Thread-local storage.

// The thread-local word. Only `tls_get` and `tls_set` know it, so no compiler keeps its address or
// value across a switch.
global_asm!(
    ".pushsection .tbss.gosched_m,\"awT\",@nobits",
    ".p2align 3",
    ".hidden gosched_m",
    ".globl gosched_m",
    ".type gosched_m, @object",
    ".size gosched_m, 8",
    "gosched_m:",
    ".zero 8",
    ".popsection",
);

/// Generation of this thread's vector of thread-local blocks (*ELF Handling For Thread-Local
/// Storage*, 3.1).
///
/// Changes when the thread first uses a thread-local variable of a library that was loaded since;
/// with musl, when any thread has loaded a library with such variables.
#[inline(always)]
pub fn tls_generation() -> usize {
    // The vector's first word; with musl, which never removes an entry, the number of entries.
    // SAFETY: only the thread itself changes the vector and this word, or musl, which keeps the old
    // vector. Volatile: it is read each time.
    unsafe { tls_vector().cast::<usize>().read_volatile() }
}

/// An object's entry in a thread's vector of thread-local blocks.
#[repr(C)]
pub struct TlsSlot {
    block: AtomicUsize,
    #[cfg(not(target_env = "musl"))]
    _allocated: usize,
}

impl TlsSlot {
    /// Value of `block` while the thread has not used the thread-local variables of that ELF object.
    /// musl gives each thread a block for every object at once.
    pub const NO_BLOCK: usize = usize::MAX;

    /// Address of the object's block on this thread, [`TlsSlot::NO_BLOCK`], or 0 (unset).
    pub fn block(&self) -> usize {
        // The thread's own code writes the word. Atomic only because the compiler doesn't see these
        // writes.
        self.block.load(Ordering::Relaxed)
    }

    /// The thread has no block for the object.
    pub fn has_no_block(&self) -> bool {
        self.block() == TlsSlot::NO_BLOCK
    }

    /// The thread's vector has never held an object with this number.
    pub fn is_unset(&self) -> bool {
        self.block() == 0
    }
}

/// This thread's entry for the object with the number `module`; null if the thread's vector has
/// none. If the thread's generation is old enough, the entry may belong to an unloaded object
/// that had the number before.
pub fn tls_slot(module: usize) -> *const TlsSlot {
    let vector = tls_vector();
    // SAFETY: as in `tls_generation`.
    unsafe {
        // glibc has the number of entries before the first.
        let counter = if cfg!(target_env = "musl") { vector } else { vector.sub(1) };
        let count = (*counter).block.load(Ordering::Relaxed);
        if module == 0 || module > count {
            return core::ptr::null();
        }
        vector.add(module)
    }
}

// Probes for tools.

/// A USDT probe: a `nop` with a note that tells tools the provider `gosched`, the probe's name, and
/// in which registers the arguments are. The arguments are numbers or pointers of at most 8 bytes.
///
/// `$semaphore` is a static `AtomicU16`, which counts the tools that are attached to the probe. The
/// form of the note is SystemTap's, version 3. It is written here because the probes share one
/// semaphore; in the crate `probe` each has its own.
macro_rules! usdt {
    (@argument $arg:expr) => {
        concat!(" -8@", $crate::arch::usdt_register!())
    };
    ($semaphore:path, $name:literal, $first:expr $(, $arg:expr)*) => {
        // SAFETY: the code is a `nop`; a tool that puts a trap in its place changes nothing.
        unsafe {
            core::arch::asm!(
                "990: nop",
                ".pushsection .note.stapsdt,\"\",@note",
                ".balign 4",
                ".4byte 992f - 991f, 994f - 993f, 3",
                "991: .asciz \"stapsdt\"",
                "992: .balign 4",
                // Addresses: of the `nop`, of the mark below, of the semaphore.
                "993: .8byte 990b, _.stapsdt.base, {semaphore}",
                ".asciz \"gosched\"",
                concat!(".asciz \"", $name, "\""),
                concat!(".asciz \"-8@", $crate::arch::usdt_register!(), $($crate::arch::usdt!(@argument $arg),)* "\""),
                "994: .balign 4",
                ".popsection",
                in(reg) ($first) as u64,
                $(in(reg) ($arg) as u64,)*
                semaphore = sym $semaphore,
                options(nostack, preserves_flags),
            );
        }
    };
}
pub(crate) use usdt;

// The mark by which tools see by how much a library's addresses were moved after it was linked. Weak,
// and global in libgosched.a, because a program has one mark for all its probes.
global_asm!(
    ".pushsection .stapsdt.base,\"aR\",@progbits",
    ".weak _.stapsdt.base",
    ".hidden _.stapsdt.base",
    "_.stapsdt.base: .space 1",
    ".size _.stapsdt.base, 1",
    ".popsection",
);

// Prefetches, Valgrind.

/// Prefetches these cache lines, counted from the line of the address, which may be invalid.
#[inline(always)]
pub fn prefetch_lines(at: usize, lines: Range<usize>) {
    lines.for_each(|line| prefetch(at.wrapping_add(64 * line)));
}

/// Tells Valgrind that `lo..hi` is a stack, so that Valgrind doesn't take a switch for a huge
/// frame. Returns an id for [`valgrind_forget`]. Without Valgrind: a few no-ops.
pub fn valgrind_register(lo: usize, hi: usize) -> usize {
    valgrind_request([0x1501, lo, hi, 0, 0, 0])
}

/// Undoes [`valgrind_register`].
pub fn valgrind_forget(id: usize) {
    valgrind_request([0x1502, id, 0, 0, 0, 0]);
}
