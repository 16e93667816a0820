//! The scheduler: parking and waking of its threads, and who owns a P.

use shuttle_models::model::{Count, Plain, check_scheduler, go};
use std::sync::Arc;

/// Begins `n` goroutines, each by a plain thread of its own.
fn from_outside(n: usize, count: &Arc<Count>) -> Vec<Plain> {
    let begin = |count: Arc<Count>| {
        Plain::start(move || {
            go(move || {
                count.add();
            })
        })
    };
    (0..n).map(|_| begin(count.clone())).collect()
}

#[test]
fn work_from_outside_is_done_by_one_p_that_sleeps_in_between() {
    check_scheduler(3000, 1, 1, || {
        let count = Arc::new(Count::default());
        let threads = from_outside(3, &count);
        threads.into_iter().for_each(Plain::join);
    });
}

#[test]
fn work_from_outside_is_done_by_two_ps_that_sleep_in_between() {
    check_scheduler(20000, 2, 1, || {
        let count = Arc::new(Count::default());
        let threads = from_outside(3, &count);
        threads.into_iter().for_each(Plain::join);
    });
}
