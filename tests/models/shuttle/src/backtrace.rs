//! There are no backtraces on this machine: stacks are walked in memory that models don't have.

pub mod unwind {
    pub use crate::arch::Registers;

    pub const MOST_FRAMES: usize = 128;

    #[derive(Clone, Copy, Debug)]
    pub struct Frame {
        pub pc: usize,
        pub slot: usize,
    }

    pub fn refresh_modules() {}

    /// # Safety
    /// None: nothing is read.
    pub unsafe fn walk(
        _from: Registers,
        _stack: (usize, usize),
        _f: &mut dyn FnMut(Frame) -> bool,
    ) {
    }
}

pub mod symbols {
    use super::unwind::Frame;

    pub struct Symbol<'a> {
        pub function: &'a str,
    }

    impl Symbol<'_> {
        pub fn describe(&self) -> String {
            self.function.to_owned()
        }

        pub fn write(&self, _out: &mut dyn std::fmt::Write) -> std::fmt::Result {
            Ok(())
        }
    }

    pub struct Symbols;

    impl Symbols {
        pub fn have_memory() -> bool {
            true
        }
        pub fn new(_shows_all: bool) -> Symbols {
            Symbols
        }
        pub fn none() -> Symbols {
            Symbols
        }
        pub fn visible(&mut self, _frames: &[Frame], _f: &mut dyn FnMut(&Symbol)) {}
        pub fn of_user(&mut self, _frames: &[Frame], _f: &mut dyn FnMut(&Symbol)) {}
        pub fn caller_of_user(&mut self, _pc: usize, _f: &mut dyn FnMut(&Symbol)) {}
        pub fn write_end(
            &mut self,
            _is_cut: bool,
            _spawned_at: usize,
            _creator: u64,
            _out: &mut dyn std::fmt::Write,
        ) -> std::fmt::Result {
            Ok(())
        }
        pub fn caller(&mut self, _pc: usize, _f: &mut dyn FnMut(&Symbol)) {}
    }
}

pub fn forget_threads() {}
