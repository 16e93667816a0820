//! What debuggers must know of the library's memory: `gs_debug_layout`, a table of facts that a
//! debugger finds by the symbol's name, without debug information. `lib/gosched-gdb.py` reads the
//! table, in a live process and in a core file.
//!
//! The symbol is exported, but is no part of the C API. A fact has a name, and a debugger that
//! misses a fact says so. So facts may come and go without a new version.

use crate::arch;
use crate::os::locked::Locked;
use crate::sched::prim::{clock, pool};
use crate::sched::types::attachment::Attachment;
use crate::sched::types::g::{G, Status, flags};
use crate::sched::types::hold::Hold;
use crate::sched::types::m::M;
use crate::sched::types::node::Node;
use crate::sched::types::p::P;
use crate::sched::types::runtime::{Ms, RUNTIME, Runtime};
use crate::sched::types::task::Newborn;
use crate::sched::types::waiter::Why;
use crate::stack::{self, Stack};
use core::ffi::{c_char, c_void};
use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

/// A fact: a name, and a number, or the address of a variable or function.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Fact {
    /// A C string.
    name: *const c_char,
    value: *const c_void,
}

/// The facts about this library: see [`gs_debug_layout`].
#[repr(C)]
pub struct DebugLayout {
    /// [`VERSION`].
    version: u32,
    /// The number of facts at `facts`.
    count: u32,
    facts: *const Fact,
}

// SAFETY: nothing changes the facts, and what they point to is static.
unsafe impl Sync for DebugLayout {}

/// Changes when a debugger can't read the facts as before: when [`DebugLayout`] or [`Fact`] has
/// other fields, or when a fact means something else.
const VERSION: u32 = 1;

/// What debuggers must know of the library's memory. All numbers are offsets in bytes, if nothing
/// else is said in the list of facts.
#[allow(non_upper_case_globals, reason = "the names of exported symbols begin with gs_")]
#[unsafe(no_mangle)]
pub static gs_debug_layout: DebugLayout =
    DebugLayout { version: VERSION, count: FACTS.0.len() as u32, facts: FACTS.0.as_ptr() };

/// An array that threads may share, because nothing changes it.
struct Table<T>(T);

// SAFETY: the tables below hold facts and texts, which are static and don't change.
unsafe impl<T> Sync for Table<T> {}

const fn number(n: usize) -> *const c_void {
    ptr::without_provenance(n)
}

/// The fact `Type.field`: the offset of the field, and of `inside` in the field.
macro_rules! field {
    ($type:ident.$field:ident) => {
        field!($type.$field, 0)
    };
    ($type:ident.$field:ident, $inside:expr) => {
        fact!(
            concat!(stringify!($type), ".", stringify!($field)),
            number(offset_of!($type, $field) + $inside)
        )
    };
}

macro_rules! fact {
    ($name:expr, $value:expr) => {
        Fact { name: concat!($name, "\0").as_ptr().cast(), value: $value }
    };
}

