//! The command line: `bandana`.

mod app_key;
mod audit;
mod backup;
mod cells;
mod check_config;
mod connection;
mod consent;
mod disclosure;
mod doctor;
mod estimate;
mod experiment;
mod export;
mod export_file;
mod failure;
mod gateway_key;
mod generated;
mod init;
mod key_file;
mod keys;
mod log;
mod log_key;
#[cfg(feature = "parquet")]
mod parquet_file;
mod plan;
#[cfg(feature = "queries")]
mod query;
mod record;
mod seal;
mod serve;
mod settings_arguments;
mod sign;
mod store_source;
mod tallies;
mod token;
mod token_file;
mod trusted;
mod verdict;
mod verification_view;
mod verify;
mod watermark;

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use bandana_edge::clock::{Clock, SystemClock};
use bandana_edge::program::{self, hide_environment_values, say};
use bandana_relay::cli::{RelayCommand, WitnessCommand};
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use serde::Serialize;

use failure::{EXIT_CODES, exit_code};

/// The program's name.
const NAME: &str = "bandana";

/// Learn which option is best, without seeing a single reward.
#[derive(Debug, Parser)]
#[command(name = NAME, version, after_help = EXIT_CODES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Init(init::Init),
    Serve(serve::Serve),
    CheckConfig(check_config::CheckConfig),
    /// Print a configuration file that explains every setting and has its default.
    DefaultConfig,
    #[command(subcommand)]
    Experiment(experiment::Experiment),
    Estimate(estimate::Estimate),
    Watch(estimate::Watch),
    Plan(plan::Plan),
    Doctor(Box<doctor::Doctor>),
    Audit(audit::Audit),
    /// Create, show and change experiments whose users disclose rewards to the server.
    ///
    /// In all other experiments, rewards stay on devices. Here the server sees them, and protects
    /// each reward from everybody else: all that it recommends and shows is differentially private.
    #[command(subcommand)]
    Trusted(trusted::Trusted),
    /// Ask private questions about data sets that the server holds.
    #[cfg(feature = "queries")]
    #[command(subcommand)]
    Query(Box<query::Query>),
    /// Make and show keys that sign experiments.
    #[command(subcommand)]
    Keys(keys::Keys),
    Sign(Box<sign::Sign>),
    /// Make and revoke tokens of operators.
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Make and revoke the keys of apps.
    #[command(subcommand)]
    AppKey(app_key::AppKeyCommand),
    /// Make and sign the keys of a gateway, for devices that call through a relay.
    #[command(subcommand)]
    GatewayKey(gateway_key::GatewayKeyCommand),
    /// Make and show the keys of a public log and of its witnesses.
    #[command(subcommand)]
    LogKey(log_key::LogKeyCommand),
    #[command(subcommand)]
    Log(log::LogCommand),
    Relay(RelayCommand),
    Witness(WitnessCommand),
    Backup(backup::Backup),
    Verify(verify::Verify),
    Seal(seal::Seal),
    #[command(subcommand)]
    Watermark(watermark::WatermarkCommand),
    #[command(subcommand)]
    Cells(cells::CellsCommand),
    Completions(generated::Completions),
    Man(generated::Man),
}

/// The commands by what they are for, as the help lists them.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Serve", &["init", "serve", "check-config", "default-config", "relay"]),
    ("Experiments", &["plan", "experiment", "estimate", "watch", "trusted", "audit"]),
    ("Keys and access", &["keys", "sign", "token", "app-key", "gateway-key", "log-key"]),
    ("Data sets", &["query"]),
    ("Store", &["backup", "verify", "seal", "watermark", "cells"]),
    ("Watch a server from outside", &["doctor", "log", "witness"]),
    ("This program", &["completions", "man", "help"]),
];

/// A command line whose help lists the commands in groups.
fn grouped(command: clap::Command) -> clap::Command {
    // A command that this program was built without has no line.
    let line = |name: &&str| {
        let about = match command.find_subcommand(name) {
            Some(found) => found.get_about().map(ToString::to_string),
            None => (*name == "help").then(|| "Print the help of a command".to_owned()),
        };
        Some(format!("  {name:<16}{}\n", about?))
    };
    let group = |(heading, names): (&str, &[&str])| {
        let lines: String = names.iter().filter_map(line).collect();
        if lines.is_empty() { lines } else { format!("{heading}:\n{lines}\n") }
    };
    let groups: String = GROUPS.into_iter().map(group).collect();
    command.help_template(format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}"
    ))
}

