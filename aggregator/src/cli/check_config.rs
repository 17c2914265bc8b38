//! `bandana check-config` and `bandana default-config`.

use clap::Args;

use super::say;
use super::settings_arguments::Source;
use crate::configuration::documented_file;

/// Check a configuration, and show the value of each setting and where it comes from.
///
/// It reads what `bandana serve` would read with the same flags and environment, but starts no
/// server. You can use its output as a configuration file.
#[derive(Debug, Args)]
pub(super) struct CheckConfig {
    #[command(flatten)]
    source: Source,
}

pub(super) fn run(check: CheckConfig) -> anyhow::Result<()> {
    let (_, effective) = check.source.load()?;
    say(&effective.to_string())
}

pub(super) fn print_default() -> anyhow::Result<()> {
    say(&documented_file())
}
