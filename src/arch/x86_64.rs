//! x86-64 on Linux, System V ABI. [`super`] states the interface that this file implements.
//!
//! # Registers
//!
//! A context at rest is named by the address of its [`Context`]. The `Context` lies on the
//! context's own stack, in the frame of the function that has switched away.
//!
//! ```text
//!   registers            saved by    in        because
//!   rsp, rip             switch      Context   a switch changes them
//!   rbx, rbp             switch      Context   calls preserve them, but LLVM reserves them: asm!
//!                                              can't declare them clobbered
//!   r12 to r15           compiler    frame     calls preserve them; declared clobbered, so that
//!                                              only those in use are saved
//!   all other integer    compiler    frame     calls don't preserve them: only live values are
//!   and vector registers                       saved
//!   MXCSR, x87 control   note_modes  Context   calls preserve the modes (rounding, exceptions)
//!   flags                not saved             calls don't preserve them
//!   fs                   not saved             the thread pointer belongs to the thread
//! ```
//!
//! The three words of a switch travel in rdi, rsi and rdx, the registers of a function's first
//! arguments.
//!
//! # Stacks
//!
//! Addresses decrease downwards in each drawing.
//!
//! A new goroutine's stack, as [`prepare`] leaves it:
//!
//! ```text
//!   top   +-------------------------+  16-byte aligned
//!         | fp    MXCSR, x87 word   |  start's first call puts its return address here
//!         | pc    start             |
//!         | rbx   0                 |
//!         | rbp   0                 |
//!         | sp    top               |  <- context at rest
//!         +-------------------------+
//!         |                         |
//!         ~ not in use              ~
//!         |                         |
//!         +-------------------------+
//!         | guard                   |
//!         +-------------------------+
//! ```
//!
//! A goroutine at rest in a call such as `gs_chan_recv`, which is made with [`resumable`]:
//!
//! ```text
//!   top   +-------------------------+
//!         | return address in run   |
//!         +-------------------------+
//!         | frames of the user's    |
//!         ~ code                    ~
//!         | return address there    |
//!         +-------------------------+
//!         | 8 bytes of alignment    |  frame of call_resumable
//!         | return address there    |
//!         +-------------------------+
//!         | frames of the library   |
//!         ~                         ~
//!         +-------------------------+
//!         | callee-saved registers  |  frame of the function that switches
//!         | that it uses, locals    |
//!         |  +-------------------+  |
//!         |  | fp                |  |
//!         |  | pc    label 2     |  |
//!         |  | rbx               |  |
//!         |  | rbp               |  |
//!         |  | sp    (below)     |  |  <- context at rest
//!         |  +-------------------+  |
//!         | locals                  |
//!   sp    +-------------------------+
//!         | not in use              |
//! ```
//!
//! Where the `Context` lies in the frame is the compiler's choice. A new goroutine's `Context` is
//! below its `sp`, any other is above. [`lowest_in_use`] returns the lower of the two.
//!
//! # A switch, there and back
//!
//! ```text
//!   A's stack                                          B's stack
//!   switch(&a, b, words)                               at rest, b = &Context of B
//!     rsp, rbp, rbx, label 2 -> Context of A
//!     a = &Context of A
//!     Context of B -> rsp, rbp, rbx, modes
//!     jmp pc of B  ------ words: rdi, rsi, rdx ---->   label 2 (start, if B is new)
//!                                                      calls A's commit, runs B
//!   at rest                                            switch(&b, a, words)
//!                                                        rsp, rbp, rbx, label 2 -> Context of B
//!                                                        b = &Context of B
//!                                                        Context of A -> rsp, rbp, rbx, modes
//!   label 2        <---- words: rdi, rsi, rdx --------   jmp pc of A
//!   calls B's commit, runs A                           at rest
//! ```
//!
//! Another context than B may resume A, and on another thread.
//!
//! # A goroutine's beginning and end
//!
//! ```text
//!   switch --> start:  call begin(words)          returns f in rax, arg in rdx
//!                      jmp  run
//!   restart -> run:    call f(arg)                rsp = top; f is the goroutine's function
//!                      call call_resumable        which calls end()
//!                        |  end switches away for ever:  the stack is free
//!                        `- end returns f, arg:          the next goroutine, on this stack
//!                      jmp  run
//! ```
//!
//! # Frames that an unwinder sees
//!
//! ```text
//!   innermost   switch_away, park, ...       the compiler's CFI
//!               call_resumable               CFA = rsp + 16: its caller is the user's code
//!               the user's code
//!               the goroutine's function
//!   outermost   run                          rip undefined: no caller
//! ```
//!
//! - `gs_chan_recv` and its like have no frame: they jump to `call_resumable`.
//! - Other outermost frames, also with rip undefined: [`start`] while `begin` runs; [`call_first`]
//!   on the g0 of an attached thread.
//! - `run` calls the goroutine's function itself, without a Rust frame in between. So the search
//!   for a C++ exception's handler reaches the end of the stack, and `std::terminate` is called.
//! - Unwinders that follow frame pointers (perf) stop at the outermost frame, which has rbp = 0.
//! - A context at rest resumes right behind a jump, where unwinders look up the byte before, as for
//!   a return address. That is right: the CFI is the same all over the code of [`switch`], so the
//!   function into which it is inlined needs no `.cfi_signal_frame`, which would hide its name. Only
//!   a new goroutine's context, at [`start`], has no byte before it: debuggers compare with [`START`].
//! - Between the load of rsp in [`switch`] and the jump, the CFI describes A's frame while rsp is
//!   B's. No call is made there; only a sampling profiler can see the wrong stack.

