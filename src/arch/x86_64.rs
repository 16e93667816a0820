//! x86-64, System V ABI: the context switch, the first frame of a goroutine and
//! the thread-local slot.
//!
//! A context at rest is the address of a [`Context`], which lies in the frame of the function that has switched away.
//! That function saves all registers that are not in the `Context`. A new goroutine gets a `Context` at the upper end
//! of its stack that resumes in `start`, so that one switch serves both.

use crate::atomic::AtomicU32;
use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
use core::arch::{asm, global_asm, naked_asm};
use core::ffi::c_void;
use core::mem::{MaybeUninit, offset_of};
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

/// What a context at rest has saved on its stack.
#[repr(C)]
struct Context {
    sp: usize,
    rbp: usize,
    rbx: usize,
    /// Where it resumes.
    pc: usize,
    fp: FpControl,
}

/// What a context that is left passes to the context that runs next. Only the caller knows the meaning.
pub type Words = [usize; 3];

/// Where a context will be at rest: in the frame of the function that switches away.
pub struct Place(MaybeUninit<Context>);

impl Place {
    #[inline(always)]
    pub fn new() -> Place {
        Place(MaybeUninit::uninit())
    }

    /// Notes the rounding modes of the running code, for [`switch`]. Called well before the switch: the processor knows
    /// the modes only when all earlier instructions are done, and a switch that read them at once would wait for that.
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
        // SAFETY: the modes are noted, as the caller says. Each is read as wide as it was written: a wider load would
        // wait until the stores are done.
        let (mxcsr, x87) = unsafe {
            let fp = &raw const (*self.0.as_ptr()).fp;
            ((&raw const (*fp).mxcsr).read_volatile(), (&raw const (*fp).x87).read_volatile())
        };
        // The exception flags are no modes: they must not make two equal modes differ.
        FpControl { mxcsr: mxcsr & !0x3f, x87 }
    }
}

/// Saves the running context in `here`, stores the address of the saved context in `*save` and resumes the context at
/// rest `to`, which gets `words`. Returns when another context switches back, with the words of that context.
///
/// The switch is no call, and ends in a jump. A call would push its return address onto the processor's stack of return
/// addresses, and the jump would not pop it, so every return after the switch would be predicted wrongly. Without a
/// call, two goroutines that wait at the same depth even have the right predictions. The compiler saves the other
/// registers that it needs; it won't let rbp and rbx be named. The rounding modes are loaded only when they differ,
/// because loading them drains the pipeline on some processors. The words stay in the registers of a function's first
/// arguments, so that `start` can pass them on.
///
/// # Safety
/// `to` is a context at rest that no other thread resumes; `save` is writable and
/// stays so until then; `here` knows the modes.
#[inline(always)]
pub unsafe fn switch(save: *mut usize, to: usize, words: Words, here: &mut Place) -> Words {
    let [mut first, mut second, mut third] = words;
    // SAFETY: `to` is at rest and `save` writable, as the caller says; the context that switches
    // back restores the stack and frame pointers.
    unsafe {
        asm!(
            "mov [r10 + {sp}], rsp",
            "mov [r10 + {rbp}], rbp",
            "mov [r10 + {rbx}], rbx",
            "lea rax, [rip + 2f]",
            "mov [r10 + {pc}], rax",
            "mov [r8], r10",
            "mov eax, [r10 + {fp}]",
            "movzx ecx, word ptr [r10 + {fp} + 4]",
            "mov rsp, [r9 + {sp}]",
            "mov rbp, [r9 + {rbp}]",
            "mov rbx, [r9 + {rbx}]",
            "cmp eax, [r9 + {fp}]",
            "jne 4f",
            "3:",
            "cmp cx, [r9 + {fp} + 4]",
            "jne 5f",
            "jmp [r9 + {pc}]",
            "4:",
            "ldmxcsr [r9 + {fp}]",
            "jmp 3b",
            "5:",
            "fldcw [r9 + {fp} + 4]",
            "jmp [r9 + {pc}]",
            "2:",
            sp = const offset_of!(Context, sp),
            rbp = const offset_of!(Context, rbp),
            rbx = const offset_of!(Context, rbx),
            pc = const offset_of!(Context, pc),
            fp = const offset_of!(Context, fp),
            inout("rdi") first,
            inout("rsi") second,
            inout("rdx") third,
            inout("r8") save => _,
            inout("r9") to => _,
            inout("r10") here.0.as_mut_ptr() => _,
            out("r12") _,
            out("r13") _,
            out("r14") _,
            out("r15") _,
            clobber_abi("sysv64"),
        );
    }
    [first, second, third]
}

