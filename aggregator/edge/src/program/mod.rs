//! The common parts of programs that serve: log, signals, descriptors, what they print, and how they end.

mod descriptors;
mod until_signal;

use std::io::Write as _;
use std::process::ExitCode;

use crate::explain::visible;

pub use descriptors::allow_connections;
pub use until_signal::{Signalled, TEXT, until_signal};

/// The command line without the values of variables, so that its help does not depend on the
/// environment.
#[must_use]
pub fn hide_environment_values(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|argument| argument.hide_env_values(true));
    command.mut_subcommands(hide_environment_values)
}

/// The end of a program whose command line is wrong, or asks for help.
pub fn unparsed(error: &clap::Error) -> ExitCode {
    // `--help` and `--version` arrive here too, with exit code 0.
    error.print().ok();
    u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// The end of a program: an error goes to standard error, and has this exit code.
pub fn ended(
    program: &str,
    outcome: anyhow::Result<()>,
    exit_code: impl FnOnce(&anyhow::Error) -> u8,
) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            warn(program, &format!("{error:#}"));
            ExitCode::from(exit_code(&error))
        }
    }
}

/// Writes to standard output.
///
/// # Errors
/// Those of the system.
pub fn say(text: &str) -> anyhow::Result<()> {
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

/// Writes to standard error.
#[expect(clippy::print_stderr, reason = "these are programs")]
pub fn warn(program: &str, text: &str) {
    // What a server says is in some errors.
    let shown: String = text.lines().map(visible).collect::<Vec<_>>().join("\n");
    eprintln!("{program}: {shown}");
}

/// Whether the error is a closed output pipe, which is harmless.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
    io.is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn a_reader_that_has_gone_is_recognised() {
        let gone = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        assert!(is_broken_pipe(&Err::<(), _>(gone).context("printing").unwrap_err()));
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        assert!(!is_broken_pipe(&full.into()));
    }
}
