//! What is in a trace byte by byte: versions, kinds of events, numbers.

use std::fmt;

/// No M, P or goroutine: as a number in a file, and in [`crate::Event`].
pub const NONE: u64 = u64::MAX;
/// The most bytes of data that a batch may have.
pub const MAX_BATCH: u64 = 64 << 10;
/// The most frames that a stack may have.
pub const MAX_FRAMES: u64 = 128;
/// The most bytes that a string may have.
pub const MAX_STRING: u64 = 1 << 10;

/// The kinds of batches, by the first byte of their data; and what a batch itself begins with.
pub mod batch {
    pub const EVENTS: u8 = 1;
    pub const STACKS: u8 = 2;
    pub const STACK: u8 = 3;
    pub const STRINGS: u8 = 4;
    pub const STRING: u8 = 5;
    pub const SAMPLES: u8 = 6;
    pub const SAMPLE: u8 = 7;
    pub const FREQUENCY: u8 = 8;
    pub const EXPERIMENTAL: u8 = 49;
    pub const SYNC: u8 = 50;
    pub const CLOCK_SNAPSHOT: u8 = 51;
    pub const END_OF_GENERATION: u8 = 52;
}

/// The version of Go that a format began with: 22 for "go 1.22 trace".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(u32);

impl Version {
    pub const GO_1_25: Version = Version(25);
    pub const GO_1_26: Version = Version(26);
    /// The length of a file's header in bytes.
    pub const HEADER: usize = 16;

    /// The version that a file's header names, or what is wrong with the header.
    pub fn parse(header: &[u8]) -> Result<Version, String> {
        let minor = header
            .strip_prefix(b"go 1.")
            .and_then(|rest| rest.strip_suffix(b" trace\0\0\0"))
            .and_then(|minor| std::str::from_utf8(minor).ok())
            .and_then(|minor| minor.parse::<u32>().ok())
            .ok_or("this is no Go execution trace: it doesn't begin with \"go 1.N trace\"")?;
        match minor {
            22 | 23 | 25 | 26 => Ok(Version(minor)),
            0..22 => Err(format!("the format go 1.{minor} is too old; 1.22 to 1.26 are known")),
            _ => Err(format!("the format go 1.{minor} is unknown; 1.22 to 1.26 are known")),
        }
    }

    /// Whether a byte marks the end of a generation, and a generation may have any number.
    pub fn marks_the_end(self) -> bool {
        self >= Version::GO_1_26
    }

    /// Whether a generation has a sync batch with a snapshot of the clocks.
    pub fn has_snapshot(self) -> bool {
        self >= Version::GO_1_25
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "go 1.{}", self.0)
    }
}

/// What an argument of an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arg {
    P,
    M,
    G,
    Seq,
    ProcStatus,
    GoStatus,
    /// The stack of what has caused the event.
    Stack,
    /// The stack of the goroutine that the event is about.
    NewStack,
    /// A string by its id, with the name of the argument.
    String(&'static str),
    /// A number, with the name of the argument.
    Number(&'static str),
}

impl Arg {
    /// The name by which the argument is printed.
    pub fn name(self) -> &'static str {
        match self {
            Arg::P => "p",
            Arg::M => "m",
            Arg::G => "g",
            Arg::Seq => "seq",
            Arg::ProcStatus | Arg::GoStatus => "status",
            Arg::Stack => "stack",
            Arg::NewStack => "g_stack",
            Arg::String(name) | Arg::Number(name) => name,
        }
    }
}

macro_rules! kinds {
    ($($number:literal $name:ident [$($arg:expr),*];)*) => {
        /// The kinds of events, by the names and numbers of Go's `internal/trace/tracev2`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Kind {
            $($name = $number),*
        }

        impl Kind {
            /// All kinds, in the order of their numbers.
            pub const ALL: &[Kind] = &[$(Kind::$name),*];

            fn from_number(number: u8) -> Option<Kind> {
                match number {
                    $($number => Some(Kind::$name),)*
                    _ => None,
                }
            }

            pub fn name(self) -> &'static str {
                match self {
                    $(Kind::$name => stringify!($name)),*
                }
            }

            /// The arguments behind the time.
            pub fn args(self) -> &'static [Arg] {
                use Arg::*;
                match self {
                    $(Kind::$name => &[$($arg),*]),*
                }
            }
        }
    };
}

