//! aarch64 on Linux, AAPCS64. [`super`] states the interface that this file implements.
//!
//! # Registers
//!
//! A context at rest is named by the address of its [`Context`]. The `Context` lies on the
//! context's own stack, in the frame of the function that has switched away.
//!
//! ```text
//!   registers            saved by    in        because
//!   sp, pc               switch      Context   a switch changes them
//!   x19, x29 (fp)        switch      Context   calls preserve them, but LLVM reserves them: asm!
//!                                              can't declare them clobbered
//!   x20 to x28, x30 (lr) compiler    frame     declared clobbered, so that only those in use are
//!   d8 to d15                                  saved; of v8 to v15 calls preserve the low halves
//!   all other integer    compiler    frame     calls don't preserve them: only live values are
//!   and vector registers                       saved
//!   FPCR                 note_modes  Context   calls preserve the modes (rounding, exceptions)
//!   FPSR, flags          not saved             status, which calls don't preserve
//!   TPIDR_EL0            not saved             the thread pointer belongs to the thread
//! ```
//!
//! The three words of a switch travel in x0, x1 and x2, the registers of a function's first
//! arguments. A goroutine must not switch in SME's streaming mode or with a live ZA: nothing saves
//! these.
//!
//! # Stacks
//!
//! Addresses decrease downwards in each drawing. sp is always 16-byte aligned, and nothing is used
//! below it.
//!
//! A new goroutine's stack, as [`prepare`] leaves it:
//!
//! ```text
//!   top   +-------------------------+  16-byte aligned
//!         | alignment               |
//!         | fp    FPCR              |
//!         | pc    start             |
//!         | x19   0                 |
//!         | x29   0                 |
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
//!         | end record: x29, x30 = 0|
//!         +-------------------------+
//!         | frames of the user's    |  the first frame's record: x29 = end record, x30 in run
//!         ~ code                    ~
//!         |                         |
//!         +-------------------------+
//!         | frames of the library   |  the first frame's record: x30 in the user's code
//!         ~                         ~
//!         +-------------------------+
//!         | callee-saved registers  |  frame of the function that switches
//!         | that it uses, d8 to     |
//!         | d15, x29 and x30, locals|
//!         |  +-------------------+  |
//!         |  | fp                |  |
//!         |  | pc    label 2     |  |
//!         |  | x19               |  |
//!         |  | x29               |  |
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
//!     sp, x29, x19, label 2 -> Context of A
//!     a = &Context of A
//!     Context of B -> sp, x29, x19, modes
//!     br pc of B  ------- words: x0, x1, x2 ------->   label 2 (start, if B is new)
//!                                                      calls A's commit, runs B
//!   at rest                                            switch(&b, a, words)
//!                                                        sp, x29, x19, label 2 -> Context of B
//!                                                        b = &Context of B
//!                                                        Context of A -> sp, x29, x19, modes
//!   label 2        <----- words: x0, x1, x2 ----------   br pc of A
//!   calls B's commit, runs A                           at rest
//! ```
//!
//! Another context than B may resume A, and on another thread. That thread sees A's `Context` and
//! stack because A's commit publishes A with a Release, and the thread has found A with an Acquire:
//! no barrier is needed in the switch itself.
//!
//! # A goroutine's beginning and end
//!
//! ```text
//!   switch --> start:  bl begin(words)            returns f in x0, arg in x1
//!                      b  run
//!   restart -> run:    bl f(arg)                  sp = end record; f is the goroutine's function
//!                      bl end()
//!                        |  end switches away for ever:  the stack is free
//!                        `- end returns f, arg:          the next goroutine, on this stack
//!                      b  run
//! ```
//!
//! # Frames that an unwinder sees
//!
//! ```text
//!   innermost   switch_away, park, ...       the compiler's CFI
//!               the user's code
//!               the goroutine's function
//!   outermost   run                          x30 undefined: no caller
//! ```
//!
//! - `gs_chan_recv` and its like have no frame: they jump to the function that does the work, which
//!   returns to the user's code. It returns by `ret` always. A jump by `br` would fault in a program
//!   that is built with branch target identification (BTI), because what follows a call is no
//!   landing pad.
//! - Other outermost frames, also with x30 undefined: [`start`] while `begin` runs; [`call_first`]
//!   on the g0 of an attached thread.
//! - `run` calls the goroutine's function itself, without a Rust frame in between. So the search
//!   for a C++ exception's handler reaches the end of the stack, and `std::terminate` is called.
//! - Unwinders that follow frame pointers (perf) end with the end record, whose x29 is 0. framehop
//!   ends at each record with x29 = 0, also where it has CFI. So `run` has another x29: code that
//!   keeps no frame pointers passes it on to the library, which saves it in a record.
//! - A context at rest resumes right behind a jump, where unwinders look up the instruction before,
//!   as for a return address. That is right: the CFI is the same all over the code of [`switch`].
//!   Only a new goroutine's context, at [`start`], has no instruction before it: debuggers compare
//!   with [`START`].
//! - Return addresses on the stack may be signed (PAC), if the user's code is built so:
//!   [`code_address`] drops the signature. A signature is made of the address and the frame's
//!   address, and neither changes while a goroutine rests.

