//! The device's side of Bandana: an arm comes out, a reward goes in, and one random bit
//! about the reward leaves.
//!
//! # Privacy in one screen
//!
//! An assignment is settled when its arm is drawn: whether it reports, when, and for
//! which arm. Rewards decide nothing but the odds of one bit, which is drawn once, on the
//! device, by an ε-locally differentially private mechanism. Its price is on the device's
//! disk before the bit can leave.
//!
//! | | protected | against whom, how much |
//! |---|---|---|
//! | the reward of an assignment | yes | everybody, the server included: ε of the experiment, at most what the app accepts ([`Acceptance`]) |
//! | that there was no reward | yes | the same: a default reward is reported at the same time |
//! | all rewards of an installation | yes | the sum of the ε of its reports, at most the caps of its [`Budget`] |
//! | what was decided before a crash or a restart | yes | bits are never drawn twice, and what was spent is never forgotten |
//! | that the app is used, that it takes part in an experiment, which arm it showed | no | the server sees one report for each assignment, of an arm |
//! | when an arm was shown | partly | a report tells it up to the experiment's random release delay, and to the day; a question for a newer policy comes up to five minutes after a choice by an old one |
//! | that two questions are of one device | no | a question names the policy that the device has, and a server can give each device another; uploads name none |
//! | which app reports | no | an app key, if there is one, goes with every call. It tells no device from another as long as all installations of the app have the same |
//! | the network address | no | use a proxy or a mix network if it matters |
//! | the time of the next start | partly | what fell due while the app was closed leaves at its next start |
//! | an installation that is made anew, or restored from a backup | no | it has forgotten what it spent; keep the directory out of backups |
//!
//! The guarantee is stated for ideal randomness. The source is the operating system's,
//! and its failure is an error, never weaker noise.
//!
//! # Five minutes to embed
//!
//! ```no_run
//! use bandana_client::{Acceptance, Bandana, Budget, Consent};
//! use bandana_shared::{accounting::loss::PrivacyLoss, epsilon::Epsilon, rewards::Rewards};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let app_directory = std::path::Path::new("app");
//! // Once, when the app starts. The builder asks for what it can't guess.
//! let bandana = Bandana::builder()
//!     .endpoint("https://bandana.example.org")?
//!     .directory(app_directory.join("bandana"))
//!     // Rewards of 0 or 1, and at most epsilon = 1 for each report, whatever a server asks.
//!     .accept(Acceptance::new(Epsilon::new(1.0)?, Rewards::binary()))
//!     // At most 5 nats in any 7 days, and 100 for the life of the installation.
//!     .budget(Budget::new(PrivacyLoss::new(5.0)?, 7, PrivacyLoss::new(100.0)?)?)
//!     .consent(Consent::Given)
//!     .start()?; // a thread; `driver()` instead for an app with a tokio runtime
//!
//! // Wherever there is something to choose. Never waits, never fails. Until a server was
//! // heard once it gives the default: see `Experiment::wait_until_ready`.
//! let choice = bandana.experiment("button-colour")?.choose();
//! println!("show the {} button", choice.label_or("blue"));
//!
//! // When the user reacts, if ever.
//! choice.reward(1.0);
//!
//! // When the app ends.
//! bandana.shutdown(std::time::Duration::from_secs(2));
//! # Ok(())
//! # }
//! ```
//!
//! `https` needs the feature `tls`. A host that talks to the aggregator by other means
//! takes `host_transport()` and carries out [`Tasks`].
//!
//! # The life of an assignment
//!
//! 1. [`Experiment::choose`] draws an arm by the policy as last heard, offline too. It
//!    debits the budget and draws the release time: the end of the experiment's
//!    attribution window plus a random delay. Without room in the budget there is an arm
//!    all the same, and that assignment never reports ([`Assignment::unreported`]).
//! 2. Off the caller's thread, the debit is written to the ledger and then the
//!    assignment to the state. Until that is durable nothing of it can leave.
//! 3. [`Assignment::reward`] adds rewards while the window lasts; of categories the last
//!    one counts.
//! 4. At the end of the window the sum, or the default reward, becomes one private bit (or
//!    one symbol, where the experiment has k-ary randomized response), which is written;
//!    the sum is gone.
//! 5. At the release time the bit gets a random name and the server's day, is written
//!    again, and leaves; every retry has the same bytes, after a random wait. The order
//!    of uploads is random.
//!
//! Dropping the [`Assignment`], rewarding it twice or never, killing the process, losing
//! the network or setting the clock changes nothing about 4 and 5 that depends on the
//! reward. [`Bandana::assignment`] finds an open assignment again after a restart.
//!
//! # What is stored where
//!
//! In the directory that the app gives, in files that on Unix only their owner can read:
//!
//! | file | holds | when it is lost or damaged |
//! |---|---|---|
//! | `ledger` | what was spent, in whole nano-nats, in two slots written in turn | nothing is reported until [`danger::reset`] |
//! | `state` | experiments and policies as last heard and which store they came from, open assignments without their rewards, private bits that wait, arms that report once, whether the user has opted out | the same |
//! | `rewards` | sums of rewards of open assignments: only with [`Builder::keep_pending_rewards`] | the sums count as none |
//! | `opted-out` | that the user has opted out, by being there | the opt-out in `state` stands |
//! | `lock`, `installed`, `CACHEDIR.TAG` | nothing | |
//!
//! Raw rewards of *trusted* experiments, whose users disclose them, never enter these files. An
//! app that keeps them on the disk gives them a directory of their own: see
//! `trusted::Disclosures`.
//!
//! Both `ledger` and `state` have the number of the last write. Apart by more than the
//! one step that a crash can leave, or a state behind what is known to be written, one of
//! them is not of this time, and neither is used. Both replaced by older ones that belong
//! together are not found out, nor is a directory that was deleted: it is a first start.
//! Backup programs that know `CACHEDIR.TAG` leave the directory out. On Android put it
//! under `noBackupFilesDir`, on Apple's systems set `isExcludedFromBackup`.
//!
//! # Who is trusted
//!
//! The app and its device. Not the server: the client refuses an experiment with a larger
//! ε, other rewards, a floor that does not keep its ε, a change that no revision may
//! make, or without the signatures that the app pins ([`Signers`]); see [`Refusal`]. The
//! server can stop a device from learning, and can give it a policy of its own, but not
//! make it say more. Without pinned signatures, whoever answers first chooses the specification:
//! the client refuses what no revision of it may become, also from an honest server. A liar that
//! named the honest server's store (its id is public) costs the reports until the first of
//! them arrives: that store does not know the specification, and the client forgets it, unless an
//! arm has already reported under [`Acceptance::report_once`]. What was paid stays paid. A liar
//! that named a store of its own, or none, is not found out: the client keeps the specification,
//! and sends each report for 60 days before it drops it. Pin signatures where answers may be
//! false, or use `https`. Not the network: what is heard from it is checked, and what is sent
//! holds nothing that is not private. A thief of the device sees what is stored.
//!
//! # Questions
//!
//! *Why does `choose` return no error?* Product code has nothing to do about one. It shows
//! a default, and [`Bandana::status`] tells whoever wants to know.
//!
//! *Why can an arm come without a report?* The budget of the installation counts for all
//! experiments together. An arm is still better than none.
//!
//! *The clock was set ahead and back again.* Windows of the budget follow the latest time
//! that was ever seen, so they open again when the clock has passed it.
//!
//! *Can I have the noise for a value remembered, so that it need not be paid for twice?*
//! No: a change of the value would show. [`Acceptance::report_once`] remembers the report.
//!
//! *Two processes of my app?* Give each a directory and a share of the budget, or let one
//! do the work.
//!
//! *Does [`Consent::Given`] opt in?* No. Whoever opted out takes part again with
//! [`Bandana::opt_in`] only. [`Consent::Withheld`] holds for one run.
//!
//! # The examples of this documentation
//!
//! All of them run, but for two that need a server: the one above and that of
//! `grpc::Transport::fetch`. Those of `trusted` bring a server, in `src/trusted/example.txt`, with
//! one experiment, "headlines", that recommends arm 1 of 2 and counts all it hears. The others' app takes part in one experiment, "button-colour", with
//! two arms, ε = 1, ten minutes for a reaction and a report within an hour after. Where
//! they don't show it, `bandana`, `tasks` and a `clock` that the example moves, or a
//! `client` and the `id` of the experiment, have heard of it already. `acceptance()`,
//! `budget()` and `specification()` are those of the experiment, `now()` is the time at
//! which the clock starts, `answer(now)` is what a server would say, and `serve` answers
//! every question and counts the uploads. It is all in `src/example.txt`.
//!
//! # Features
//!
//! `grpc` (on): transport and driver. `storage` (on): the directory. `tls`: `https`, with
//! the system's roots or given ones. `simulation`: clients with seeded noise, which
//! take part only in experiments that are marked as simulations. `trusted`: experiments in
//! which users disclose rewards to the server, another world; see its module. Without any of
//! them there are neither tokio, tonic nor prost.

