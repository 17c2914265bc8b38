//! Experiments in which users disclose their rewards to the server. Feature `trusted`.
//!
//! Everywhere else in this crate, rewards stay on the device. Here they leave it: the server is
//! trusted with them, and protects each one from everybody else by zero-concentrated differential
//! privacy. An app opts in by an [`Agreement`]; there is no other way. An experiment is either
//! trusted or local, never both.
//!
//! ```
#![doc = include_str!("trusted/example.txt")]
//! use bandana_client::trusted::{Agreement, DisclosedReward, TrustedExperiment};
//! use bandana_shared::{accounting::concentrated::Rho, identity::ExperimentId};
//!
//! # with_server(async |transport| {
//! let agreement = Agreement::users_disclose_rewards(Rho::new(0.1)?);
//! let id = ExperimentId::new("headlines")?;
//! let experiment = TrustedExperiment::open(transport, id, agreement).await?;
//! let arm = experiment.recommend().await?;
//! // The user may see another arm; the arm that was shown counts.
//! let disclosure = experiment.disclosure(arm, DisclosedReward::new(1.0)?)?;
//! // Retry until it succeeds or its error is final: the reward counts once.
//! experiment.disclose(&disclosure).await?;
//! # Ok(())
//! # })?;
//! # Ok::<(), Failure>(())
//! ```
//!
//! A [`Disclosure`] is in memory. With the feature `storage`, `Disclosures` keeps it on the
//! device's disk until a server has given its verdict:
//!
//! | verdict | result |
//! |---|---|
//! | counted, now or before | a success; the disclosure is erased |
//! | malformed, stopped | refused for good, and erased |
//! | expired | the same; it may have counted before, so don't disclose the reward again |
//! | paused, a day in the future, no verdict | sent again, with the same bytes |
//!
//! A disclosure has no day before it is first sent. Then it gets the server's day, if that is
//! within one of the device's own, and keeps it: by its name and day together it counts once.
//!
//! # Privacy
//! ρ is the price of one reward. A user with k rewards pays up to k² ρ. The server, and anyone who
//! reads the traffic where there is no TLS, sees rewards, addresses and times. Raw rewards are
//! stored on the device's disk in `Disclosures` only, and an app that does not open one stores
//! none.

mod agreement;
#[cfg(all(test, feature = "storage"))]
mod crash_tests;
mod disclosure;
#[cfg(feature = "storage")]
mod disclosures;
#[cfg(feature = "storage")]
pub(crate) mod disclosures_file;
mod error;
mod experiment;
#[cfg(all(test, feature = "storage"))]
mod scripted;
#[cfg(all(test, feature = "storage"))]
mod tests;
#[cfg(feature = "storage")]
mod waiting;

pub use agreement::Agreement;
pub use disclosure::{DisclosedReward, Disclosure};
#[cfg(feature = "storage")]
pub use disclosures::{Disclosures, Flushed, KeepError};
pub use error::TrustedError;
pub use experiment::TrustedExperiment;
#[cfg(feature = "storage")]
pub(crate) use waiting::Kept;