use super::common::{BODY, TlsSlot, Words};
use crate::atomic::AtomicU32;
use core::arch::{asm, naked_asm};
use core::ffi::{CStr, c_void};
use core::mem::{MaybeUninit, offset_of};
use core::ops::Range;

// Contexts.

/// The registers of a context at rest that [`switch`] saves by hand, in pairs as it stores them.
/// Aligned as sp must be.
#[repr(C, align(16))]
struct Context {
    sp: usize,
    x29: usize,
    x19: usize,
    /// Address at which the context resumes.
    pc: usize,
    fp: FpControl,
}

/// For debuggers: gdb's names of the registers in a [`Context`], and their offsets in bytes. The other
/// registers that calls preserve are in the frame that has switched, whose CFI says where.
pub const SAVED: [(&CStr, usize); 4] = [
    (c"sp", offset_of!(Context, sp)),
    (c"x29", offset_of!(Context, x29)),
    (c"x19", offset_of!(Context, x19)),
    (c"pc", offset_of!(Context, pc)),
];

/// Rounding and exception modes: FPCR.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct FpControl {
    fpcr: u64,
}

impl FpControl {
    /// The modes of the running code.
    #[inline(always)]
    pub fn current() -> FpControl {
        let fpcr;
        // SAFETY: reads a register. Not `pure`: the register is read each time.
        unsafe { asm!("mrs {0}, fpcr", out(reg) fpcr, options(nostack, nomem, preserves_flags)) };
        FpControl { fpcr }
    }

    /// Makes these the modes of the running code.
    pub fn load(self) {
        // SAFETY: the value was read from this register before.
        unsafe { asm!("msr fpcr, {0}", in(reg) self.fpcr, options(nostack, preserves_flags)) };
    }
}

/// Memory for a context's [`Context`], in the frame of the function that switches away.
pub struct Place(MaybeUninit<Context>);

impl Place {
    #[inline(always)]
    pub fn new() -> Place {
        Place(MaybeUninit::uninit())
    }

    /// Notes the modes of the running code, for [`switch`]. Called well before the switch: a read of
    /// the modes may wait for earlier instructions.
    #[inline(always)]
    pub fn note_modes(&mut self) {
        // SAFETY: writes a field of this value.
        unsafe { (&raw mut (*self.0.as_mut_ptr()).fp).write_volatile(FpControl::current()) };
    }

