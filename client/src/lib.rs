//! The device's side of Bandana. An arm comes out, a reward goes in, and one random bit about the
//! reward leaves.
//!
//! # Privacy in one screen
//!
//! Whether, when and for which arm an assignment reports is fixed when its arm is drawn. The reward
//! changes only the odds of one bit. The device draws the bit once, by an ε-locally differentially
//! private mechanism. Its privacy cost is on the device's disk before the bit can leave.
//!
//! | | protected | against whom, how much |
//! |---|---|---|
//! | the reward of an assignment | yes | everybody, the server included: ε of the experiment, at most what the app accepts ([`Acceptance`]) |
//! | that there was no reward | yes | the same: a default reward is reported at the same time |
//! | all rewards of an installation | yes | the sum of the ε of its reports, at most the caps of its [`Budget`] |
//! | the same, of reports that a relay shuffles | on two conditions | an aggregator that sees their batches: the sums of their central ε and δ, at most the caps of the central account, as long as the relay does not collude with it and at most the assumed share of users does ([`Shuffled`]) |
//! | what was decided before a crash or a restart | yes | bits are never drawn twice, and what was spent is never forgotten |
//! | that the app is used, that it takes part in an experiment, which arm it showed | no | the server sees one report for each assignment, of an arm |
//! | when an arm was shown | partly | a report reveals it up to the experiment's random release delay, and to the day; a fetch of a newer policy comes up to five minutes after a choice by a stale one |
//! | that two calls come from one device, by their content | partly | a fetch says the name of an experiment and nothing else; an upload has a random name, a connection of its own, and one bit of the day that a server can choose. If a server makes a policy for one fetch only, the arm of an upload can tell which fetch that was |
//! | the same, by the times of the calls | no | reports of a device whose release times fall in one short slot leave together, so that a radio wakes once |
//! | which app reports | no | an app key, if there is one, goes with every call. It does not distinguish devices as long as all installations of the app share it |
//! | the network address | no | use a proxy or a mix network if it matters |
//! | the time of the next start | partly | an upload that fell due while the app was closed leaves at its next start |
//! | an app that is installed again, or restored from a backup | no | it has forgotten what it spent; keep the directory out of backups |
//! | an installation whose host keeps the storage, and loses it | no | the same, and the client can't notice; browsers delete what a page stores, so give a small lifetime budget |
//!
//! The guarantee is stated for ideal randomness. The randomness comes from the operating system. If
//! that fails, there is an error, and never weaker noise.
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
//!     // Rewards of 0 or 1, and at most epsilon = 1 for each report, whatever a server asks, and
//!     // whoever made the experiment: `signed` pins that.
//!     .accept(Acceptance::unsigned(Epsilon::new(1.0)?, Rewards::binary()))
//!     // At most 5 nats in any 7 days, and 20 for the life of the installation.
//!     .budget(Budget::new(PrivacyLoss::new(5.0)?, 7, PrivacyLoss::new(20.0)?)?)
//!     .consent(Consent::Given)
//!     .start()?; // a thread; `driver()` instead for an app with a tokio runtime
//!
//! // Wherever there is something to choose. Never waits, never fails. Before the first answer of a
//! // server it gives the default: see `Experiment::wait_until_ready`.
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
//! `https` needs the feature `tls`. A host that talks to the aggregator by other means takes
//! `host_transport()` and carries out [`Tasks`]. With the feature `messages`, the tasks are bytes
//! to post, and the host tells the client the answers.
//!
//! When no arm comes, [`Bandana::status`] names the last refusal and the last error, and what to do
//! about each. With the feature `log`, the client tells fetches, refusals and uploads to the app's
//! logger of the crate `log`, target `bandana`. It never tells a reward, an arm, or what a report
//! says.
//!
//! # The life of an assignment
//!
//! 1. [`Experiment::choose`] gives the open assignment, as long as its attribution window lasts.
//!    Otherwise it draws an arm by the policy last received, offline too. It debits the budget and
//!    draws the release time: the end of the experiment's attribution window plus a random delay.
//!    If the budget has no room, the arm is drawn all the same, and that assignment never reports
//!    ([`Assignment::unreported`]).
//! 2. Off the caller's thread, the assignment is written to the state, where it survives the end of
//!    the process.
//! 3. [`Assignment::reward`] adds rewards while the window lasts. Of categorical rewards the last
//!    one counts.
//! 4. At the end of the window the sum, or the default reward, becomes one private bit (or one
//!    symbol, where the experiment has k-ary randomized response). The report is written, and the
//!    sum is erased.
//! 5. At the release time the report gets a random name and the day: the earlier of the device's and
//!    the server's. The debit is written to the ledger and then the report to the state. Once both
//!    would survive a power cut, it leaves, over a connection of its own. Every retry has the same
//!    bytes, after a random wait. The order of uploads is random.
//!
//! Steps 4 and 5 do not depend on the reward in any other way, whatever happens. That includes
//! dropping the [`Assignment`], rewarding it twice or never, killing the process, losing the
//! network, and setting the clock. [`Bandana::assignment`] finds an open assignment again after a
//! restart.
//!
//! # What is stored where
//!
//! The client stores these files in the directory that the app gives. On Unix, only their owner can
//! read them.
//!
//! | file | holds | when it is lost or damaged |
//! |---|---|---|
//! | `ledger` | what was spent in both accounts, in whole nano-nats and units of δ, in two slots written in turn | nothing is reported until [`danger::reset`] |
//! | `state` | experiments and policies as last received and the store that each came from, open assignments without their rewards, private bits not yet sent, arms that report once, whether the user has opted out | the same |
//! | `rewards` | open assignments with the sums of their rewards, and zeros in place of those that were erased: unless [`Builder::keep_pending_rewards`] says no | the sums count as none |
//! | `starts` | the number of starts, from which ids of assignments begin | ids begin after the largest in `state` |
//! | `opted-out` | the opt-out, by its existence | the opt-out in `state` stands |
//! | `lock`, `installed`, `CACHEDIR.TAG` | nothing | |
//!
//! Raw rewards of *trusted* experiments, whose users disclose them, never enter these files. An app
//! that keeps such rewards on the disk gives them a directory of their own: see
//! `trusted::Disclosures`.
//!
//! Both `ledger` and `state` hold the number of the last write. A crash can leave these numbers one
//! step apart. If they are further apart, or if `state` is behind a write known to be complete, one
//! of the files is out of date, and neither is used. The client can't detect that both files were
//! replaced by an older pair, nor that the directory was deleted: that is a first start.
//! Backup programs that know `CACHEDIR.TAG` leave the directory out. On Android put it
//! under `noBackupFilesDir`, on Apple's systems set `isExcludedFromBackup`.
//!
//! # Who is trusted
//!
//! You trust the app and its device. You need not trust the server. The client refuses an
//! experiment with a larger ε, other rewards, or a floor that does not keep its ε. It refuses a
//! change that no revision may make. It refuses an experiment without the signatures that the app
//! pins ([`Signers`]), and one whose reports are not shuffled as the app demands ([`Shuffled`]).
//! See [`Refusal`]. The server can stop a device from learning, and can give it a policy of its
//! own. It can't make the device reveal more.
//!
//! Without pinned signatures, the first server to answer chooses the specification. From then on,
//! the client refuses every specification that is not a later revision of it, also from the honest
//! server.
//!
//! An impostor may have named the honest server's store, whose id is public. That costs the reports
//! until the first of them arrives. Then the store says that it does not know the specification,
//! and the client forgets the specification. The debits stay, and the client still knows that the
//! experiment was reported. An impostor that named a store of its own, or none, is not detected.
//! The client then keeps the specification, and sends each report for 60 days before dropping it.
//! Pin signatures where answers may be forged, or use `https`.
//!
//! You need not trust the network either. The client checks every answer, and sends nothing that is
//! not private. A thief of the device sees what is stored.
//!
//! # Questions
//!
//! *Why does `choose` return no error?* Product code can't handle one. It shows a default, and
//! [`Bandana::status`] has the reason.
//!
//! *Why can an arm come without a report?* All experiments share the budget of the installation. An
//! arm without a report is still better than none.
//!
//! *The clock was set ahead and back again.* No window of the budget depends on that clock. A
//! report counts in every window until it has arrived and the server has told its day after that.
//! While the clock agrees neither with the server's day nor with the time that has passed since the
//! server told it, arms come without reports.
//!
//! *The network changed, or the app was in the background?* Call [`Bandana::wake`]. The client has no
//! connection between calls and no timer but the one of the next due time.
//!
//! *The process forks?* The parent's client goes on. The handle in the child gives arms without
//! reports.
//!
//! *Can the noise for a value be remembered, so that it need not be paid for twice?* No: a change
//! of the value would show. [`Acceptance::report_once`] remembers the report.
//!
//! *Two processes of one app?* Give each a directory and a share of the budget, or use only one.
//!
//! *Does [`Consent::Given`] opt in?* No. A user who opted out takes part again only by
//! [`Bandana::opt_in`]. [`Consent::Withheld`] holds for one run.
//!
//! # The examples of this documentation
//!
//! All of them run, except two that need a server: the one above and that of
//! `grpc::Transport::fetch`. The examples of `trusted` bring a server, in
//! `src/trusted/example.txt`. It has one experiment, "headlines", recommends arm 1 of 2 and counts
//! every disclosure. The app of the other examples takes part in one experiment, "button-colour".
//! It has two arms, ε = 1, an attribution window of ten minutes and a release delay of up to an
//! hour. Hidden lines make `bandana`, `tasks` and a `clock` that the example moves, or a `client`
//! and the `id` of the experiment. `bandana` and `client` already hold the experiment's policy.
//! `acceptance()`, `budget()` and `specification()` belong to the experiment. `now()` is the time
//! at which the clock starts, `answer(now)` is a server's answer, and `serve` answers every fetch
//! and counts the uploads. All of this is in `src/example.txt`.
//!
//! # Features
//!
//! `grpc` (on): transport and driver. `messages` (part of `grpc`): calls as bytes, for hosts with
//! plain HTTP. `storage` (on): the directory, and storage by the host. `tls`: `https`, with the
//! system's roots or given ones. `relay`: calls through a relay, and reports that it shuffles.
//! Without it, the client refuses experiments of shuffled reports. `simulation`: clients with
//! seeded noise, which take part only in experiments that are marked as simulations. `trusted`:
//! experiments in which users disclose rewards to the server. Other rules hold there: see its
//! module. Without any of these features the crate depends on none of tokio, tonic and prost.