use super::common::{BODY, TlsSlot, Words};
use crate::atomic::AtomicU32;
use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
use core::arch::{asm, naked_asm};
use core::ffi::{CStr, c_void};
use core::mem::{MaybeUninit, offset_of};
use core::ops::Range;

// Contexts.

/// The registers of a context at rest that [`switch`] saves by hand.
#[repr(C)]
struct Context {
    sp: usize,
    rbp: usize,
    rbx: usize,
    /// Address at which the context resumes.
    pc: usize,
    fp: FpControl,
}

/// For debuggers: gdb's names of the registers in a [`Context`], and their offsets in bytes. The other
/// registers that calls preserve are in the frame that has switched, whose CFI says where.
pub const SAVED: [(&CStr, usize); 4] = [
    (c"rsp", offset_of!(Context, sp)),
    (c"rbp", offset_of!(Context, rbp)),
    (c"rbx", offset_of!(Context, rbx)),
    (c"rip", offset_of!(Context, pc)),
];

/// Rounding and exception modes of SSE and x87.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct FpControl {
    mxcsr: u32,
    x87: u16,
}

impl FpControl {
    /// The modes of the running code.
    #[inline(always)]
    pub fn current() -> FpControl {
        let mut place = Place::new();
        place.note_modes();
        // SAFETY: the modes were noted just now.
        unsafe { place.modes() }
    }

    /// Makes these the modes of the running code.
    pub fn load(self) {
        // SAFETY: the values were read from these registers before.
        unsafe {
            asm!("ldmxcsr [{0}]", "fldcw [{0} + 4]", in(reg) &raw const self, options(nostack, readonly));
        }
    }
}

/// Memory for a context's [`Context`], in the frame of the function that switches away.
pub struct Place(MaybeUninit<Context>);

impl Place {
    #[inline(always)]
    pub fn new() -> Place {
        Place(MaybeUninit::uninit())
    }

    /// Notes the modes of the running code, for [`switch`]. Called well before the switch: the
    /// processor knows the modes only when all earlier instructions are done, and a switch that
    /// read them at once would wait for that.
    #[inline(always)]
    pub fn note_modes(&mut self) {
        // SAFETY: both instructions store into a field of this value.
        unsafe {
            asm!(
                "stmxcsr [{fp}]",
                "fnstcw [{fp} + 4]",
                fp = in(reg) &raw mut (*self.0.as_mut_ptr()).fp,
                options(nostack),
            );
        }
    }

    /// The modes that [`Place::note_modes`] has noted.
    ///
    /// # Safety
    /// [`Place::note_modes`] has noted them.
    #[inline(always)]
    pub unsafe fn modes(&self) -> FpControl {
        // SAFETY: the modes are noted, as the caller says. Each is read as wide as it was written:
        // a wider load would wait until the stores are done.
        let (mxcsr, x87) = unsafe {
            let fp = &raw const (*self.0.as_ptr()).fp;
            ((&raw const (*fp).mxcsr).read_volatile(), (&raw const (*fp).x87).read_volatile())
        };
        // Without the exception flags: they are status, and two equal modes must compare equal.
        FpControl { mxcsr: mxcsr & !0x3f, x87 }
    }
}

/// Lowest address in use on the stack of a context at rest.
///
/// # Safety
/// `context` is at rest, and no thread resumes it meanwhile.
pub unsafe fn lowest_in_use(context: usize) -> usize {
    // SAFETY: the context is at rest and stays so, as the caller says.
    context.min(unsafe { (*(context as *const Context)).sp })
}