    /// The modes that [`Place::note_modes`] has noted.
    ///
    /// # Safety
    /// [`Place::note_modes`] has noted them.
    #[inline(always)]
    pub unsafe fn modes(&self) -> FpControl {
        // SAFETY: the modes are noted, as the caller says. FPCR has no status flags.
        unsafe { (&raw const (*self.0.as_ptr()).fp).read_volatile() }
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
/// predicted wrongly.
///
/// # Safety
/// `to` is a context at rest that no other thread resumes; `save` is writable and
/// stays so until then; `here` knows the modes.
#[inline(always)]
pub unsafe fn switch(save: *mut usize, to: usize, words: Words, here: &mut Place) -> Words {
    let [mut first, mut second, mut third] = words;
    // SAFETY: `to` is at rest and `save` writable, as the caller says; the context that switches
    // back restores the stack and frame pointers. All that the context needs is at `sp` or above.
    unsafe {
        asm!(
            // x10 = Context of this context, x9 = Context of the other.
            // The registers that `asm!` can't declare clobbered. This context resumes at label 2.
            "mov x11, sp",
            "adr x12, 2f",
            "stp x11, x29, [x10, #{sp}]",
            "stp x19, x12, [x10, #{x19}]",
            // *save = this context.
            "str x10, [x8]",
            // The modes of this context, noted earlier, and those of the other.
            "ldr x13, [x10, #{fp}]",
            "ldr x14, [x9, #{fp}]",
            "ldp x11, x29, [x9, #{sp}]",
            "ldp x19, x12, [x9, #{x19}]",
            // From here on the other stack.
            "mov sp, x11",
            // Most contexts have equal modes. A write of modes drains the pipeline on some
            // processors, so it is out of the straight path.
            "cmp x13, x14",
            "b.ne 4f",
            "3:",
            // A jump, not a return: the processor's stack of return addresses stays as it is.
            "br x12",
            "4:",
            "msr fpcr, x14",
            "b 3b",
            // Here another context has switched back: sp, x29 and x19 are this context's again.
            "2:",
            sp = const offset_of!(Context, sp),
            x19 = const offset_of!(Context, x19),
            fp = const offset_of!(Context, fp),
            // The code above leaves these alone: this context's words go in, the words of the
            // context that switches back come out.
            inout("x0") first,
            inout("x1") second,
            inout("x2") third,
            // Lost: when this context resumes, they hold the other context's operands.
            inout("x8") save => _,
            inout("x9") to => _,
            inout("x10") here.0.as_mut_ptr() => _,
            // The other callee-saved registers: the compiler saves those that are in use.
            out("x20") _,
            out("x21") _,
            out("x22") _,
            out("x23") _,
            out("x24") _,
            out("x25") _,
            out("x26") _,
            out("x27") _,
            out("x28") _,
            // All registers that a call doesn't preserve, x30, and all of v8 to v15.
            clobber_abi("C"),
        );
    }
    [first, second, third]
}

// `switch` stores and loads these as pairs.
const _: () = assert!(
    offset_of!(Context, x29) == offset_of!(Context, sp) + 8
        && offset_of!(Context, pc) == offset_of!(Context, x19) + 8
);

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
    unsafe { (context as *mut Context).write(Context { sp: top, x29: 0, x19: 0, pc, fp }) };
    context
}

/// Where a context of [`prepare`] begins, for debuggers: a goroutine at rest there has not run yet.
pub const START: unsafe extern "C" fn() = start;

/// First code on a goroutine's stack: calls `begin`, then [`run`]. sp = `top`; the words are in
/// x0, x1 and x2.
#[unsafe(naked)]
unsafe extern "C" fn start() {
    naked_asm!(
        ".cfi_startproc",
        // The outermost frame: unwinders find no caller, and don't ask for the caller's x29.
        ".cfi_undefined x30",
        ".cfi_undefined x29",
        // The end of the chain of frame pointers.
        "mov x29, xzr",
        // begin(words).
        "adrp x9, {body}",
        "ldr x9, [x9, :lo12:{body}]",
        "blr x9",
        // x0 = f, x1 = arg.
        "b {run}",
        ".cfi_endproc",
        body = sym BODY,
        run = sym run,
    )
}

/// Runs goroutines, one after the other, on this stack: x0 = function, x1 = argument of the
/// first; sp = `top`.
#[unsafe(naked)]
unsafe extern "C" fn run() {
    naked_asm!(
        ".cfi_startproc",
        // The outermost frame, as in `start`.
        ".cfi_undefined x30",
        ".cfi_undefined x29",
        // The end record.
        "stp xzr, xzr, [sp, #-16]!",
        ".cfi_def_cfa_offset 16",
        "mov x29, sp",
        "2:",
        // f(arg).
        "mov x9, x0",
        "mov x0, x1",
        "blr x9",
        // end().
        "adrp x9, {body}",
        "add x9, x9, :lo12:{body}",
        "ldr x9, [x9, #8]",
        "blr x9",
        // x0 and x1 are the next goroutine's function and argument; x29 is as before.
        "b 2b",
        ".cfi_endproc",
        body = sym BODY,
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
        ".cfi_undefined x30",
        // The state that `run` expects.
        "mov sp, x0",
        "mov x0, x1",
        "mov x1, x2",
        "b {run}",
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
    unsafe { (context as *mut Context).write(Context { sp: context, x29: 0, x19: 0, pc, fp }) };
    context
}

/// First code on a stack of [`prepare_call`]: x0 = `arg`, x1 = `f`.
#[unsafe(naked)]
unsafe extern "C" fn call_first() {
    naked_asm!(
        ".cfi_startproc",
        // The outermost frame, as in `start`.
        ".cfi_undefined x30",
        ".cfi_undefined x29",
        "mov x29, xzr",
        // f(arg).
        "blr x1",
        // `f` never returns.
        "brk #1",
        ".cfi_endproc",
    )
}

// Entries from the user's code.

/// First instruction of a naked function with this number of integer arguments: passes its return
/// address as one more argument.
macro_rules! return_address {
    (1) => {
        "mov x1, x30"
    };
    (2) => {
        "mov x2, x30"
    };
    (3) => {
        "mov x3, x30"
    };
    (4) => {
        "mov x4, x30"
    };
    (5) => {
        "mov x5, x30"
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
            "b {}",
            ".cfi_endproc",
            sym $f,
        )
    };
}
pub(crate) use with_return_address;

/// [`with_return_address`] for a function that may switch: `$f` returns a
/// [`Returning`](crate::sched::take::boundary::Returning), whose second word nothing reads here:
/// return addresses are always returned to by `ret` (see above).
macro_rules! resumable {
    ($args:tt, $f:path) => {
        $crate::arch::with_return_address!($args, $f)
    };
}
pub(crate) use resumable;

/// Body of a naked C function with any number of arguments: calls `$f` with the first seven words,
/// all of which are in registers.
macro_rules! with_seventh_argument {
    ($f:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "b {}",
            ".cfi_endproc",
            sym $f,
        )
    };
}
pub(crate) use with_seventh_argument;

