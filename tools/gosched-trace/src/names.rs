//! The functions that goroutines run, as the stacks of a trace tell them.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use crate::generation::Tables;
use crate::reader::Event;
use crate::wire::{Arg, Kind, NONE};

/// The names of all goroutines that live: of the function at the root of their stacks.
#[derive(Default)]
pub struct Names {
    of: HashMap<u64, Rc<str>>,
    /// Each name once.
    all: HashSet<Rc<str>>,
    unknown: Option<Rc<str>>,
}

/// The name of a goroutine no stack of which has been seen.
pub const UNKNOWN: &str = "?";

impl Names {
    /// Learns what an event says. It is to be called before the event is looked at.
    pub fn learn(&mut self, event: &Event, tables: &Tables) {
        for (&arg, &stack) in event.kind.args().iter().zip(&event.args) {
            let g = match arg {
                Arg::NewStack => event.args[0],
                // A stack of another thread, for a goroutine that this M has taken over, has no goroutine.
                Arg::Stack => event.g,
                _ => continue,
            };
            if g != NONE
                && stack != 0
                && !self.of.contains_key(&g)
                && let Some(name) = tables.root(stack)
            {
                let name = self.shared(name);
                self.of.insert(g, name);
            }
        }
    }

    /// Forgets whom an event ends. It is to be called when the event has been looked at.
    pub fn forget(&mut self, event: &Event) {
        if matches!(event.kind, Kind::GoDestroy | Kind::GoDestroySyscall | Kind::GoSwitchDestroy) {
            self.of.remove(&event.g);
        }
    }

    /// The function that a goroutine runs; [`UNKNOWN`] if no stack tells it.
    pub fn get(&mut self, g: u64) -> Rc<str> {
        match self.of.get(&g) {
            Some(name) => name.clone(),
            None => self.unknown.get_or_insert_with(|| UNKNOWN.into()).clone(),
        }
    }

    fn shared(&mut self, name: &str) -> Rc<str> {
        if let Some(name) = self.all.get(name) {
            return name.clone();
        }
        let name: Rc<str> = name.into();
        self.all.insert(name.clone());
        name
    }
}
