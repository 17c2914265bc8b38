//! Experiments in which users disclose their rewards to the server. Feature `trusted`.
//!
//! Everywhere else in this crate, rewards stay on the device. Here they leave it. The app trusts
//! the server with them, and the server protects each one from everybody else by zero-concentrated
//! differential privacy. An app opts in by an [`Agreement`], and in no other way. An experiment is
//! either trusted or local, never both.
//!
//! ```
#![doc = include_str!("trusted/example.txt")]
//! use bandana_client::trusted::{
//!     Agreement, DisclosedReward, Disclosures, RhoBudget, TrustedExperiment,
//! };
//! use bandana_shared::{accounting::concentrated::Rho, identity::ExperimentId};
//!
//! # let app_directory = tempfile::tempdir()?;
//! # with_server(async |transport| {
//! // A directory for nothing else: what this person disclosed, and what that cost.
//! let directory = app_directory.path().join("disclosures");
//! let disclosures = Disclosures::open(directory, RhoBudget::default())?;
//!
//! let agreement = Agreement::users_disclose_rewards(Rho::new(0.1)?);
//! let id = ExperimentId::new("headlines")?;
//! let experiment = TrustedExperiment::open(transport, id, agreement).await?;
//! let arm = experiment.recommend().await?;
//! // The user may see another arm; the arm that was shown counts.
//! let disclosure = experiment.disclosure(arm, DisclosedReward::new(1.0)?)?;
//! // Retry until it succeeds or its error is final: the reward counts once.
//! experiment.disclose(&disclosure, &disclosures).await?;
//! # Ok(())
//! # })?;
//! # Ok::<(), Failure>(())
//! ```
//!
//! A [`Disclosure`] is in memory. [`Disclosures::keep`] keeps it on the device's disk until a
//! server has given its verdict:
//!
//! | verdict | result |
//! |---|---|
//! | counted, now or before | a success; the disclosure is erased |
//! | malformed, stopped | refused for good, and erased |
//! | expired | the same; it may have counted before, so don't disclose the reward again |
//! | not asked: the budget has no room, and won't when its window is over | the same |
//! | not asked: the budget has no room in this window | waits |
//! | paused, a day in the future, no verdict | sent again, with the same bytes |
//!
//! A disclosure gets the server's day when it is first sent, if that day is within one of the
//! device's own. It keeps this day, and counts once by its name and day together.
//!
//! # Privacy
//! ρ is the price of one reward. If a person discloses k rewards to one experiment, they cost k² ρ
//! together. Ten rewards cost a hundred times as much as one: between the experiment with that
//! person and without, ten rewards change at once. So [`Disclosures`] keeps a ledger in its
//! directory. For each experiment it holds k, and the largest ρ that the experiment ever asked for.
//! A reward is counted there durably before it leaves. It is refused if the sum of the costs of all
//! experiments would exceed a cap of the [`RhoBudget`], for a window of days or for the lifetime.
//!
//! A reward that was debited counts, even if it was lost or the server refused it. A reward that is
//! sent again under its name costs nothing more, whatever became of the first attempt. The server
//! can't change this: an experiment is known by its id, and no other digest, price, state or answer
//! takes a reward back. Two servers that serve one id count as one experiment. In a window, a
//! reward counts on the server's day, as last heard, when it is first sent. A false day of the
//! server, together with a false clock of the device, can begin a new window, but never a new
//! lifetime.
//!
//! The caps hold against anybody who sees everything that the server publishes. They do not hold
//! against the server, nor if the server does not do what it says. The server, and anyone who reads
//! the traffic where there is no TLS, sees rewards, addresses and times. Raw rewards are stored on
//! the device's disk in [`Disclosures::keep`]'s file only. The directory's other files, `rho` and
//! `rho.installed`, hold ids of experiments, counts, days and random names. The client detects a
//! lost or damaged `rho`, and then discloses nothing. It does not detect that `rho` was replaced by
//! an older one, or that the whole directory was deleted.

mod agreement;
mod budget;
#[cfg(test)]
mod crash_tests;
mod disclosure;
mod disclosures;
pub(crate) mod disclosures_file;
mod error;
mod experiment;
pub(crate) mod rho_file;
pub(crate) mod rho_ledger;
#[cfg(test)]
mod rho_tests;
#[cfg(test)]
mod scripted;
#[cfg(test)]
mod tests;
mod waiting;

pub use agreement::Agreement;
pub use budget::{RhoBudget, RhoBudgetError, RhoExhausted, RhoSpent, SpentOnExperiment};
pub use disclosure::{DisclosedReward, Disclosure};
pub use disclosures::{Disclosures, Flushed, KeepError};
pub use error::TrustedError;
pub use experiment::TrustedExperiment;
pub(crate) use waiting::Kept;

use crate::storage::{Files, MemoryFiles, StorageError};

/// Erases the ledger and the waiting disclosures.
pub(crate) fn reset(files: &mut dyn Files) -> Result<(), StorageError> {
    // The disclosures first: without their debits none may be sent again.
    disclosures_file::DisclosuresFile::erase(files)?;
    rho_file::RhoFile::reset(files)
}

/// Disclosures and a ledger that end with the process.
pub(crate) fn in_memory(budget: RhoBudget) -> Result<Disclosures, StorageError> {
    Disclosures::of(Box::new(MemoryFiles::default()), budget)
}