// What an unwinder begins with.

/// The relocations of an object that stand for a function of another object
/// (R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT).
pub const FUNCTION_RELOCATIONS: [u32; 2] = [1025, 1026];

/// The registers from which a stack is walked. `pc` is where the context goes on: the next
/// instruction, not a return address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registers {
    pub pc: usize,
    pub sp: usize,
    /// x29, whatever the code keeps there.
    pub fp: usize,
    /// x30, where the return address is until a function saves it; 0: the return address is saved.
    lr: usize,
}

impl Registers {
    /// The registers of a function that has saved its return address.
    pub const fn new(pc: usize, sp: usize, fp: usize) -> Registers {
        Registers { pc, sp, fp, lr: 0 }
    }

    /// The registers of the running function, which must not return before the walk is over.
    #[inline(always)]
    pub fn here() -> Registers {
        let (pc, sp, fp);
        // SAFETY: reads three registers. x30 is saved, because the function makes a call: the walk.
        unsafe {
            asm!(
                "adr {pc}, .",
                "mov {sp}, sp",
                "mov {fp}, x29",
                pc = out(reg) pc,
                sp = out(reg) sp,
                fp = out(reg) fp,
                options(nostack, preserves_flags, nomem),
            );
        }
        Registers::new(pc, sp, fp)
    }

    /// The registers of a context at rest.
    ///
    /// # Safety
    /// `context` is at rest, or has been: its memory is mapped. The registers of a context that
    /// another thread resumes meanwhile are of no use.
    pub unsafe fn of_context(context: usize) -> Registers {
        let context = context as *const Context;
        // SAFETY: as the caller says. x30 is saved, because a switch loses it.
        unsafe {
            Registers::new(
                (&raw const (*context).pc).read(),
                (&raw const (*context).sp).read(),
                (&raw const (*context).x29).read(),
            )
        }
    }

