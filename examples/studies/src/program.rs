//! Progress display and interruption for programs of studies.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Runs a study with this number of trials. Ctrl-C sets its stop flag. Progress is a bar on a
/// terminal, and elsewhere one line for each tenth.
///
/// # Errors
/// Those of the study; when the handler of Ctrl-C can't be installed.
#[allow(clippy::print_stderr, reason = "for the programs of this package")]
pub fn watched<T>(
    trials: usize,
    study: impl FnOnce(&AtomicBool, &(dyn Fn(usize) + Sync)) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let stop = Arc::new(AtomicBool::new(false));
    stop_on_interrupt(&stop)?;
    let plain = !std::io::stderr().is_terminal();
    let target = if plain { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let total = trials as u64;
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} trials, {eta} left")?;
    let bar = ProgressBar::with_draw_target(Some(total), target).with_style(style);
    let outcome = study(&stop, &|done| {
        let done = done as u64;
        bar.set_position(done);
        if plain && done * 10 / total != (done - 1) * 10 / total {
            eprintln!("{done} of {total} trials");
        }
    })?;
    bar.finish_and_clear();
    Ok(outcome)
}

/// Sets the flag on Ctrl-C, from a separate thread.
fn stop_on_interrupt(stop: &Arc<AtomicBool>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        runtime.block_on(async {
            if tokio::signal::ctrl_c().await.is_ok() {
                stop.store(true, Ordering::Relaxed);
            }
        });
    });
    Ok(())
}

/// Runs the same function on each of several threads.
pub(crate) fn on_threads(
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
