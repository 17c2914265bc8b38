//! Options, progress, interruption and results of all programs of studies.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, ensure};
use clap::{Args, value_parser};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::picture::PictureFile;

// Not a comment for `--help`: it would take the place of that of the program.
#[derive(Clone, Debug, Args)]
#[expect(missing_docs, reason = "clap would show it in the place of what the program does")]
pub struct StudyOptions {
    /// Trials of each row of the result.
    #[arg(long, default_value_t = 50, value_parser = value_parser!(u32).range(1..))]
    trials: u32,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Threads.
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u16).range(1..=512))]
    threads: u16,
    /// Where a plot goes, as SVG or PNG by the end of its name.
    #[arg(long, value_name = "FILE")]
    plot: Option<PictureFile>,
    /// File for the result as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The result of a study.
pub trait Outcome: Serialize {
    /// Whether no trial was finished.
    fn is_empty(&self) -> bool;
    /// Whether the study was interrupted before all trials were done.
    fn is_interrupted(&self) -> bool;
    /// The table for people.
    fn table(&self) -> String;
    /// Writes the picture.
    ///
    /// # Errors
    /// When the file can't be written.
    fn draw(&self, file: &PictureFile) -> anyhow::Result<()>;
}

impl StudyOptions {
    /// Number of trials of each row.
    pub fn trials(&self) -> usize {
        self.trials as usize
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        usize::from(self.threads)
    }

    /// Runs a study of this many trials in all, prints its result and writes the files.
    ///
    /// # Errors
    /// Those of the study; when a file can't be written; when nothing was finished.
    #[allow(clippy::print_stdout, clippy::print_stderr, reason = "for programs")]
    pub fn run<O: Outcome>(
        &self,
        trials: usize,
        study: impl FnOnce(&AtomicBool, &(dyn Fn(usize) + Sync)) -> anyhow::Result<O>,
    ) -> anyhow::Result<ExitCode> {
        let outcome = watched(trials, study)?;
        ensure!(!outcome.is_empty(), "interrupted before a trial was finished");
        print!("{}", outcome.table());
        if let Some(file) = &self.plot {
            outcome.draw(file)?;
            println!("plot: {file}");
        }
        if let Some(path) = &self.json {
            let json = serde_json::to_string_pretty(&outcome)? + "\n";
            std::fs::write(path, json).with_context(|| format!("writing {}", path.display()))?;
            println!("json: {}", path.display());
        }
        if outcome.is_interrupted() {
            eprintln!("interrupted; this is what was finished");
            return Ok(ExitCode::from(130));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The exit code of a program with this name, whose error is printed.
#[allow(clippy::print_stderr, reason = "for programs")]
pub fn exit_code(name: &str, result: anyhow::Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        eprintln!("{name}: {error:#}");
        ExitCode::FAILURE
    })
}

/// Runs a study with this number of trials. Ctrl-C sets its stop flag. Progress is a bar on a
/// terminal, and elsewhere one line for each tenth.
#[allow(clippy::print_stderr, reason = "for programs")]
fn watched<T>(
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