    /// The registers that framehop begins with, in the order of its `UnwindRegsNative::new`.
    #[inline(always)]
    pub fn for_unwinder(&self) -> [u64; 3] {
        [self.lr as u64, self.sp as u64, self.fp as u64]
    }
}

/// The frame pointer among framehop's registers.
macro_rules! frame_pointer {
    ($regs:expr) => {
        $regs.fp()
    };
}
pub(crate) use frame_pointer;

/// A code address without its signature (PAC), if it has one: other addresses stay as they are.
#[inline(always)]
pub fn code_address(at: usize) -> usize {
    let code: usize;
    // SAFETY: changes one register, and does nothing on a processor without signatures.
    unsafe {
        asm!(
            // xpaclri
            "hint #7",
            inlateout("x30") at => code,
            options(nostack, nomem, pure, preserves_flags),
        );
    }
    code
}

/// Finds the place of a return address on the stack among the words that framehop reads for one
/// frame. A frame has its return address anywhere, or in x30.
pub struct ReturnPlace([(usize, usize); 2]);

impl ReturnPlace {
    /// Stands for a place when the return address was in a register.
    pub const REGISTER: usize = 1;

    #[inline(always)]
    pub fn new() -> ReturnPlace {
        ReturnPlace([(0, 0); 2])
    }

    /// framehop has read this word at this address.
    #[inline(always)]
    pub fn note(&mut self, at: usize, word: usize) {
        self.0 = [(at, word), self.0[0]];
    }

    /// Where the return address `pc` was. `_sp`: the stack pointer after the return.
    #[inline(always)]
    pub fn of(&self, pc: usize, _sp: usize) -> usize {
        self.0.iter().find(|(_, word)| *word == pc).map_or(ReturnPlace::REGISTER, |&(at, _)| at)
    }
}

/// Instructions, as [`called_from`] reads them.
mod code {
    /// `bti c`: the first instruction of an entry of the procedure linkage table, if there is one.
    pub const BTI_C: u32 = 0xd503_245f;

    /// `bl`: the distance in bytes.
    pub fn bl(code: u32) -> Option<isize> {
        (code >> 26 == 0b10_0101).then(|| ((code << 6) as i32 as isize >> 6) * 4)
    }

    /// `blr xN`: N.
    pub fn blr(code: u32) -> Option<u32> {
        (code & 0xffff_fc1f == 0xd63f_0000).then_some(code >> 5 & 31)
    }

    /// `adrp xN, page`: N, and the address, relative to that of the instruction's own page.
    pub fn adrp(code: u32) -> Option<(u32, isize)> {
        let pages = (code >> 5 & 0x7_ffff) << 2 | code >> 29 & 3;
        let pages = ((pages << 11) as i32 >> 11) as isize;
        (code & 0x9f00_0000 == 0x9000_0000).then_some((code & 31, pages << 12))
    }

    /// `ldr xN, [xM, #offset]`: N, M and the offset.
    pub fn ldr(code: u32) -> Option<(u32, u32, usize)> {
        let fields = (code & 31, code >> 5 & 31, (code >> 10 & 0xfff) as usize * 8);
        (code & 0xffc0_0000 == 0xf940_0000).then_some(fields)
    }
}

