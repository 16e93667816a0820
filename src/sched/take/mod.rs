//! How a P changes hands although its goroutine has not left: announced calls, preemption, loans, a
//! stopped world. `README.md` lists the files.

pub mod back_from_call;
pub mod blocking;
pub mod boundary;
pub mod call;
pub mod events;
pub mod handler;
pub mod loan;
pub mod preempt;
pub mod registers;
pub mod template;
pub mod world;