static FACTS: Table<[Fact; 59]> = Table([
    // The address of the pointer to the runtime, which is null if there is no runtime; and of the
    // last time that sysmon has read, in ns of CLOCK_MONOTONIC.
    fact!("RUNTIME", (&raw const RUNTIME).cast()),
    fact!("NOW", (&raw const clock::NOW).cast()),
    // Where a `Vec` has its pointer and its length: the address of two words, 0 and 0 before the
    // first runtime.
    fact!("Vec", (&raw const VEC).cast()),
    // Vectors: of `Node`, of `*P`, of `*M`.
    field!(Runtime.nodes),
    field!(Runtime.all_ps),
    field!(Runtime.ms, Locked::<Ms>::VALUE + offset_of!(Ms, all)),
    // The number of P's.
    field!(Runtime.made_ps),
    // Vectors of the addresses of chunks, which are cut into objects of the size below; what is
    // left at the end of a chunk is smaller than an object.
    field!(Node.gs, pool::Pool::<G>::CHUNKS),
    field!(Node.newborns, pool::Pool::<Newborn>::CHUNKS),
    // Sizes in bytes.
    fact!("chunk", number(pool::CHUNK)),
    fact!("Node", number(size_of::<Node>())),
    fact!("G", number(size_of::<G>())),
    fact!("Newborn", number(size_of::<Newborn>())),
    field!(G.context),
    field!(G.flags),
    field!(G.status),
    field!(G.why),
    field!(G.last_p),
    field!(G.f),
    field!(G.arg),
    field!(G.stack),
    field!(G.id),
    field!(G.since),
    field!(G.pc),
    field!(G.creator),
    field!(G.bound_m),
    field!(G.name),
    // Of a stack in `G.stack`: the lowest address (0: no stack), log2 of the size (one byte), and
    // the size of the guard at the lowest address.
    fact!("Stack.base", number(Stack::BASE)),
    fact!("Stack.class", number(Stack::CLASS)),
    fact!("Stack.guard", number(stack::GUARD)),
    field!(M.curg),
    field!(M.blocking),
    field!(M.context),
    field!(M.hold),
    field!(M.tid),
    field!(M.attachment),
    // The lowest address and the size of an attached thread's stack.
    fact!("Attachment.bounds", number(Attachment::BOUNDS.0)),
    fact!("Attachment.size", number(Attachment::BOUNDS.1)),
    field!(P.node),
    field!(Newborn.f),
    field!(Newborn.arg),
    field!(Newborn.pc),
    field!(Newborn.creator),
    // Bits of `G.flags`.
    fact!("flags.UNBORN", number(flags::UNBORN as usize)),
    fact!("flags.INTERRUPTED", number(flags::INTERRUPTED as usize)),
    fact!("flags.ATTACHED", number(flags::ATTACHED as usize)),
    // Values of `G.status`.
    fact!("Status.Dead", number(Status::Dead as usize)),
    fact!("Status.Runnable", number(Status::Runnable as usize)),
    fact!("Status.Running", number(Status::Running as usize)),
    fact!("Status.Waiting", number(Status::Waiting as usize)),
    fact!("Status.Syscall", number(Status::Syscall as usize)),
    // The texts for the values of `G.why`: how many, and the address of the pointers.
    fact!("reasons", number(REASONS.0.len())),
    fact!("reasons.at", (&raw const REASONS).cast()),
    // A context at rest: how many of its registers the library has saved, and the address of a
    // table like this, with the register's name and where the register is. The registers that are
    // left out were saved by the function that has switched.
    fact!("Context", number(SAVED.0.len())),
    fact!("Context.at", (&raw const SAVED).cast()),
    // Where a goroutine begins that has not run yet.
    fact!("start", arch::START as *const c_void),
    // Whether an M has lost its P to another thread: the lowest byte of `M.hold`.
    fact!("Hold.Taken", number(Hold::Taken.word() as usize)),
    fact!("Hold.Lent", number(Hold::Lent(0).word() as usize)),
    fact!("Hold.GoesOn", number(Hold::GoesOn.word() as usize)),
]);

static REASONS: Table<[*const c_char; Why::ALL.len()]> = Table({
    let mut texts = [ptr::null(); Why::ALL.len()];
    let mut i = 0;
    while i < texts.len() {
        texts[i] = Why::ALL[i].reason().as_ptr();
        i += 1;
    }
    texts
});

static SAVED: Table<[Fact; arch::SAVED.len()]> = Table({
    let mut facts = [Fact { name: ptr::null(), value: ptr::null() }; arch::SAVED.len()];
    let mut i = 0;
    while i < facts.len() {
        let (name, at) = arch::SAVED[i];
        facts[i] = Fact { name: name.as_ptr(), value: number(at) };
        i += 1;
    }
    facts
});

/// The offsets in a `Vec` of its pointer and its length, in bytes: Rust doesn't say them at compile
/// time. 0 and 0: not known yet.
static VEC: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Finds out where a `Vec` has its pointer and its length. Called once, when the library is loaded.
/// Allocates nothing.
pub fn on_load() {
    // Elements without a size need no memory: the pointer is their alignment, the capacity 0.
    let two = vec![(), ()];
    // SAFETY: a `Vec` is a pointer, a capacity and a length: three initialised words.
    let words = unsafe { (&raw const two).cast::<[usize; 3]>().read() };
    for (offset, wanted) in VEC.iter().zip([two.as_ptr() as usize, two.len()]) {
        let at = words.iter().position(|&word| word == wanted).unwrap_or(0);
        offset.store(at * size_of::<usize>(), Ordering::Relaxed);
    }
}

const _: () = assert!(size_of::<Vec<()>>() == size_of::<[usize; 3]>());