/// Saves the running context in `here`, stores the address of the saved context in `*save` and
/// resumes the context at rest `to`, which gets `words`. Returns when another context switches
/// back, with the words of that context.
///
/// Inlined, and without a call: a call would push its return address onto the processor's stack of
/// return addresses, the jump at the end would not pop it, and each later return would be
/// predicted wrongly. Without a call, two goroutines that wait in the same calls even have the
/// right predictions, because their return addresses are equal.
///
/// # Safety
/// `to` is a context at rest that no other thread resumes; `save` is writable and
/// stays so until then; `here` knows the modes.
#[inline(always)]
pub unsafe fn switch(save: *mut usize, to: usize, words: Words, here: &mut Place) -> Words {
    let [mut first, mut second, mut third] = words;
    // SAFETY: `to` is at rest and `save` writable, as the caller says; the context that switches
    // back restores the stack and frame pointers. Without `nostack` the compiler keeps nothing in
    // the red zone, so all that the context needs is at `sp` or above.
    unsafe {
        asm!(
            // r10 = Context of this context, r9 = Context of the other.
            // The registers that `asm!` can't declare clobbered.
            "mov [r10 + {sp}], rsp",
            "mov [r10 + {rbp}], rbp",
            "mov [r10 + {rbx}], rbx",
            // This context resumes at label 2. Relative to rip, because the code may be anywhere.
            "lea rax, [rip + 2f]",
            "mov [r10 + {pc}], rax",
            // *save = this context.
            "mov [r8], r10",
            // The modes of this context, noted earlier, each loaded as wide as it was stored.
            "mov eax, [r10 + {fp}]",
            "movzx ecx, word ptr [r10 + {fp} + 4]",
            // From here on the other stack.
            "mov rsp, [r9 + {sp}]",
            "mov rbp, [r9 + {rbp}]",
            "mov rbx, [r9 + {rbx}]",
            // Most contexts have equal modes. A load of modes drains the pipeline on some
            // processors, so it is out of the straight path.
            "cmp eax, [r9 + {fp}]",
            "jne 4f",
            "3:",
            "cmp cx, [r9 + {fp} + 4]",
            "jne 5f",
            // A jump, not a return: the processor's stack of return addresses stays as it is.
            "jmp [r9 + {pc}]",
            "4:",
            "ldmxcsr [r9 + {fp}]",
            "jmp 3b",
            "5:",
            "fldcw [r9 + {fp} + 4]",
            "jmp [r9 + {pc}]",
            // Here another context has switched back: rsp, rbp and rbx are this context's again.
            "2:",
            sp = const offset_of!(Context, sp),
            rbp = const offset_of!(Context, rbp),
            rbx = const offset_of!(Context, rbx),
            pc = const offset_of!(Context, pc),
            fp = const offset_of!(Context, fp),
            // The code above leaves these alone: this context's words go in, the words of the
            // context that switches back come out.
            inout("rdi") first,
            inout("rsi") second,
            inout("rdx") third,
            // Lost: when this context resumes, they hold the other context's operands.
            inout("r8") save => _,
            inout("r9") to => _,
            inout("r10") here.0.as_mut_ptr() => _,
            // The other callee-saved registers: the compiler saves those that are in use.
            out("r12") _,
            out("r13") _,
            out("r14") _,
            out("r15") _,
            // All registers that a call doesn't preserve.
            clobber_abi("sysv64"),
        );
    }
    [first, second, third]
}

// Beginning and end of a goroutine.

/// Makes a new goroutine's context at the upper end of its stack; returns it. The goroutine begins
/// in [`start`], with the modes `fp`.
///
/// # Safety
/// `top` is 16-byte aligned and the bytes of a [`Context`] below it are writable.
pub unsafe fn prepare(top: usize, fp: FpControl) -> usize {
    let context = top - size_of::<Context>();
    let pc = start as *const () as usize;
    // SAFETY: the caller says that the bytes below `top` are writable.
    unsafe { (context as *mut Context).write(Context { sp: top, rbp: 0, rbx: 0, pc, fp }) };
    context
}

/// Where a context of [`prepare`] begins, for debuggers: a goroutine at rest there has not run yet.
pub const START: unsafe extern "C" fn() = start;

/// First code on a goroutine's stack: calls `begin`, then [`run`]. rsp = `top`; the words are in
/// rdi, rsi and rdx.
#[unsafe(naked)]
unsafe extern "C" fn start() {
    naked_asm!(
        ".cfi_startproc",
        // The outermost frame: unwinders find no caller, and don't ask for the caller's rbp.
        ".cfi_undefined rip",
        ".cfi_undefined rbp",
        // The end of the chain of frame pointers.
        "xor ebp, ebp",
        // begin(words). rsp is 16-byte aligned, as the ABI wants at a call.
        "call qword ptr [rip + {body}]",
        // rax = f, rdx = arg.
        "jmp {run}",
        ".cfi_endproc",
        body = sym BODY,
        run = sym run,
    )
}

