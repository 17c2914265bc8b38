//! The command line `bandana-relay`, whose two parts are also the commands `relay` and `witness` of `bandana`.

mod relay;
mod witness;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bandana_edge::clock::{Clock, SystemClock};
use bandana_edge::operator_client::ConnectError;
use bandana_edge::program;
use bandana_edge::transport::ConnectionLimits;
use clap::{Args as _, FromArgMatches as _};

pub use relay::RelayCommand;
pub use witness::WitnessCommand;

/// The program's name, and that of its second part.
const NAME: &str = "bandana-relay";
const WITNESS: &str = "witness";

/// Help text on exit codes.
const EXIT_CODES: &str = "Exit codes: 0 success, 1 failure, 2 wrong command line.";

/// Limits that are no settings: those of the aggregator's defaults.
const CONNECTION_LIMITS: ConnectionLimits = ConnectionLimits {
    connections: 10_000,
    streams_per_connection: 128,
    header_bytes: 16 * 1024,
    handshakes: 512,
    handshake_time: Duration::from_secs(10),
    idle_time: Duration::from_mins(2),
    answer_time: Duration::from_mins(1),
};

/// The definition of the command line: the flags of a relay, and `witness` with those of a witness.
pub fn command() -> clap::Command {
    let witness = WitnessCommand::augment_args(clap::Command::new(WITNESS));
    let relay = clap::Command::new(NAME).version(env!("CARGO_PKG_VERSION"));
    let relay = RelayCommand::augment_args(relay)
        .after_help(EXIT_CODES)
        .subcommand(witness)
        .subcommand_negates_reqs(true)
        .args_conflicts_with_subcommands(true)
        .max_term_width(100);
    program::hide_environment_values(relay)
}

/// Runs the command line `arguments`, program name first. Errors go to standard error. The exit
/// code is 2 for a wrong command line, and 1 for another failure.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    main_by(&(Arc::new(SystemClock::new()) as Arc<dyn Clock>), arguments)
}

/// [`main`] with a clock other than the system's, for tests with a wrong clock.
pub fn main_by(clock: &Arc<dyn Clock>, arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let run = |matches: &clap::ArgMatches| {
        Ok(match matches.subcommand_matches(WITNESS) {
            Some(matches) => WitnessCommand::from_arg_matches(matches)?.run(clock),
            None => RelayCommand::from_arg_matches(matches)?.run(clock),
        })
    };
    match command().try_get_matches_from(arguments).and_then(|matches| run(&matches)) {
        Ok(outcome) => program::ended(NAME, outcome, exit_code),
        Err(error) => program::unparsed(&error),
    }
}

fn exit_code(error: &anyhow::Error) -> u8 {
    error.downcast_ref().map_or(1, ConnectError::exit_code)
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;

    fn parsed(arguments: &str) -> Result<bool, ErrorKind> {
        let words = std::iter::once(NAME).chain(arguments.split_whitespace());
        let matches = command().try_get_matches_from(words);
        matches.map(|found| found.subcommand_matches(WITNESS).is_some()).map_err(|e| e.kind())
    }

    #[test]
    fn flags_are_those_of_a_relay_and_after_a_word_those_of_a_witness() {
        command().debug_assert();
        assert_eq!(parsed("--gateway http://localhost:1 --delay-seconds 0"), Ok(false));
        assert_eq!(parsed("witness --listen 127.0.0.1:0"), Ok(true));
        assert_eq!(parsed(""), Err(ErrorKind::MissingRequiredArgument));
        assert_eq!(parsed("witness --gateway http://localhost:1"), Err(ErrorKind::UnknownArgument));
        assert_eq!(
            parsed("--gateway http://localhost:1 witness"),
            Err(ErrorKind::ArgumentConflict)
        );
    }
}