mod acceptance;
#[cfg(feature = "messages")]
mod app_key;
mod assignment;
mod budget;
mod core;
#[cfg(feature = "storage")]
pub mod danger;
mod day;
mod debit;
#[cfg(all(feature = "fuzzing", feature = "storage"))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(feature = "grpc")]
pub mod grpc;
mod ledger;
mod membership;
#[cfg(feature = "messages")]
mod messages;
mod noise;
mod outbox;
mod privatizer;
mod process;
mod refusal;
mod reward;
mod sdk;
mod shuffled;
mod shuffled_task;
mod sign;
mod signers;
#[cfg(feature = "storage")]
mod storage;
mod time;
#[cfg(feature = "trusted")]
pub mod trusted;

pub use acceptance::Acceptance;
#[cfg(feature = "messages")]
pub use app_key::{AppKey, AppKeyError};
pub use assignment::{AssignmentId, Chosen, Unreported};
pub use budget::{Budget, BudgetError, Spent};
#[cfg(feature = "simulation")]
pub use core::SimulatedClient;
pub use core::{Client, ClientError, Core, FetchTask, Fetched, Statistics, Task};
pub use debit::CentralLoss;
#[cfg(feature = "simulation")]
pub use noise::SeededNoise;
pub use noise::{BulkNoise, EntropyError, NoiseSource, OsNoise};
pub use outbox::{UploadOutcome, UploadTask};
pub use privatizer::{PrivateReport, PrivatizeError, Privatizer};
pub use refusal::Refusal;
pub use reward::{Reward, RewardError};
#[cfg(feature = "messages")]
pub use sdk::{Answer, Call, CallId, NextCall};
pub use sdk::{
    Assignment, Bandana, Builder, Choice, Consent, DefaultReason, Experiment, ExperimentError,
    HostTransport, NotReady, Ready, Reporting, Status, Tasks, Trouble, WantsAcceptance,
    WantsBudget, WantsConsent, WantsStorage, WantsTransport,
};
#[cfg(feature = "grpc")]
pub use sdk::{Driver, StartError};
#[cfg(feature = "storage")]
pub use sdk::{HostWrite, Kept, Slot};
pub use shuffled::Shuffled;
#[cfg(feature = "relay")]
pub use shuffled_task::SealError;
pub use shuffled_task::ShuffledTask;
pub use signers::{SameKey, SignatureRefusal, Signers};
#[cfg(feature = "storage")]
pub use storage::StorageError;
pub use time::{Clock, SystemClock, Timestamp};