/// Runs goroutines, one after the other, on this stack: rax = function, rdx = argument of the
/// first; rsp = `top`; rbp = 0.
#[unsafe(naked)]
unsafe extern "C" fn run() {
    naked_asm!(
        ".cfi_startproc",
        // The outermost frame, as in `start`.
        ".cfi_undefined rip",
        ".cfi_undefined rbp",
        "2:",
        // f(arg).
        "mov rdi, rdx",
        "call rax",
        // end(), by `call_resumable`, because `end` switches: see there.
        "mov rax, qword ptr [rip + {body} + 8]",
        "call {resumable}",
        // rax and rdx are the next goroutine's function and argument; rbp is still 0.
        "jmp 2b",
        ".cfi_endproc",
        body = sym BODY,
        resumable = sym call_resumable,
    )
}

/// Drops all frames of the running goroutine and starts the next one, with this function and
/// argument, on this stack, whose upper end is `top`.
///
/// # Safety
/// Nothing on the stack is used any more; `top` is its upper end.
#[unsafe(naked)]
pub unsafe extern "C" fn restart(
    top: usize,
    f: unsafe extern "C" fn(*mut c_void),
    arg: *mut c_void,
) -> ! {
    naked_asm!(
        ".cfi_startproc",
        // The caller's frame is gone after the first instruction.
        ".cfi_undefined rip",
        // The state that `run` expects; arg is in rdx already.
        "mov rsp, rdi",
        "mov rax, rsi",
        "xor ebp, ebp",
        "jmp {run}",
        ".cfi_endproc",
        run = sym run,
    )
}

/// Makes a context at the upper end of a stack; returns it. Switched to with the words
/// `[arg, f, 0]`, it calls `f(arg)`, which does not return.
///
/// # Safety
/// As for [`prepare`].
pub unsafe fn prepare_call(top: usize, fp: FpControl) -> usize {
    let context = top - size_of::<Context>();
    let pc = call_first as *const () as usize;
    // SAFETY: the caller says that the bytes below `top` are writable.
    unsafe { (context as *mut Context).write(Context { sp: context, rbp: 0, rbx: 0, pc, fp }) };
    context
}

/// First code on a stack of [`prepare_call`]: rdi = `arg`, rsi = `f`.
#[unsafe(naked)]
unsafe extern "C" fn call_first() {
    naked_asm!(
        ".cfi_startproc",
        // The outermost frame, as in `start`.
        ".cfi_undefined rip",
        ".cfi_undefined rbp",
        "xor ebp, ebp",
        // The context's size, 40 bytes, has left rsp unaligned.
        "and rsp, -16",
        // f(arg).
        "call rsi",
        // `f` never returns.
        "ud2",
        ".cfi_endproc",
    )
}

// Entries from the user's code.

/// First instruction of a naked function with this number of integer arguments: passes its return
/// address as one more argument.
macro_rules! return_address {
    (1) => {
        "mov rsi, [rsp]"
    };
    (2) => {
        "mov rdx, [rsp]"
    };
    (3) => {
        "mov rcx, [rsp]"
    };
    (4) => {
        "mov r8, [rsp]"
    };
    (5) => {
        "mov r9, [rsp]"
    };
}
pub(crate) use return_address;

/// Body of a naked function with `$args` (1 to 5) integer arguments: calls `$f` with its own return
/// address, which is where the user's code called the library, as one more argument.
macro_rules! with_return_address {
    ($args:tt, $f:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            $crate::arch::return_address!($args),
            // A jump: `$f` returns to the user's code.
            "jmp {}",
            ".cfi_endproc",
            sym $f,
        )
    };
}
pub(crate) use with_return_address;

/// [`with_return_address`] for a function that may switch: `$f` returns a
/// [`Returning`](crate::sched::take::boundary::Returning). Why: `src/sched/run/PARKING.md`,
/// "Returns".
macro_rules! resumable {
    ($args:tt, $f:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            $crate::arch::return_address!($args),
            // rax is no argument's register.
            "lea rax, [rip + {f}]",
            "jmp {resumable}",
            ".cfi_endproc",
            f = sym $f,
            resumable = sym $crate::arch::call_resumable,
        )
    };
}
pub(crate) use resumable;

/// Calls the function in rax, with the arguments as they are, and returns its result: rax, and in
/// rdx the return address that the processor is expected to predict, or 0.
///
/// Both ends lead to the return address. `ret` is used if the processor predicts it rightly, else a
/// jump, which the processor predicts by the branches before it.
#[unsafe(naked)]
pub unsafe extern "C" fn call_resumable() {
    naked_asm!(
        ".cfi_startproc",
        // Aligns rsp for the call.
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        // The functions that switch most are all called here, so their returns are predicted
        // rightly whichever goroutine was left.
        "call rax",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        // 0: the prediction is unknown.
        "test rdx, rdx",
        "je 2f",
        // The prediction is right if it is this frame's return address.
        "cmp rdx, [rsp]",
        "jne 3f",
        "2:",
        "ret",
        "3:",
        // The prediction is wrong: a jump leaves the processor's stack of return addresses alone.
        "pop rcx",
        ".cfi_adjust_cfa_offset -8",
        // Now rcx has the return address.
        ".cfi_register rip, rcx",
        "jmp rcx",
        ".cfi_endproc",
    )
}

