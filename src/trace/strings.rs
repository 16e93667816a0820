//! The strings of a trace: a fixed list of reasons, and strings that events bring along.

use super::format::MOST_STRING;
use super::stacks;
use crate::os::locked::Locked;
use std::collections::HashMap;

/// Ids of the fixed strings: an index in [`FIXED`], plus 1, because 0 is the empty string.
macro_rules! fixed {
    ($($name:ident = $text:literal;)*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "names of constants")]
        enum Index { $($name),* }
        $(pub const $name: u32 = Index::$name as u32 + 1;)*
        const FIXED: &[&str] = &[$($text),*];
    };
}

/// Reasons of waits and stops, and keys of logs. Tools look at Go's words: "network", "chan",
/// "sync", "select", "sleep".
pub mod fixed {
    fixed! {
        CHAN_RECEIVE = "chan receive";
        CHAN_SEND = "chan send";
        SELECT = "select";
        FOREVER = "forever";
        SYNC = "sync";
        COND = "sync.(*Cond).Wait";
        SLEEP = "sleep";
        NETWORK = "network";
        SYSTEM_WAIT = "system goroutine wait";
        GOSCHED = "runtime.Gosched";
        PREEMPTED = "preempted";
        JOIN = "join (sync)";
        PARK = "gs_park (sync)";
        STOP_THE_WORLD = "gs_stop_the_world";
        STOLEN_NEAR = "stolen from a P of the node";
        STOLEN_FROM_QUEUE = "stolen from the queue of a node";
        STOLEN_FAR = "stolen from a P of another node";
    }

    /// The fixed strings, with their ids.
    pub fn all() -> impl Iterator<Item = (u32, &'static str)> {
        (1..).zip(FIXED.iter().copied())
    }

    /// The first id that no fixed string has.
    pub const END: u32 = FIXED.len() as u32 + 1;
}

/// The most strings that events of a process bring along; later strings are empty. Each takes
/// at most [`MOST_STRING`] bytes.
const MOST: usize = 1 << 14;

#[derive(Default)]
struct Strings {
    ids: HashMap<Box<[u8]>, u32>,
    /// For each string the last two generations in which an event has it.
    used: Vec<[u32; 2]>,
}

static STRINGS: Locked<Option<Strings>> = Locked::new(None);

/// The string as a trace has it: its end, if the string is too long.
pub fn cut(text: &[u8]) -> &[u8] {
    &text[text.len().saturating_sub(MOST_STRING)..]
}

/// The id of a string in an event that is made now: see [`stacks::mark`].
pub fn id_of(text: &[u8]) -> u32 {
    let (text, generation) = (cut(text), stacks::present());
    if text.is_empty() {
        return 0;
    }
    STRINGS.with(|strings| {
        let strings = strings.get_or_insert_default();
        let known = strings.ids.get(text).copied();
        let id = match known {
            Some(id) => id,
            None if strings.used.len() == MOST => return 0,
            None => {
                let id = fixed::END + strings.used.len() as u32;
                strings.ids.insert(text.into(), id);
                strings.used.push([0; 2]);
                id
            }
        };
        strings.used[(id - fixed::END) as usize][generation as usize % 2] = generation;
        id
    })
}

/// The ids of the strings that events of this generation may have. Known until the next generation but
/// one has begun.
pub fn used_in(generation: u32) -> Vec<u32> {
    STRINGS.with(|strings| {
        let used = strings.iter().flat_map(|strings| &strings.used);
        let near = |&used: &u32| used == generation || used != 0 && used == generation - 1;
        let ids = (fixed::END..).zip(used);
        ids.filter(|(_, used)| used.iter().any(near)).map(|(id, _)| id).collect()
    })
}

/// Calls `f` with each of these strings, and its id. `ids`: sorted.
pub fn each(ids: &[u32], mut f: impl FnMut(u32, &[u8])) {
    STRINGS.with(|strings| {
        let Some(strings) = strings else { return };
        for (text, &id) in &strings.ids {
            if ids.binary_search(&id).is_ok() {
                f(id, text);
            }
        }
    });
}

/// The first id that a table of strings may give to strings of its own.
pub fn first_free() -> u32 {
    fixed::END + MOST as u32
}

/// In the child of a fork: forgets the strings, which another thread may have been changing.
///
/// # Safety
/// The caller is the child's only thread.
pub unsafe fn forked() {
    // SAFETY: no other thread is there; the value is replaced without a look at it.
    unsafe { STRINGS.reset() };
    STRINGS.with(|strings| core::mem::forget(strings.take()));
}