/// Prefetches the cache line of an address, valid or not.
#[inline(always)]
pub fn prefetch(at: usize) {
    // SAFETY: the instruction never faults.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at as *const i8) };
}

/// Prefetches the cache line of an address that will be written, so that no other CPU has the line then.
#[inline(always)]
pub fn prefetch_to_write(at: usize) {
    // SAFETY: the instruction never faults; a processor that doesn't know it does nothing.
    unsafe { asm!("prefetchw [{0}]", in(reg) at, options(nostack, preserves_flags, readonly)) };
}

/// As [`prefetch`], for these cache lines, counted from the line of the address.
#[inline(always)]
pub fn prefetch_lines(at: usize, lines: Range<usize>) {
    lines.for_each(|line| prefetch(at.wrapping_add(64 * line)));
}

/// The lowest address in use on the stack of a context at rest.
///
/// # Safety
/// `context` is at rest, and no thread resumes it meanwhile.
pub unsafe fn lowest_in_use(context: usize) -> usize {
    // SAFETY: the context is at rest and stays so, as the caller says.
    context.min(unsafe { (*(context as *const Context)).sp })
}

/// Function and argument of the goroutine that begins on this stack now: two words, which [`run`] expects in registers.
/// [`call_resumable`] takes the second word for a return address, which costs a wrong prediction at most.
#[repr(C)]
pub struct Begin {
    pub f: unsafe extern "C" fn(*mut c_void),
    pub arg: *mut c_void,
}

/// The addresses that [`set_body`] was given. Atomics of `std`, because assembly reads them, and a model's atomics have
/// another layout.
static BODY: [std::sync::atomic::AtomicUsize; 2] =
    [const { std::sync::atomic::AtomicUsize::new(0) }; 2];

/// Sets what every goroutine calls before and after its function. `begin` gets the words of the switch and gives
/// function and argument. `end` returns only when another new goroutine begins on the same stack, and gives that
/// goroutine's function and argument. Called before the first goroutine is made, always with the same two functions.
pub fn set_body(
    begin: unsafe extern "C" fn(usize, usize, usize) -> Begin,
    end: extern "C" fn() -> Begin,
) {
    let [first, last] = &BODY;
    first.store(begin as *const () as usize, std::sync::atomic::Ordering::Relaxed);
    last.store(end as *const () as usize, std::sync::atomic::Ordering::Relaxed);
}

/// Where a new goroutine begins: see [`set_body`].
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
        "call qword ptr [rip + {body}]",
        "jmp {run}",
        ".cfi_endproc",
        body = sym BODY,
        run = sym run,
    )
}

/// The rest of [`start`], with the function in rax and its argument in rdx.
#[unsafe(naked)]
unsafe extern "C" fn run() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        ".cfi_undefined rbp",
        "2:",
        "mov rdi, rdx",
        "call rax",
        "mov rax, qword ptr [rip + {body} + 8]",
        "call {resumable}",
        "jmp 2b",
        ".cfi_endproc",
        body = sym BODY,
        resumable = sym call_resumable,
    )
}