/// Body of a naked C function with any number of arguments: calls `$f` with the first seven words.
///
/// Six are in registers. The seventh is copied, because with fewer arguments the word belongs to
/// the caller's frame: `$f` must not change it there.
macro_rules! with_seventh_argument {
    ($f:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            // [rsp] = return address, [rsp + 8] = the seventh argument. Three words more, one of
            // which is the copy, align rsp for the call.
            "sub rsp, 16",
            ".cfi_adjust_cfa_offset 16",
            "push [rsp + 24]",
            ".cfi_adjust_cfa_offset 8",
            "call {}",
            "add rsp, 24",
            ".cfi_adjust_cfa_offset -24",
            "ret",
            ".cfi_endproc",
            sym $f,
        )
    };
}
pub(crate) use with_seventh_argument;

// What an unwinder begins with.

/// The relocations of an object that stand for a function of another object
/// (R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT).
pub const FUNCTION_RELOCATIONS: [u32; 2] = [6, 7];

/// The registers from which a stack is walked. `pc` is where the context goes on: the next
/// instruction, not a return address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registers {
    pub pc: usize,
    pub sp: usize,
    /// rbp, whatever the code keeps there.
    pub fp: usize,
}

impl Registers {
    #[allow(dead_code, reason = "tests make registers")]
    pub const fn new(pc: usize, sp: usize, fp: usize) -> Registers {
        Registers { pc, sp, fp }
    }

    /// The registers of the running function, which must not return before the walk is over.
    #[inline(always)]
    pub fn here() -> Registers {
        let (pc, sp, fp);
        // SAFETY: reads three registers.
        unsafe {
            asm!(
                "lea {pc}, [rip]",
                "mov {sp}, rsp",
                "mov {fp}, rbp",
                pc = out(reg) pc,
                sp = out(reg) sp,
                fp = out(reg) fp,
                options(nostack, preserves_flags, nomem),
            );
        }
        Registers { pc, sp, fp }
    }

    /// The registers of a context at rest.
    ///
    /// # Safety
    /// `context` is at rest, or has been: its memory is mapped. The registers of a context that
    /// another thread resumes meanwhile are of no use.
    pub unsafe fn of_context(context: usize) -> Registers {
        let context = context as *const Context;
        // SAFETY: as the caller says.
        unsafe {
            Registers {
                pc: (&raw const (*context).pc).read(),
                sp: (&raw const (*context).sp).read(),
                fp: (&raw const (*context).rbp).read(),
            }
        }
    }

    /// The registers that framehop begins with, in the order of its `UnwindRegsNative::new`.
    #[inline(always)]
    pub fn for_unwinder(&self) -> [u64; 3] {
        [self.pc as u64, self.sp as u64, self.fp as u64]
    }
}

/// The frame pointer among framehop's registers.
macro_rules! frame_pointer {
    ($regs:expr) => {
        $regs.bp()
    };
}
pub(crate) use frame_pointer;

/// A code address as code jumps to it: on this CPU a return address on the stack is just that.
#[inline(always)]
pub fn code_address(at: usize) -> usize {
    at
}

/// Finds the place of a return address on the stack: right below the stack pointer after the return.
pub struct ReturnPlace;

impl ReturnPlace {
    /// Stands for a place when the return address was in a register, which never happens here.
    pub const REGISTER: usize = 1;

    #[inline(always)]
    pub fn new() -> ReturnPlace {
        ReturnPlace
    }

    /// The unwinder has read this word at this address.
    #[inline(always)]
    pub fn note(&mut self, _at: usize, _word: usize) {}

    /// Where the return address `_pc` was. `sp`: the stack pointer after the return.
    #[inline(always)]
    pub fn of(&self, _pc: usize, sp: usize) -> usize {
        sp - size_of::<usize>()
    }
}

/// The target of the call that returns to `pc`, if the call names one: a function, or an entry of
/// the procedure linkage table. `read` copies code or data and returns false where there is none.
pub fn called_from(pc: usize, read: &dyn Fn(usize, &mut [u8]) -> bool) -> Option<usize> {
    let mut code = [0; 6];
    if !read(pc.wrapping_sub(6), &mut code) {
        return None;
    }
    let [first, second, a, b, c, d] = code;
    let relative =
        |bytes: [u8; 4], next: usize| next.wrapping_add_signed(i32::from_le_bytes(bytes) as isize);
    // `call [rip + x]` through the global offset table, or `call x`.
    match (first, second) {
        (0xff, 0x15) => pointer_at(relative([a, b, c, d], pc), read),
        (_, 0xe8) => {
            let target = relative([a, b, c, d], pc);
            Some(jumps_to(target, read).unwrap_or(target))
        }
        _ => None,
    }
}