/// The target of the call that returns to `pc`, if the call names one: a function, or an entry of
/// the procedure linkage table. `read` copies code or data and returns false where there is none.
pub fn called_from(pc: usize, read: &dyn Fn(usize, &mut [u8]) -> bool) -> Option<usize> {
    /// A register is loaded within this many instructions before it is called.
    const BACK: usize = 12;
    let last = pc.checked_sub(4)?;
    let call = instruction(last, read)?;
    if let Some(distance) = code::bl(call) {
        let target = last.wrapping_add_signed(distance);
        return Some(jumps_to(target, read).unwrap_or(target));
    }
    // `adrp xM, page; ldr xN, [xM, #offset]; blr xN`: through the global offset table. Other
    // instructions may stand between, none of which changes the registers.
    let mut wanted = code::blr(call)?;
    let mut offset = None;
    for at in (1..=BACK).map(|n| last.wrapping_sub(4 * n)) {
        let code = instruction(at, read)?;
        match offset {
            None => match code::ldr(code) {
                Some((to, base, by)) if to == wanted => (wanted, offset) = (base, Some(by)),
                _ if code & 31 == wanted => return None,
                _ => {}
            },
            Some(offset) => match code::adrp(code) {
                Some((to, page)) if to == wanted => {
                    return pointer_at((at & !0xfff).wrapping_add_signed(page) + offset, read);
                }
                _ if code & 31 == wanted => return None,
                _ => {}
            },
        }
    }
    None
}

/// Where an entry of a procedure linkage table jumps to: `[bti c;] adrp x16, page; ldr x17, [x16,
/// #offset]; add x16, ...; br x17`.
fn jumps_to(at: usize, read: &dyn Fn(usize, &mut [u8]) -> bool) -> Option<usize> {
    let skip = 4 * usize::from(instruction(at, read)? == code::BTI_C);
    let at = at + skip;
    let (16, page) = code::adrp(instruction(at, read)?)? else { return None };
    let (17, 16, offset) = code::ldr(instruction(at + 4, read)?)? else { return None };
    pointer_at((at & !0xfff).wrapping_add_signed(page) + offset, read)
}

fn instruction(at: usize, read: &dyn Fn(usize, &mut [u8]) -> bool) -> Option<u32> {
    let mut code = [0; 4];
    read(at, &mut code).then(|| u32::from_le_bytes(code))
}

fn pointer_at(at: usize, read: &dyn Fn(usize, &mut [u8]) -> bool) -> Option<usize> {
    let mut word = [0; size_of::<usize>()];
    read(at, &mut word).then(|| usize::from_le_bytes(word))
}

/// Loads the register `$to` with an entry of the global offset table.
macro_rules! from_got {
    ($to:literal, $symbol:literal) => {
        concat!(
            "adrp ",
            $to,
            ", :got:",
            $symbol,
            "\n",
            "ldr ",
            $to,
            ", [",
            $to,
            ", :got_lo12:",
            $symbol,
            "]"
        )
    };
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
            from_got!("{begin}", "gosched_text_begin"),
            from_got!("{end}", "gosched_text_end"),
            begin = out(reg) begin,
            end = out(reg) end,
            options(nostack, pure, readonly, preserves_flags),
        );
    }
    (begin != 0).then_some(begin..end)
}

// Memory.

/// A multiple of the size of a page in bytes, whatever the kernel is built for: 4, 16 or 64 KiB.
pub const LARGEST_PAGE: usize = 64 << 10;

/// Addresses of a process are below this. A program has larger ones only where it asks mmap(2) for
/// them by address.
pub const ADDRESSES: usize = 1 << 48;

// Signals.

/// Size in bytes of the area below the stack pointer that a function may use without moving the
/// stack pointer: none.
pub const RED_ZONE: usize = 0;

/// The values of [`kept_registers`].
pub type Kept = [usize; 19];