/// The definition of the command line, from which help, completions and manual pages are generated.
pub fn command() -> clap::Command {
    // Without the values of variables, so that the help does not depend on the environment.
    grouped(hide_environment_values(Arguments::command().max_term_width(100)))
}

/// Runs the command line `arguments`, program name first. Errors go to standard error. The exit
/// code is 2 for a wrong command line, and otherwise distinguishes failures as the help describes.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    main_by(Arc::new(SystemClock::new()), arguments)
}

/// [`main`] with a clock other than the system's, for tests with a wrong clock.
pub fn main_by(clock: Arc<dyn Clock>, arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let matches = command().try_get_matches_from(arguments);
    let arguments = match matches.and_then(|m| Arguments::from_arg_matches(&m)) {
        Ok(arguments) => arguments,
        Err(error) => return program::unparsed(&error),
    };
    let outcome = match arguments.command {
        Command::Init(wanted) => init::run(&wanted),
        Command::Serve(serve) => serve::run(serve, clock),
        Command::CheckConfig(check) => check_config::run(check),
        Command::DefaultConfig => check_config::print_default(),
        Command::Experiment(experiment) => experiment::run(experiment),
        Command::Estimate(estimate) => estimate::run(&estimate),
        Command::Watch(watch) => estimate::watch(&watch),
        Command::Plan(plan) => plan::run(&plan),
        Command::Doctor(doctor) => doctor::run(&doctor),
        Command::Audit(audit) => audit::run(&audit),
        Command::Trusted(wanted) => trusted::run(wanted),
        #[cfg(feature = "queries")]
        Command::Query(query) => query::run(*query),
        Command::Keys(keys) => keys::run(&keys),
        Command::Sign(sign) => sign::run(*sign),
        Command::Token(command) => token::run(&command),
        Command::AppKey(command) => app_key::run(&command),
        Command::GatewayKey(command) => gateway_key::run(&command),
        Command::LogKey(command) => log_key::run(&command),
        Command::Log(command) => log::run(&command),
        Command::Witness(command) => command.run(&clock),
        Command::Relay(relay) => relay.run(&clock),
        Command::Backup(wanted) => backup::run(&wanted),
        Command::Verify(wanted) => verify::run(&wanted),
        Command::Seal(wanted) => seal::run(&wanted),
        Command::Watermark(command) => watermark::run(&command, &*clock),
        Command::Cells(command) => cells::run(&command),
        Command::Completions(wanted) => generated::completions(&wanted),
        Command::Man(wanted) => generated::man(&wanted),
    };
    program::ended(NAME, outcome, exit_code)
}

/// Writes an object to standard output, as one line of JSON.
fn say_json(object: &impl Serialize) -> anyhow::Result<()> {
    say(&(serde_json::to_string(object)? + "\n"))
}

/// Writes to standard error.
fn warn(text: &str) {
    program::warn(NAME, text);
}

/// Read permission of a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Readers {
    /// The owner only.
    Owner,
    /// The process's default.
    Default,
}

/// Writes a new file durably, or leaves no file behind on failure. The file must not exist yet.
fn write_new(path: &Path, bytes: &[u8], readers: Readers) -> anyhow::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    if readers == Readers::Owner {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    let mut file = options.open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => anyhow::anyhow!(
            "{} exists already and is not overwritten; name another file, or move that one away",
            path.display()
        ),
        _ => anyhow::Error::new(error).context(format!("can't create {}", path.display())),
    })?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    if written.is_err() {
        // The first error is the one to report.
        std::fs::remove_file(path).ok();
    }
    written.with_context(|| format!("can't write {}", path.display()))
}

/// Fuzz target: checks that a key file survives a round trip.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz_key_file(text: &str) {
    key_file::fuzz(text);
}