/// Where an entry of a procedure linkage table jumps to: `[endbr64;] [bnd] jmp [rip + x]`.
fn jumps_to(at: usize, read: &dyn Fn(usize, &mut [u8]) -> bool) -> Option<usize> {
    let mut code = [0; 11];
    if !read(at, &mut code) {
        return None;
    }
    let mut skip = if code.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]) { 4 } else { 0 };
    skip += usize::from(code[skip] == 0xf2);
    let [0xff, 0x25, a, b, c, d] = *code.get(skip..skip + 6)? else { return None };
    let next = at + skip + 6;
    pointer_at(next.wrapping_add_signed(i32::from_le_bytes([a, b, c, d]) as isize), read)
}

fn pointer_at(at: usize, read: &dyn Fn(usize, &mut [u8]) -> bool) -> Option<usize> {
    let mut word = [0; size_of::<usize>()];
    read(at, &mut word).then(|| usize::from_le_bytes(word))
}

/// The library's own code, from the first to the last byte, if `lib/gosched.ld` has linked it.
pub fn own_code() -> Option<Range<usize>> {
    let (begin, end): (usize, usize);
    // SAFETY: reads two entries of the global offset table.
    unsafe {
        asm!(
            // Weak: 0 if the library is linked in another way.
            ".weak gosched_text_begin",
            ".weak gosched_text_end",
            "mov {begin}, qword ptr [rip + gosched_text_begin@GOTPCREL]",
            "mov {end}, qword ptr [rip + gosched_text_end@GOTPCREL]",
            begin = out(reg) begin,
            end = out(reg) end,
            options(nostack, pure, readonly),
        );
    }
    (begin != 0).then_some(begin..end)
}

// Memory.

/// A multiple of the size of a page in bytes.
pub const LARGEST_PAGE: usize = 4096;

/// Addresses of a process are below this. A program has larger ones only where it asks mmap(2) for
/// them by address.
pub const ADDRESSES: usize = 1 << 47;

// Signals.

/// Size in bytes of the area below the stack pointer that a function may use without moving the
/// stack pointer.
pub const RED_ZONE: usize = 128;

/// The values of [`kept_registers`].
pub type Kept = [usize; 6];

/// The registers that calls preserve: a pointer that only the caller's frames hold is here or on
/// the stack.
#[inline(always)]
pub fn kept_registers() -> Kept {
    let mut kept = [0; 6];
    // SAFETY: the code writes these six words and nothing else.
    unsafe {
        core::arch::asm!(
            "mov [{to}], rbx",
            "mov [{to} + 8], rbp",
            "mov [{to} + 16], r12",
            "mov [{to} + 24], r13",
            "mov [{to} + 32], r14",
            "mov [{to} + 40], r15",
            to = in(reg) kept.as_mut_ptr(),
            options(nostack, preserves_flags),
        );
    }
    kept
}

/// A context as the kernel gives one to a signal handler, of the running function, which must not
/// return while the context is in use. Has the registers of [`Registers`], and those that calls
/// preserve. getcontext(3) does this, which not every C library has.
#[inline(always)]
pub fn context_here() -> libc::ucontext_t {
    // SAFETY: a structure of numbers and null pointers.
    let mut context: libc::ucontext_t = unsafe { core::mem::zeroed() };
    let (here, [rbx, _, r12, r13, r14, r15]) = (Registers::here(), kept_registers());
    for (register, value) in [
        (libc::REG_RIP, here.pc),
        (libc::REG_RSP, here.sp),
        (libc::REG_RBP, here.fp),
        (libc::REG_RBX, rbx),
        (libc::REG_R12, r12),
        (libc::REG_R13, r13),
        (libc::REG_R14, r14),
        (libc::REG_R15, r15),
    ] {
        context.uc_mcontext.gregs[register as usize] = value as i64;
    }
    context
}