kinds! {
    7 CPUSample [Stack];
    9 ProcsChange [Number("procs"), Stack];
    10 ProcStart [P, Seq];
    11 ProcStop [];
    12 ProcSteal [P, Seq, M];
    13 ProcStatus [P, ProcStatus];
    14 GoCreate [G, NewStack, Stack];
    15 GoCreateSyscall [G];
    16 GoStart [G, Seq];
    17 GoDestroy [];
    18 GoDestroySyscall [];
    19 GoStop [String("reason"), Stack];
    20 GoBlock [String("reason"), Stack];
    21 GoUnblock [G, Seq, Stack];
    22 GoSyscallBegin [Seq, Stack];
    23 GoSyscallEnd [];
    24 GoSyscallEndBlocked [];
    25 GoStatus [G, M, GoStatus];
    26 STWBegin [String("kind"), Stack];
    27 STWEnd [];
    28 GCActive [Seq];
    29 GCBegin [Seq, Stack];
    30 GCEnd [Seq];
    31 GCSweepActive [P];
    32 GCSweepBegin [Stack];
    33 GCSweepEnd [Number("swept"), Number("reclaimed")];
    34 GCMarkAssistActive [G];
    35 GCMarkAssistBegin [Stack];
    36 GCMarkAssistEnd [];
    37 HeapAlloc [Number("bytes")];
    38 HeapGoal [Number("bytes")];
    39 GoLabel [String("label")];
    40 UserTaskBegin [Number("task"), Number("parent"), String("name"), Stack];
    41 UserTaskEnd [Number("task"), Stack];
    42 UserRegionBegin [Number("task"), String("name"), Stack];
    43 UserRegionEnd [Number("task"), String("name"), Stack];
    44 UserLog [Number("task"), String("key"), String("value"), Stack];
    45 GoSwitch [G, Seq];
    46 GoSwitchDestroy [G, Seq];
    47 GoCreateBlocked [G, NewStack, Stack];
    48 GoStatusStack [G, M, GoStatus, NewStack];
    128 Span [Number("id"), Number("npages"), Number("kindclass")];
    129 SpanAlloc [Number("id"), Number("npages"), Number("kindclass")];
    130 SpanFree [Number("id")];
    131 HeapObject [Number("id"), Number("type")];
    132 HeapObjectAlloc [Number("id"), Number("type")];
    133 HeapObjectFree [Number("id")];
    134 GoroutineStack [Number("id"), Number("order")];
    135 GoroutineStackAlloc [Number("id"), Number("order")];
    136 GoroutineStackFree [Number("id")];
}

/// The most arguments that a kind has.
pub const MAX_ARGS: usize = 4;

impl Kind {
    /// The kind of an event in an M's batch, by its first byte.
    pub fn timed(number: u8) -> Option<Kind> {
        Kind::from_number(number).filter(|&kind| kind != Kind::CPUSample)
    }

    /// Where the argument stands among the arguments.
    pub fn position(self, arg: Arg) -> Option<usize> {
        self.args().iter().position(|&a| a == arg)
    }
}

/// Reads numbers from the data of a batch.
pub struct Bytes<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Bytes<'a> {
    pub fn new(data: &'a [u8], at: usize) -> Bytes<'a> {
        Bytes { data, at }
    }

    /// How many bytes have been read.
    pub fn at(&self) -> usize {
        self.at
    }

    pub fn is_empty(&self) -> bool {
        self.at >= self.data.len()
    }

    pub fn byte(&mut self) -> Result<u8, String> {
        let byte = *self.data.get(self.at).ok_or("the batch ends within an event")?;
        self.at += 1;
        Ok(byte)
    }

    /// An unsigned LEB128 number of at most 64 bits.
    pub fn number(&mut self) -> Result<u64, String> {
        number(|| self.byte())
    }

    pub fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let rest = self.data.get(self.at..).unwrap_or_default();
        let taken = rest.get(..count).ok_or("the batch ends within a string")?;
        self.at += count;
        Ok(taken)
    }
}

/// An unsigned LEB128 number, whose bytes come from `next`.
pub fn number<E: From<String>>(mut next: impl FnMut() -> Result<u8, E>) -> Result<u64, E> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = next()?;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            break;
        }
        value |= bits << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(E::from("a number has more than 64 bits".to_string()))
}
