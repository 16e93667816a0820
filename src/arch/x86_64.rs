//! x86-64, System V ABI: the context switch, the first frame of a goroutine and
//! the thread-local slot.
//!
//! A context at rest is one stack pointer. What it points at:
//!
//! ```text
//!   high   +----------------------+
//!          | return address       |  where the context goes on
//!          | rbp rbx r12 ... r15  |  callee-saved registers
//!          | mxcsr | x87 cw | 0   |  rounding modes, 8 bytes
//!   sp --> +----------------------+
//! ```
//!
//! A new goroutine gets the same frame, all zero but the two rounding modes and
//! `start` as its return address, so that one switch serves both.

use crate::atomic::AtomicU32;
use core::arch::{asm, global_asm, naked_asm};
use core::ffi::c_void;

/// Bytes of a context at rest, return address included.
const FRAME: usize = 8 * 8;

/// Saves the running context, stores its stack pointer in `*save` and goes on
/// with the context at rest `to`. Returns when something switches back.
///
/// It ends in `jmp` and not in `ret`: the return predictor knows the caller of
/// this function and would always be wrong. The rounding modes are loaded only
/// when they differ, because loading them drains the pipeline.
///
/// # Safety
/// `to` is a context at rest that nobody else resumes; `save` is writable and
/// stays so until then.
#[unsafe(naked)]
pub unsafe extern "C" fn switch(save: *mut usize, to: usize) {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset rbp, 0",
        "push rbx",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset rbx, 0",
        "push r12",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset r12, 0",
        "push r13",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset r13, 0",
        "push r14",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset r14, 0",
        "push r15",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset r15, 0",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "stmxcsr [rsp]",
        "fnstcw [rsp + 4]",
        "mov eax, [rsp]",
        "mov cx, [rsp + 4]",
        "mov [rdi], rsp",
        // From here the frame is the other context's; it has the same shape, so
        // the unwind rules above hold for it too.
        "mov rsp, rsi",
        "cmp eax, [rsp]",
        "jne 3f",
        "2:",
        "cmp cx, [rsp + 4]",
        "jne 4f",
        "5:",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop r15",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore r15",
        "pop r14",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore r14",
        "pop r13",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore r13",
        "pop r12",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore r12",
        "pop rbx",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore rbx",
        "pop rbp",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore rbp",
        "pop rcx",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_register rip, rcx",
        "jmp rcx",
        "3:",
        ".cfi_adjust_cfa_offset 64",
        ".cfi_offset rip, -8",
        ".cfi_offset rbp, -16",
        ".cfi_offset rbx, -24",
        ".cfi_offset r12, -32",
        ".cfi_offset r13, -40",
        ".cfi_offset r14, -48",
        ".cfi_offset r15, -56",
        "ldmxcsr [rsp]",
        "jmp 2b",
        "4:",
        "fldcw [rsp + 4]",
        "jmp 5b",
        ".cfi_endproc",
    )
}

/// What a new goroutine calls: `begin` gives function and argument, `end` is
/// called after the function has returned, and returns only when another new
/// goroutine starts on the same stack.
///
/// The function is called from here and not from Rust, so nothing lies between
/// the user's code and the end of the stack: an unwinder that looks for a
/// handler finds none and reports it (`std::terminate` for a C++ exception).
#[unsafe(naked)]
unsafe extern "C" fn start() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        ".cfi_undefined rbp",
        "xor ebp, ebp",
        "2:",
        "call {begin}",
        "mov rdi, rdx",
        "call rax",
        "call {end}",
        "jmp 2b",
        ".cfi_endproc",
        begin = sym crate::sched::entry::goroutine_begin,
        end = sym crate::sched::entry::goroutine_end,
    )
}

/// Leaves all frames of the running goroutine and starts the next one on the
/// same stack, whose upper end is `top`.
///
/// # Safety
/// Nothing on the stack is used any more; `top` is its upper end.
#[unsafe(naked)]
pub unsafe extern "C" fn restart(top: usize) -> ! {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        "mov rsp, rdi",
        "xor ebp, ebp",
        "jmp {start}",
        ".cfi_endproc",
        start = sym start,
    )
}

/// The rounding modes of SSE and x87, as a context at rest keeps them.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct FpControl {
    mxcsr: u32,
    x87: u32,
}

impl FpControl {
    /// Those of the running code.
    pub fn current() -> FpControl {
        let mut c = FpControl { mxcsr: 0, x87: 0 };
        // SAFETY: both instructions store into `c`.
        unsafe {
            asm!("stmxcsr [{0}]", "fnstcw [{0} + 4]", in(reg) &raw mut c, options(nostack));
        }
        // The exception flags are no modes: they must not make two equal modes differ.
        c.mxcsr &= !0x3f;
        c
    }