/// The registers of an interrupted context.
///
/// # Safety
/// `context` is the `ucontext_t` that a signal handler was given.
pub unsafe fn interrupted(context: *const c_void) -> Registers {
    // SAFETY: a handler's `ucontext_t`, as the caller says.
    let of = |register: i32| unsafe {
        (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[register as usize] as usize
    };
    Registers { pc: of(libc::REG_RIP), sp: of(libc::REG_RSP), fp: of(libc::REG_RBP) }
}

/// All integer registers of an interrupted context.
///
/// # Safety
/// `context` is the `ucontext_t` that a signal handler was given.
pub unsafe fn all_registers(context: *const c_void) -> impl Iterator<Item = usize> {
    // SAFETY: a handler's `ucontext_t`, as the caller says.
    let registers = unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    registers.into_iter().map(|word| word as usize)
}

/// Defines a signal handler `$entry` that calls `$handler` with one more argument: whether the
/// kernel has called it, and not another handler.
///
/// ```text
///         | siginfo                |
///         | ucontext               |  <- rsp + 8 = rdx, if the kernel has called
///   rsp   | return address         |
/// ```
macro_rules! signal_handler {
    ($entry:ident, $handler:path) => {
        #[unsafe(naked)]
        unsafe extern "C" fn $entry(
            sig: i32,
            info: *mut libc::siginfo_t,
            context: *mut core::ffi::c_void,
        ) {
            core::arch::naked_asm!(
                ".cfi_startproc",
                // rcx, the fourth argument = (rsp + 8 == context). The rest is in place.
                "lea rax, [rsp + 8]",
                "xor ecx, ecx",
                "cmp rax, rdx",
                "sete cl",
                // A jump: the return address stays where the kernel put it.
                "jmp {}",
                ".cfi_endproc",
                sym $handler,
            )
        }
    };
}
pub(crate) use signal_handler;

/// Calls a signal handler, on the stack whose upper end is `stack`, or on the running stack if
/// `stack` is 0. The handler may leave by a `longjmp`.
///
/// ```text
///   running stack                        stack
///         | return address   |           +-------------------+
///   rbp   | caller's rbp     |           | return address    |  in call_handler
///         +------------------+           | frame of f        |
/// ```
///
/// # Safety
/// `f` is a function that takes the three arguments of a handler, or fewer; below `stack`
/// nothing is in use.
#[unsafe(naked)]
pub unsafe extern "C" fn call_handler(
    f: usize,
    sig: i32,
    info: *mut c_void,
    context: *mut c_void,
    stack: usize,
) {
    naked_asm!(
        ".cfi_startproc",
        // rbp finds the way back, for the return and for unwinders: CFA = rbp + 16 on both stacks.
        "push rbp",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        // rax = f; its arguments move down by one register.
        "mov rax, rdi",
        "mov edi, esi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        // The other stack, if there is one.
        "test r8, r8",
        "cmovnz rsp, r8",
        // Neither stack's end need be aligned.
        "and rsp, -16",
        "call rax",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

// Thread-local storage.

// The word is in the initial-exec model: taking its address needs no call. With musl see
// `musl::word`.

/// Address of the running thread's M, or 0: this thread's word.
#[inline(always)]
pub fn tls_get() -> usize {
    let v: usize;
    // SAFETY: this thread's word. Volatile: it must be read each time.
    #[cfg(target_env = "musl")]
    unsafe {
        v = musl::word().read_volatile();
    }
    // SAFETY: reads this thread's word. Not `pure`: the word must be read each time.
    #[cfg(not(target_env = "musl"))]
    unsafe {
        asm!(
            // The word's offset from the thread pointer, which the loader has put into the global
            // offset table.
            "mov {0}, qword ptr [rip + gosched_m@GOTTPOFF]",
            "mov {0}, qword ptr fs:[{0}]",
            out(reg) v,
            options(nostack, preserves_flags, readonly),
        );
    }
    v
}

/// Sets this thread's word.
///
/// # Safety
/// The word is 0 or the address of the M whose thread this is: callers of [`tls_get`] rely on it.
#[inline(always)]
pub unsafe fn tls_set(v: usize) {
    // SAFETY: this thread's word.
    #[cfg(target_env = "musl")]
    unsafe {
        musl::word().write_volatile(v);
    }
    // SAFETY: writes this thread's word.
    #[cfg(not(target_env = "musl"))]
    unsafe {
        asm!(
            // As in `tls_get`.
            "mov {0}, qword ptr [rip + gosched_m@GOTTPOFF]",
            "mov qword ptr fs:[{0}], {1}",
            out(reg) _,
            in(reg) v,
            options(nostack, preserves_flags),
        );
    }
}

/// Where the word is with musl, which loads no library at run time whose variables are in the
/// initial-exec model. The thread's vector of blocks leads to the word without a call.
#[cfg(target_env = "musl")]
mod musl {
    use core::arch::asm;
    use core::sync::atomic::{AtomicUsize, Ordering};

    /// The number of the library's object in the vectors; 0: not looked up yet.
    static MODULE: AtomicUsize = AtomicUsize::new(0);
    /// Bytes from the beginning of a block of that object to the word.
    static OFFSET: AtomicUsize = AtomicUsize::new(0);

    /// The running thread's word. A switch may follow only once the word was read or written.
    #[inline(always)]
    pub fn word() -> *mut usize {
        let (module, offset) = place();
        let word;
        // SAFETY: reads the thread's control block and its vector. Not `pure`: threads change.
        unsafe {
            asm!(
                "mov {word}, qword ptr fs:[8]",
                "mov {word}, qword ptr [{word} + 8*{module}]",
                "add {word}, {offset}",
                word = out(reg) word,
                module = in(reg) module,
                offset = in(reg) offset,
                options(nostack, readonly),
            );
        }
        word
    }

    #[inline(always)]
    fn place() -> (usize, usize) {
        // Acquire: pairs with the Release in `look_up`; with the number comes the offset.
        match MODULE.load(Ordering::Acquire) {
            0 => look_up(),
            module => (module, OFFSET.load(Ordering::Relaxed)),
        }
    }

    #[cold]
    #[inline(never)]
    fn look_up() -> (usize, usize) {
        let (word, vector): (usize, *const usize);
        // SAFETY: the loader's function keeps all registers but rax. The first word of the thread's
        // control block is the block's address, the second one the vector's.
        unsafe {
            asm!(
                "lea rax, [rip + gosched_m@TLSDESC]",
                "call qword ptr [rax + gosched_m@TLSCALL]",
                "add rax, qword ptr fs:[0]",
                "mov {0}, qword ptr fs:[8]",
                out(reg) vector,
                out("rax") word,
            );
        }
        // SAFETY: the vector begins with the number of its blocks, whose addresses follow.
        let block = |module: usize| unsafe { vector.add(module).read() };
        let below = (1..=block(0)).filter(|&module| block(module) <= word);
        // The object's own block is the nearest one.
        let module = below.max_by_key(|&module| block(module)).unwrap_or(1);
        let offset = word - block(module);
        OFFSET.store(offset, Ordering::Relaxed);
        // Release: pairs with the Acquire in `place`.
        MODULE.store(module, Ordering::Release);
        (module, offset)
    }
}

/// This thread's vector of thread-local blocks.
#[inline(always)]
pub(super) fn tls_vector() -> *const TlsSlot {
    let vector;
    // SAFETY: reads a word of the thread's control block. Not `pure`: the thread's may change.
    unsafe {
        asm!(
            // The second word of the thread's control block.
            "mov {0}, qword ptr fs:[8]",
            out(reg) vector,
            options(nostack, preserves_flags, readonly),
        );
    }
    vector
}

// Symbols that another object may define.

/// The process's one `gs_preempt_word`: the program's copy, if the program has one.
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

/// Address of `__cxa_get_globals` as this library sees it, or null.
///
/// The reference makes a program with a statically linked copy export that copy's function.
pub fn address_of_cxa_get_globals() -> *mut c_void {
    let at: *mut c_void;
    // SAFETY: reads an entry of the global offset table.
    unsafe {
        asm!(
            // Weak: null if no object defines it.
            ".weak __cxa_get_globals",
            "mov {at}, qword ptr [rip + __cxa_get_globals@GOTPCREL]",
            at = out(reg) at,
            options(nostack, pure, readonly),
        );
    }
    at
}

// Probes for tools.

/// How the note of [`usdt`] names a register.
macro_rules! usdt_register {
    () => {
        "%{}"
    };
}
pub(crate) use usdt_register;

// Prefetches, system calls, Valgrind.

/// The processor's counter of ticks. All CPUs count alike, at a constant rate, on processors of
/// the last fifteen years.
#[inline(always)]
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Prefetches the cache line of an address, valid or not.
#[inline(always)]
pub fn prefetch(at: usize) {
    // SAFETY: the instruction never faults.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at as *const i8) };
}

/// Prefetches the cache line of an address for a write: other CPUs lose their copies.
#[inline(always)]
pub fn prefetch_to_write(at: usize) {
    // SAFETY: the instruction never faults; a processor that doesn't know it does nothing.
    unsafe { asm!("prefetchw [{0}]", in(reg) at, options(nostack, preserves_flags, readonly)) };
}

/// Makes a system call. Returns its result, or a negative errno value. errno stays.
///
/// # Safety
/// The arguments are what the system call needs.
pub unsafe fn system_call(nr: usize, a: [usize; 6]) -> isize {
    let result;
    // SAFETY: the kernel changes no register but these.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") nr as isize => result,
            in("rdi") a[0],
            in("rsi") a[1],
            in("rdx") a[2],
            // r10 in place of the fourth argument's rcx, which the instruction overwrites.
            in("r10") a[3],
            in("r8") a[4],
            in("r9") a[5],
            // The instruction saves rip and the flags here.
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Makes a Valgrind client request: number and arguments. Returns 0 without Valgrind.
pub(super) fn valgrind_request(args: [usize; 6]) -> usize {
    let mut result: usize = 0;
    // SAFETY: the rotations add up to two full turns; under Valgrind the marked
    // sequence reads `args` and sets rdx.
    unsafe {
        asm!(
            // The mark that Valgrind looks for: rdi is what it was afterwards.
            "rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51",
            // The request: a no-op on the processor.
            "xchg rbx, rbx",
            inout("rdx") result,
            in("rax") args.as_ptr(),
            out("rdi") _,
            options(nostack),
        );
    }
    result
}