/// Leaves all frames of the running goroutine and starts the next one on the
/// same stack, whose upper end is `top`, with this function and argument.
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
        ".cfi_undefined rip",
        "mov rsp, rdi",
        "mov rax, rsi",
        "xor ebp, ebp",
        "jmp {run}",
        ".cfi_endproc",
        run = sym run,
    )
}

/// The rounding modes of SSE and x87, as a context at rest keeps them.
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

/// Makes the context at rest of a new goroutine at the upper end of its stack.
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

/// Makes a context at rest at the upper end of a stack that, once it is switched to with the words
/// `[arg, f, 0]`, calls `f(arg)`, which does not return.
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

/// See [`prepare_call`]: the words are in the registers of the first arguments.
#[unsafe(naked)]
unsafe extern "C" fn call_first() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        ".cfi_undefined rbp",
        "xor ebp, ebp",
        "and rsp, -16",
        "call rsi",
        "ud2",
        ".cfi_endproc",
    )
}

/// The address of `gs_preempt_word` for the whole process: in the program, if the program has a copy of its own.
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

/// Bytes below the stack pointer that a function may use.
pub const RED_ZONE: usize = 128;

/// The registers that a function must preserve for its caller.
#[inline(always)]
pub fn kept_registers() -> [usize; 6] {
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

/// Whether an interrupted context ran on the thread's alternate signal stack, in a signal handler.
///
/// # Safety
/// `context` is the `ucontext_t` that a signal handler was given.
pub unsafe fn was_on_alternate_stack(context: *const c_void) -> bool {
    // SAFETY: a handler's `ucontext_t`, as the caller says.
    let (sp, stack) =
        unsafe { (interrupted_sp(context), (*context.cast::<libc::ucontext_t>()).uc_stack) };
    sp.wrapping_sub(stack.ss_sp as usize) < stack.ss_size
}

/// The stack pointer of an interrupted context.
///
/// # Safety
/// `context` is the `ucontext_t` that a signal handler was given.
pub unsafe fn interrupted_sp(context: *const c_void) -> usize {
    // SAFETY: a handler's `ucontext_t`, as the caller says.
    unsafe {
        (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RSP as usize] as usize
    }
}

/// Calls a signal handler, on the stack whose upper end is `stack`, or on the running stack if `stack` is 0. The
/// handler may leave by a `longjmp`.
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
        "push rbp",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rax, rdi",
        "mov edi, esi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "test r8, r8",
        "cmovnz rsp, r8",
        "and rsp, -16",
        "call rax",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

/// Defines a signal handler `$entry` that calls `$handler` with one more argument: whether the kernel has called it.
/// The kernel puts the context right above the return address; if another handler calls `$entry`, the context is
/// somewhere else.
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
                "lea rax, [rsp + 8]",
                "xor ecx, ecx",
                "cmp rax, rdx",
                "sete cl",
                "jmp {}",
                ".cfi_endproc",
                sym $handler,
            )
        }
    };
}
pub(crate) use signal_handler;

/// A number that changes when the loader updates this thread's table of thread-local storage: when the thread first
/// uses a thread-local variable of a library that was loaded in the meantime.
///
/// The number is the generation of the thread's vector of blocks (*ELF Handling For Thread-Local Storage*, 3.1), whose
/// address is the second word of the thread's control block.
#[inline(always)]
pub fn tls_generation() -> usize {
    let generation: usize;
    // SAFETY: only the thread itself changes either word. Not `pure`: it is read each time.
    unsafe {
        asm!(
            "mov {0}, qword ptr fs:[8]",
            "mov {0}, qword ptr [{0}]",
            out(reg) generation,
            options(nostack, preserves_flags, readonly),
        );
    }
    generation
}

/// An object's entry in a thread's vector of blocks of thread-local storage.
#[repr(C)]
pub struct TlsSlot {
    block: AtomicUsize,
    _allocated: usize,
}

impl TlsSlot {
    /// The value of `block` while the thread has not used the object's variables.
    pub const NO_BLOCK: usize = usize::MAX;

