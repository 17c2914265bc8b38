//! The device's side of Bandana: an arm comes out, a reward goes in, and one
//! random bit about the reward leaves.
//!
//! [`Core`] is the whole of it, without input or output of its own: it is told
//! the time, hands out [`Task`]s, and is told their results. With the feature
//! `grpc` (on by default), [`grpc`] carries them out.
//!
//! ```
//! use bandana_client::{Acceptance, Budget, Client, Reward, Timestamp, Fetched, Task};
//! use bandana_shared::{curve::Mechanism, epsilon::Epsilon, identity::{Day, ExperimentId}};
//! use bandana_shared::{policy::{Policy, Weights}, rewards::Rewards};
//! use bandana_shared::specification::{Arm, ReleaseTiming, Specification};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let id = ExperimentId::new("button-colour")?;
//! # let specification = Specification::first(id.clone(), Epsilon::new(1.0)?, Rewards::binary(),
//! #     Mechanism::RandomizedResponse, vec![Arm::new("red")?, Arm::new("green")?], ReleaseTiming::IMMEDIATE)?;
//! # let policy = Policy { version: 1, weights: Weights::uniform(&[true, true])?,
//! #     time_to_live_seconds: 60 };
//! # let fetched = Fetched { specification: Some(specification), signatures: Vec::new(), policy: Some(policy), day: Day::new(20_000) };
//! # let now = Timestamp::from_unix_ms(1_728_000_000_000);
//! // What the app agrees to, whatever a server may ask for.
//! let acceptance = Acceptance::new(Epsilon::new(1.0)?, Rewards::binary());
//! let mut client = Client::new(Budget::UNLIMITED);
//! client.enroll(id.clone(), acceptance);
//! client.on_fetched(&id, fetched, now)?; // the answer of a server
//!
//! let assignment = client.choose(&id, now)?;
//! println!("show arm {}", assignment.arm());
//! client.reward(assignment.id(), Reward::new(1.0)?, now)?;
//!
//! // One private bit, ready to be sent.
//! assert!(matches!(client.next_task(now)?, Task::Upload(_)));
//! # Ok(())
//! # }
//! ```
//!
//! # What is protected, and what is not
//!
//! | | |
//! |---|---|
//! | the reward of one report | ε-local differential privacy against everybody, server included |
//! | that an assignment got no reward | the same: it reports a default reward at the same time |
//! | an installation's rewards together | k reports cost at most k ε |
//! | that the app is used, that it takes part in an experiment, which arm it showed and, up to the release delay, when; its network address | not protected |
//!
//! A report leaves at the first [`Core::next_task`] after its release time. Ask for
//! tasks by the clock, never because the user reacted.
//!
//! The guarantee is stated for ideal randomness; the source is the operating
//! system's, and its failure is an error, never weaker noise.

mod acceptance;
mod assignment;
mod core;
#[cfg(feature = "storage")]
pub mod danger;
#[cfg(feature = "grpc")]
mod driver;
#[cfg(feature = "grpc")]
pub mod grpc;
mod handle;
mod ledger;
mod noise;
mod outbox;
mod privatizer;
mod reward;
mod signers;
#[cfg(feature = "storage")]
mod storage;
mod time;

pub use acceptance::{Acceptance, Refusal};
pub use assignment::{AssignmentId, Chosen, Unreported};
#[cfg(feature = "simulation")]
pub use core::SimulatedClient;
pub use core::{Client, ClientError, Core, FetchTask, Fetched, Statistics, Task};
#[cfg(feature = "grpc")]
pub use driver::{Driver, StartError};
pub use handle::{
    Assignment, Bandana, Builder, Choice, Consent, DefaultReason, Experiment, ExperimentError,
    HostTransport, Ready, Reporting, Status, Tasks, WantsAcceptance, WantsBudget, WantsConsent,
    WantsStorage, WantsTransport,
};
pub use ledger::{Budget, BudgetError, Spent};
#[cfg(feature = "simulation")]
pub use noise::SeededNoise;
pub use noise::{BulkNoise, EntropyError, NoiseSource, OsNoise};
pub use outbox::{UploadOutcome, UploadTask};
pub use privatizer::{PrivateBit, PrivatizeError, Privatizer};
pub use reward::{Reward, RewardError};
pub use signers::{SameKey, SignatureRefusal, Signers};
#[cfg(feature = "storage")]
pub use storage::StorageError;
pub use time::{Clock, SystemClock, Timestamp};
