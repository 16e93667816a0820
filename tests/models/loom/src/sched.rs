//! The scheduler's files that are checked, and stand-ins for their neighbours.

pub mod prim;
pub mod types;

#[path = "../../../../src/sched/take/loan/state.rs"]
pub mod loan_state;

pub mod take {
    pub mod loan {
        pub use crate::sched::loan_state as state;
    }
}

pub mod ext {
    pub mod gang {
        pub mod state {
            pub struct Column;

            impl Column {
                pub fn new() -> Column {
                    Column
                }
            }
        }
    }
}

pub mod wait {
    pub mod netpoll {
        pub mod state {
            pub struct Poll;

            impl Poll {
                pub fn new() -> Poll {
                    Poll
                }
            }

            pub struct NodePoll;

            impl NodePoll {
                pub fn new() -> NodePoll {
                    NodePoll
                }
            }
        }
    }

    pub mod timers {
        pub mod queue {
            pub struct Timers;

            impl Timers {
                pub fn new(_id: u16) -> Timers {
                    Timers
                }

                /// There are no timers here.
                pub fn next(&self) -> i64 {
                    i64::MAX
                }
            }
        }
    }
}
