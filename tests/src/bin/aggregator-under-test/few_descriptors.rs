//! Runs a program that may have few files open: `with-few-descriptors SOFT HARD PROGRAM
//! ARGUMENTS...`.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::Context as _;
use rustix::process::{Resource, Rlimit, setrlimit};

pub(super) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let mut arguments = arguments.iter();
    let mut number = || arguments.next().context("SOFT and HARD are numbers")?.parse().context("");
    let (current, maximum) = (Some(number()?), Some(number()?));
    setrlimit(Resource::Nofile, Rlimit { current, maximum })?;
    let program = arguments.next().context("no program")?;
    // Returns only on failure.
    Err(Command::new(program).args(arguments).exec().into())
}
