//! Threads that do the same work.

/// Runs the same function on each of several threads.
///
/// # Errors
/// The first error of a thread, and when one panicked.
pub fn on_threads(
    threads: usize,
    work: impl Fn() -> anyhow::Result<()> + Sync,
) -> anyhow::Result<()> {
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(&work)).collect();
        workers.into_iter().try_for_each(|worker| {
            worker.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a trial panicked")))
        })
    })
}