/// The registers that calls preserve: a pointer that only the caller's frames hold is here or on
/// the stack. (d8 to d15 too, where a compiler may keep any word.)
#[inline(always)]
pub fn kept_registers() -> Kept {
    let mut kept = [0; 19];
    // SAFETY: the code writes these words and nothing else.
    unsafe {
        asm!(
            "stp x19, x20, [{to}]",
            "stp x21, x22, [{to}, #16]",
            "stp x23, x24, [{to}, #32]",
            "stp x25, x26, [{to}, #48]",
            "stp x27, x28, [{to}, #64]",
            "str x29, [{to}, #80]",
            "stp d8, d9, [{to}, #88]",
            "stp d10, d11, [{to}, #104]",
            "stp d12, d13, [{to}, #120]",
            "stp d14, d15, [{to}, #136]",
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
    let (here, kept) = (Registers::here(), kept_registers());
    let machine = &mut context.uc_mcontext;
    for (register, value) in (19..29).zip(kept) {
        machine.regs[register] = value as u64;
    }
    machine.regs[29] = here.fp as u64;
    (machine.sp, machine.pc) = (here.sp as u64, here.pc as u64);
    context
}

/// The registers of an interrupted context.
///
/// # Safety
/// `context` is the `ucontext_t` that a signal handler was given.
pub unsafe fn interrupted(context: *const c_void) -> Registers {
    // SAFETY: a handler's `ucontext_t`, as the caller says.
    let machine = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
    Registers {
        pc: machine.pc as usize,
        sp: machine.sp as usize,
        fp: machine.regs[29] as usize,
        lr: code_address(machine.regs[30] as usize),
    }
}

/// All integer registers of an interrupted context.
///
/// # Safety
/// `context` is the `ucontext_t` that a signal handler was given.
pub unsafe fn all_registers(context: *const c_void) -> impl Iterator<Item = usize> {
    // SAFETY: a handler's `ucontext_t`, as the caller says.
    let registers = unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.regs };
    registers.into_iter().map(|word| word as usize)
}

/// Defines a signal handler `$entry` that calls `$handler` with one more argument: whether the
/// kernel has called it, and not another handler.
///
/// ```text
///         | ucontext               |  <- sp + 128 = x2, if the kernel has called
///   sp    | siginfo, 128 bytes     |
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
                // x3, the fourth argument = (sp + 128 == context). The rest is in place.
                "add x9, sp, #128",
                "cmp x9, x2",
                "cset w3, eq",
                // A jump: x30 stays what the kernel has put there.
                "b {}",
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
///         | caller's x30     |           +-------------------+
///   x29   | caller's x29     |           | frame of f        |
///         +------------------+
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
        // x29 finds the way back, for the return and for unwinders: CFA = x29 + 16 on both stacks.
        "stp x29, x30, [sp, #-16]!",
        ".cfi_adjust_cfa_offset 16",
        ".cfi_offset x29, -16",
        ".cfi_offset x30, -8",
        "mov x29, sp",
        ".cfi_def_cfa_register x29",
        // x9 = f; its arguments move down by one register.
        "mov x9, x0",
        "mov w0, w1",
        "mov x1, x2",
        "mov x2, x3",
        // The other stack, if there is one. Its end need not be aligned.
        "mov x10, sp",
        "cmp x4, #0",
        "csel x10, x4, x10, ne",
        "and x10, x10, #-16",
        "mov sp, x10",
        "blr x9",
        "mov sp, x29",
        ".cfi_def_cfa_register sp",
        "ldp x29, x30, [sp], #16",
        ".cfi_adjust_cfa_offset -16",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "ret",
        ".cfi_endproc",
    )
}

// Thread-local storage.

// The word is in the initial-exec model: taking its address needs no call.

/// Loads `{at}` with the address of the thread's word.
macro_rules! address_of_m {
    () => {
        concat!(
            // The word's offset from the thread pointer, which the loader has put into the global
            // offset table.
            "adrp {at}, :gottprel:gosched_m\n",
            "ldr {at}, [{at}, :gottprel_lo12:gosched_m]\n",
            "mrs {tp}, tpidr_el0\n",
            "add {at}, {at}, {tp}"
        )
    };
}