    /// Makes them those of the running code.
    pub fn load(self) {
        // SAFETY: the values were read from these registers before.
        unsafe {
            asm!("ldmxcsr [{0}]", "fldcw [{0} + 4]", in(reg) &raw const self, options(nostack, readonly));
        }
    }
}

/// Makes the context at rest of a new goroutine at the upper end of its stack.
///
/// # Safety
/// `top` is 16-byte aligned and [`FRAME`] plus 8 bytes below it are writable.
pub unsafe fn prepare(top: usize, fp: FpControl) -> usize {
    let sp = top - FRAME;
    // SAFETY: by contract.
    unsafe {
        let frame = sp as *mut usize;
        frame.cast::<FpControl>().write(fp);
        for i in 1..7 {
            frame.add(i).write(0);
        }
        frame.add(7).write(start as *const () as usize);
    }
    sp
}

/// Where `gs_preempt_word` is for the whole process: in the program, if that has
/// a copy of its own.
pub fn address_of_preempt_word() -> *const AtomicU32 {
    let at: *const AtomicU32;
    // SAFETY: reads an entry of the global offset table.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + gs_preempt_word@GOTPCREL]",
            at = out(reg) at,
            options(nostack, pure, readonly),
        );
    }
    at
}

/// So many bytes below the stack pointer are in use too.
pub const RED_ZONE: usize = 128;

/// The stack pointer of an interrupted context.
///
/// # Safety
/// `context` is the `ucontext_t` that a signal handler was given.
pub unsafe fn interrupted_sp(context: *const c_void) -> usize {
    // SAFETY: by contract.
    unsafe {
        (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RSP as usize] as usize
    }
}

// One word of thread-local storage, in the initial-exec model: its address is
// never a call, and no compiler can keep it across a switch, because only the
// two functions below know it.
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

/// The word of thread-local storage of the thread that runs right now.
#[inline(always)]
pub fn tls_get() -> usize {
    let v: usize;
    // SAFETY: reads this thread's word. Not `pure`: it must be read each time.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + gosched_m@GOTTPOFF]",
            "mov {0}, qword ptr fs:[{0}]",
            out(reg) v,
            options(nostack, preserves_flags, readonly),
        );
    }
    v
}

/// Sets it.
#[inline(always)]
pub fn tls_set(v: usize) {
    // SAFETY: writes this thread's word.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + gosched_m@GOTTPOFF]",
            "mov qword ptr fs:[{0}], {1}",
            out(reg) _,
            in(reg) v,
            options(nostack, preserves_flags),
        );
    }
}

/// Tells Valgrind that `lo..hi` is a stack, so that a switch is not taken for a
/// huge frame; gives an id for [`valgrind_forget`]. A few no-ops otherwise.
pub fn valgrind_register(lo: usize, hi: usize) -> usize {
    valgrind_request([0x1501, lo, hi, 0, 0, 0])
}

/// Takes a stack back that [`valgrind_register`] announced.
pub fn valgrind_forget(id: usize) {
    valgrind_request([0x1502, id, 0, 0, 0, 0]);
}

/// A Valgrind client request; 0 when not under Valgrind.
fn valgrind_request(args: [usize; 6]) -> usize {
    let mut result: usize = 0;
    // SAFETY: the rotations add up to two full turns; under Valgrind the marked
    // sequence reads `args` and sets rdx.
    unsafe {
        asm!(
            "rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51",
            "xchg rbx, rbx",
            inout("rdx") result,
            in("rax") args.as_ptr(),
            out("rdi") _,
            options(nostack),
        );
    }
    result
}

/// The body of a naked function with `$args` (0 to 5) integer arguments that
/// calls `$f` with one more, its own return address: where the user's code has
/// called the library.
macro_rules! with_return_address {
    (1, $f:path) => { core::arch::naked_asm!("mov rsi, [rsp]", "jmp {}", sym $f) };
    (2, $f:path) => { core::arch::naked_asm!("mov rdx, [rsp]", "jmp {}", sym $f) };
    (3, $f:path) => { core::arch::naked_asm!("mov rcx, [rsp]", "jmp {}", sym $f) };
    (4, $f:path) => { core::arch::naked_asm!("mov r8, [rsp]", "jmp {}", sym $f) };
    (5, $f:path) => { core::arch::naked_asm!("mov r9, [rsp]", "jmp {}", sym $f) };
}
pub(crate) use with_return_address;