    /// The object's block on this thread.
    pub fn block(&self) -> usize {
        // The thread's own code writes the word. Atomic only because the compiler doesn't see these writes.
        self.block.load(Ordering::Relaxed)
    }

    /// The thread has no block for the object.
    pub fn has_no_block(&self) -> bool {
        self.block() == TlsSlot::NO_BLOCK
    }

    /// The thread has not heard of any object with this number.
    pub fn is_unset(&self) -> bool {
        self.block() == 0
    }
}

/// The entry of an object's number; null if the thread's vector has none. If the thread's generation is old enough, the
/// entry may belong to an unloaded object that had the number before.
pub fn tls_slot(module: usize) -> *const TlsSlot {
    let vector: *const TlsSlot;
    // SAFETY: as in `tls_generation`.
    unsafe {
        asm!(
            "mov {0}, qword ptr fs:[8]",
            out(reg) vector,
            options(nostack, preserves_flags, readonly),
        );
        // The entry before the first says how many there are.
        let count = (*vector.sub(1)).block.load(Ordering::Relaxed);
        if module == 0 || module > count {
            return core::ptr::null();
        }
        vector.add(module)
    }
}

/// `__cxa_get_globals` as this library sees it, or null. The reference makes a program with a statically linked copy
/// export that copy's function.
pub fn address_of_cxa_get_globals() -> *mut c_void {
    let at: *mut c_void;
    // SAFETY: reads an entry of the global offset table.
    unsafe {
        asm!(
            ".weak __cxa_get_globals",
            "mov {at}, qword ptr [rip + __cxa_get_globals@GOTPCREL]",
            at = out(reg) at,
            options(nostack, pure, readonly),
        );
    }
    at
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

/// Sets the word.
///
/// # Safety
/// The word is 0 or the address of the M whose thread this is: callers of [`tls_get`] use it as that, without a check.
#[inline(always)]
pub unsafe fn tls_set(v: usize) {
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
/// huge frame; returns an id for [`valgrind_forget`]. A few no-ops otherwise.
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

/// For a naked function with this number of integer arguments: makes its return address one more argument of the
/// function that it jumps to.
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

/// The body of a naked function with `$args` (1 to 5) integer arguments. It calls `$f` with one more argument, its own
/// return address, which is where the user's code has called the library.
macro_rules! with_return_address {
    ($args:tt, $f:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            $crate::arch::return_address!($args),
            "jmp {}",
            ".cfi_endproc",
            sym $f,
        )
    };
}
pub(crate) use with_return_address;

/// The body of a naked C function with any number of arguments, of which the first seven words go to `$f`. The seventh
/// word is copied: if there are fewer arguments it belongs to the caller's frame, and `$f` must not change it.
macro_rules! with_seventh_argument {
    ($f:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
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
            in("r10") a[3],
            in("r8") a[4],
            in("r9") a[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// [`with_return_address`] for a function that may switch: `$f` gives a
/// [`Returning`](crate::sched::core::boundary::Returning). Why: `src/sched/core/PARKING.md`, "Returns".
macro_rules! resumable {
    ($args:tt, $f:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            $crate::arch::return_address!($args),
            "lea rax, [rip + {f}]",
            "jmp {resumable}",
            ".cfi_endproc",
            f = sym $f,
            resumable = sym $crate::arch::call_resumable,
        )
    };
}
pub(crate) use resumable;

/// The rest of [`resumable`], with the function in rax. It leaves the function's result in rax and rdx. Whether it ends
/// in a `ret` or a jump matters only for the prediction.
#[unsafe(naked)]
pub unsafe extern "C" fn call_resumable() {
    naked_asm!(
        ".cfi_startproc",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call rax",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "test rdx, rdx",
        "je 2f",
        "cmp rdx, [rsp]",
        "jne 3f",
        "2:",
        "ret",
        "3:",
        "pop rcx",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_register rip, rcx",
        "jmp rcx",
        ".cfi_endproc",
    )
}
