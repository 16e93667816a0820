//! How the models are run.

use loom::model::Builder;

/// Explores every interleaving of the model with up to `preemptions` switches
/// away from a thread that could go on.
pub fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 10_000;
    let began = std::time::Instant::now();
    let runs = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let count = runs.clone();
    builder.check(move || {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        loom_core::order::explored(&model);
    });
    let runs = runs.load(std::sync::atomic::Ordering::Relaxed);
    println!("{runs} interleavings in {:.1} s", began.elapsed().as_secs_f64());
}