// gdb's commands for goroutines, as text in the section from which gdb loads scripts: 4 is Python's
// text, which begins with a line for the name. No memory at run time, and directives alone.
core::arch::global_asm!(
    ".pushsection .debug_gdb_scripts,\"MS\",@progbits,1",
    ".byte 4",
    ".ascii \"gosched-gdb.py\\n\"",
    concat!(".incbin \"", env!("CARGO_MANIFEST_DIR"), "/lib/gosched-gdb.py\""),
    ".byte 0",
    ".popsection",
);

/// Without a NUL, which would end the text. The compiler looks at the file anew when it changes.
const _: () = {
    let script = include_bytes!("../../lib/gosched-gdb.py");
    let mut at = 0;
    while at < script.len() {
        assert!(script[at] != 0);
        at += 1;
    }
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::types::g::GRef;
    use crate::stack::{SizeClass, StackPool};
    use core::ffi::CStr;
    use std::collections::HashMap;

    /// The facts, read as a debugger reads them.
    fn facts() -> HashMap<String, usize> {
        let layout = (&raw const gs_debug_layout).cast::<u32>();
        // SAFETY: a table of `count` pairs: a C string and a value.
        let facts = unsafe {
            assert_eq!(layout.read(), VERSION);
            let count = layout.add(1).read() as usize;
            let facts = layout.add(2).cast::<*const [usize; 2]>().read();
            core::slice::from_raw_parts(facts, count)
        };
        let pairs = facts.iter().map(|&[name, value]| (text(name), value));
        let all: HashMap<_, _> = pairs.collect();
        assert_eq!(all.len(), facts.len(), "each name once");
        all
    }

    fn text(at: usize) -> String {
        // SAFETY: a text of the tables.
        unsafe { CStr::from_ptr(at as *const c_char) }.to_str().expect("UTF-8").to_owned()
    }

    fn word<T>(at: usize) -> T {
        // SAFETY: a field that the test has set, of this type.
        unsafe { (at as *const T).read() }
    }

    #[test]
    fn a_debugger_finds_what_a_descriptor_says() {
        let facts = facts();
        let pool = pool::Pool::<G>::new(None);
        // SAFETY: the pool gives descriptors.
        let g = unsafe { GRef::from_non_null(pool.get().expect("memory")) };
        let stacks = StackPool::new(0, None);
        let stack = stacks.get(SizeClass::for_usable(100_000).expect("fits")).expect("memory");
        g.id.store(42, Ordering::Relaxed);
        g.set_status(Status::Waiting);
        g.why.set(Why::Join);
        g.stack.set(Some(stack));
        g.pc.set(4711);

        // As the script does it: the chunks of the pool, and all objects in each.
        on_load();
        let [first, len] = word::<[usize; 2]>(facts["Vec"]);
        let chunks = (&raw const pool) as usize + pool::Pool::<G>::CHUNKS;
        assert_eq!(word::<usize>(chunks + len), 1);
        let chunk = word::<usize>(word(chunks + first));
        let all = (chunk..=chunk + facts["chunk"] - facts["G"]).step_by(facts["G"]);
        let is_there =
            |at: &usize| word::<u8>(at + facts["G.status"]) as usize != facts["Status.Dead"];
        let found: Vec<_> = all.filter(is_there).collect();
        assert_eq!(found, [g.address()]);

        let at = found[0];
        assert_eq!(word::<u64>(at + facts["G.id"]), 42);
        assert_eq!(word::<usize>(at + facts["G.pc"]), 4711);
        let why = word::<u8>(at + facts["G.why"]) as usize;
        assert_eq!(text(word(facts["reasons.at"] + why * size_of::<usize>())), "join");
        let base: usize = word(at + facts["G.stack"] + facts["Stack.base"]);
        let class: u8 = word(at + facts["G.stack"] + facts["Stack.class"]);
        assert_eq!((base + facts["Stack.guard"], base + (1 << class)), (stack.lo(), stack.hi()));
        g.set_status(Status::Dead);
    }

    #[test]
    fn a_vector_is_where_the_table_says() {
        on_load();
        let [first, len] = word::<[usize; 2]>(facts()["Vec"]);
        let some = Vec::<Box<u64>>::with_capacity(7);
        let at = (&raw const some) as usize;
        assert_eq!(word::<[usize; 2]>(at + first)[0], some.as_ptr() as usize);
        assert_eq!(word::<usize>(at + len), 0);
    }

    #[test]
    fn each_reason_is_at_its_value() {
        for (value, &why) in Why::ALL.iter().enumerate() {
            assert_eq!(why as usize, value);
        }
        assert_eq!(facts()["reasons"], Why::Timer as usize + 1);
    }
}
