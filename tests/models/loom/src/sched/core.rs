//! Stand-ins.

pub mod gang {
    pub struct OfP;

    impl OfP {
        pub fn new() -> OfP {
            OfP
        }
    }
}

pub mod netpoll {
    pub struct OfP;

    impl OfP {
        pub fn new() -> OfP {
            OfP
        }
    }

    pub struct OfNode;

    impl OfNode {
        pub fn new() -> OfNode {
            OfNode
        }
    }
}

pub mod timers {
    pub struct Timers;

    impl Timers {
        pub fn new(_id: u16) -> Timers {
            Timers
        }
    }
}