/// Address of the running thread's M, or 0: this thread's word.
#[inline(always)]
pub fn tls_get() -> usize {
    let v: usize;
    // SAFETY: reads this thread's word. Not `pure`: the word must be read each time.
    unsafe {
        asm!(
            address_of_m!(),
            "ldr {at}, [{at}]",
            at = out(reg) v,
            tp = out(reg) _,
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
    // SAFETY: writes this thread's word.
    unsafe {
        asm!(
            address_of_m!(),
            "str {v}, [{at}]",
            at = out(reg) _,
            tp = out(reg) _,
            v = in(reg) v,
            options(nostack, preserves_flags),
        );
    }
}

/// This thread's vector of thread-local blocks.
#[inline(always)]
pub(super) fn tls_vector() -> *const TlsSlot {
    let vector;
    // SAFETY: reads a word of the thread's control block. Not `pure`: the thread's may change.
    unsafe {
        asm!(
            // The first word of the thread's control block.
            "mrs {0}, tpidr_el0",
            "ldr {0}, [{0}]",
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
            from_got!("{at}", "gs_preempt_word"),
            at = out(reg) at,
            options(nostack, pure, readonly, preserves_flags),
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
            from_got!("{at}", "__cxa_get_globals"),
            at = out(reg) at,
            options(nostack, pure, readonly, preserves_flags),
        );
    }
    at
}

// Probes for tools.

/// How the note of [`usdt`] names a register.
macro_rules! usdt_register {
    () => {
        "{}"
    };
}
pub(crate) use usdt_register;

// Prefetches, system calls, Valgrind.

/// The generic timer's counter of ticks. All CPUs count alike, at a constant rate, 1 MHz to 1 GHz.
#[inline(always)]
pub fn ticks() -> u64 {
    let ticks;
    // SAFETY: reads a register, which Linux lets programs read.
    unsafe {
        asm!("mrs {0}, cntvct_el0", out(reg) ticks, options(nostack, nomem, preserves_flags));
    }
    ticks
}

/// Prefetches the cache line of an address, valid or not.
#[inline(always)]
pub fn prefetch(at: usize) {
    // SAFETY: the instruction never faults.
    unsafe {
        asm!("prfm pldl1keep, [{0}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
}

/// Prefetches the cache line of an address for a write: other CPUs lose their copies.
#[inline(always)]
pub fn prefetch_to_write(at: usize) {
    // SAFETY: the instruction never faults.
    unsafe {
        asm!("prfm pstl1keep, [{0}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
}

/// Makes a system call. Returns its result, or a negative errno value. errno stays.
///
/// # Safety
/// The arguments are what the system call needs.
pub unsafe fn system_call(nr: usize, a: [usize; 6]) -> isize {
    let result;
    // SAFETY: the kernel changes no register but x0.
    unsafe {
        asm!(
            "svc #0",
            in("x8") nr,
            inlateout("x0") a[0] as isize => result,
            in("x1") a[1],
            in("x2") a[2],
            in("x3") a[3],
            in("x4") a[4],
            in("x5") a[5],
            options(nostack),
        );
    }
    result
}

/// Makes a Valgrind client request: number and arguments. Returns 0 without Valgrind.
pub(super) fn valgrind_request(args: [usize; 6]) -> usize {
    let mut result: usize = 0;
    // SAFETY: the rotations add up to two full turns; under Valgrind the marked
    // sequence reads `args` and sets x3.
    unsafe {
        asm!(
            // The mark that Valgrind looks for: x12 is what it was afterwards.
            "ror x12, x12, #3", "ror x12, x12, #13", "ror x12, x12, #51", "ror x12, x12, #61",
            // The request: a no-op on the processor.
            "orr x10, x10, x10",
            inout("x3") result,
            in("x4") args.as_ptr(),
            out("x10") _,
            out("x12") _,
            options(nostack),
        );
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_read_as_the_processor_reads_them() {
        assert_eq!(code::bl(0x9400_0001), Some(4));
        assert_eq!(code::bl(0x97ff_ffff), Some(-4));
        assert_eq!(code::bl(0x1400_0001), None);
        assert_eq!(code::blr(0xd63f_0220), Some(17));
        assert_eq!(code::blr(0xd61f_0220), None);
        assert_eq!(code::adrp(0xb000_0010), Some((16, 0x1000)));
        assert_eq!(code::adrp(0xf0ff_fff0), Some((16, -0x1000)));
        assert_eq!(code::ldr(0xf940_0a11), Some((17, 16, 16)));
        assert_eq!(code::ldr(0xb940_0a11), None);
    }

    #[test]
    fn an_address_without_a_signature_stays() {
        let at = tests::an_address_without_a_signature_stays as *const () as usize;
        assert_eq!(code_address(at), at);
        assert_eq!(code_address(0), 0);
    }
}