mod acceptance;
mod assignment;
mod core;
#[cfg(feature = "storage")]
pub mod danger;
mod day;
#[cfg(all(feature = "fuzzing", feature = "storage"))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(feature = "grpc")]
pub mod grpc;
mod ledger;
mod noise;
mod outbox;
mod privatizer;
mod reward;
mod sdk;
mod signers;
#[cfg(feature = "storage")]
mod storage;
mod time;
#[cfg(feature = "trusted")]
pub mod trusted;

pub use acceptance::{Acceptance, Refusal};
pub use assignment::{AssignmentId, Chosen, Unreported};
#[cfg(feature = "simulation")]
pub use core::SimulatedClient;
pub use core::{Client, ClientError, Core, FetchTask, Fetched, Statistics, Task};
pub use ledger::{Budget, BudgetError, Spent};
#[cfg(feature = "simulation")]
pub use noise::SeededNoise;
pub use noise::{BulkNoise, EntropyError, NoiseSource, OsNoise};
pub use outbox::{UploadOutcome, UploadTask};
pub use privatizer::{PrivateReport, PrivatizeError, Privatizer};
pub use reward::{Reward, RewardError};
pub use sdk::{
    Assignment, Bandana, Builder, Choice, Consent, DefaultReason, Experiment, ExperimentError,
    HostTransport, NotReady, Ready, Reporting, Status, Tasks, WantsAcceptance, WantsBudget,
    WantsConsent, WantsStorage, WantsTransport,
};
#[cfg(feature = "grpc")]
pub use sdk::{Driver, StartError};
pub use signers::{SameKey, SignatureRefusal, Signers};
#[cfg(feature = "storage")]
pub use storage::StorageError;
pub use time::{Clock, SystemClock, Timestamp};
