//! The settings of a client, as a record.

use std::time::Duration;

use bandana_client::{
    Acceptance, AppKey, Bandana, Budget, Builder, Consent, HostTransport, Kept, Ready, Signers,
};
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::alphabet::Alphabet;
use bandana_shared::cells;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::ExperimentId;
use bandana_shared::participation::Millionths;
use bandana_shared::refusals;
use bandana_shared::rewards::{RewardRange, Rewards};
use bandana_shared::transparency::{NoteKey, NoteKeyError, Witnessed};
use thiserror::Error;

/// The public log of a server, and the witnesses who must have seen what it says.
#[derive(Clone, Debug)]
pub struct LogTerms {
    /// The log's key, as `bandana log-key` printed it.
    pub key: String,
    /// The witnesses' keys, 1 to 8.
    pub witnesses: Vec<String>,
    /// How many of them must have seen it; `None`: more than half.
    pub quorum: Option<u32>,
}

impl LogTerms {
    fn witnessed(&self) -> Result<Witnessed, SetupError> {
        let refused = |message: String| SetupError::Log { message };
        let key = |key: &String| key.parse::<NoteKey>();
        let malformed = |error: NoteKeyError| refused(error.to_string());
        let witnesses: Result<Vec<_>, _> = self.witnesses.iter().map(key).collect();
        let witnesses = witnesses.map_err(malformed)?;
        let more_than_half = witnesses.len() / 2 + 1;
        let quorum = self.quorum.map_or(Ok(more_than_half), usize::try_from);
        let quorum = quorum.unwrap_or(usize::MAX);
        let log = Witnessed::new(key(&self.key).map_err(malformed)?, witnesses, quorum);
        log.map_err(|error| refused(error.to_string()))
    }
}

/// The settings of a client. They have no defaults but those of [`Self::new`].
#[derive(Clone, Debug)]
pub struct Configuration {
    /// The place of the ledger, open assignments and unsent reports.
    pub store: Store,
    /// The rewards of the app's experiments.
    pub rewards: RewardTerms,
    /// The largest ε of a report that the app accepts, in nats.
    pub epsilon_max: f64,
    /// Public keys that must have signed every experiment, in hexadecimal: none, the operator's, or the
    /// operator's and a countersigner's.
    pub signers: Vec<String>,
    /// The public log that must say what a server tells; `None`: it need not.
    pub log: Option<LogTerms>,
    /// The most that all reports of `window_days` may cost, in nats.
    pub window_budget: f64,
    /// Days of the window, 1 to 31.
    pub window_days: u32,
    /// The most that all reports of the installation may cost, in nats.
    pub lifetime_budget: f64,
    /// Whether the user consents. Without, nothing is fetched or sent, and nothing about the user is kept.
    pub consent: bool,
    /// The key of the app, if the operator has given it one: the same for all installations.
    pub app_key: Option<String>,
    /// Whether the sums of rewards of open assignments are kept in the store, so that the end of the
    /// process does not lose them. Without, no raw reward rests on a disk, and an assignment that was
    /// open when the process ended counts as one without those rewards.
    pub keep_pending_rewards: bool,
    /// The shortest release delay that the app accepts, in seconds; `None`: that of the library.
    pub least_release_delay_seconds: Option<u64>,
    /// Whether an arm reports once in so many days, 0: once for ever; `None`: as the experiment
    /// says.
    pub report_once_days: Option<u32>,
    /// The public properties that experiments may divide installations by.
    pub segments: Vec<Segment>,
    /// What experiments may measure beside the rewards.
    pub metrics: Vec<Metric>,
    /// The experiment to which the installation tells, by randomized response, whether and why it refuses
    /// others; `None`: it tells nobody.
    pub refusals: Option<RefusalTerms>,
    /// Experiments whose arm is given, for developers and tests: the arm is shown, and nothing about the
    /// experiment is fetched or reported.
    pub forced: Vec<ForcedArm>,
}

/// An experiment whose arm the app gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForcedArm {
    /// The name of the experiment.
    pub experiment: String,
    /// The label of the arm.
    pub arm: String,
}

impl Configuration {
    /// Binary rewards, at most ε = 1 for a report, at most 5 nats in 7 days and 20 in all, of
    /// experiments that nobody signs; sums of rewards are kept in the store, if there is one.
    pub fn new(store: Store, consent: bool) -> Self {
        Self {
            store,
            rewards: RewardTerms::Binary,
            epsilon_max: 1.0,
            signers: Vec::new(),
            log: None,
            window_budget: 5.0,
            window_days: 7,
            lifetime_budget: 20.0,
            consent,
            app_key: None,
            keep_pending_rewards: true,
            least_release_delay_seconds: None,
            report_once_days: None,
            segments: Vec::new(),
            metrics: Vec::new(),
            refusals: None,
            forced: Vec::new(),
        }
    }

    /// The client's builder with these settings.
    pub(crate) fn into_builder(self) -> Result<Builder<Ready<HostTransport>>, SetupError> {
        let acceptance = self.acceptance()?;
        let refusals = self.refusals()?;
        let budget = self.budget()?;
        let app_key = self.app_key.as_deref().map(AppKey::new).transpose();
        let app_key = app_key.map_err(|error| SetupError::AppKey { message: error.to_string() })?;
        let builder = Bandana::builder().host_transport();
        let builder = match self.store {
            Store::Memory => builder.in_memory(),
            Store::Directory { path } => builder.directory(path),
            Store::Host { state, rewards } => builder.host_storage(Kept { state, rewards }),
        };
        let consent = if self.consent { Consent::Given } else { Consent::Withheld };
        let ready = builder.accept(acceptance).budget(budget).consent(consent);
        let mut ready = ready.keep_pending_rewards(self.keep_pending_rewards);
        if let Some((experiment, acceptance)) = refusals {
            ready = ready.report_refusals(experiment, acceptance);
        }
        Ok(match app_key {
            Some(key) => ready.app_key(key),
            None => ready,
        })
    }

    fn acceptance(&self) -> Result<Acceptance, SetupError> {
        let epsilon = Epsilon::new(self.epsilon_max);
        let epsilon = epsilon.map_err(|e| SetupError::Epsilon { message: e.to_string() })?;
        let rewards = self.rewards.to_rewards();
        let rewards = rewards.map_err(|message| SetupError::Rewards { message })?;
        let mut acceptance = match self.signers()? {
            Some(signers) => Acceptance::signed(epsilon, rewards, signers),
            None => Acceptance::unsigned(epsilon, rewards),
        };
        if let Some(log) = self.log.as_ref().map(LogTerms::witnessed).transpose()? {
            acceptance = acceptance.witnessed(log);
        }
        if let Some(seconds) = self.least_release_delay_seconds {
            acceptance = acceptance.least_release_delay(Duration::from_secs(seconds));
        }
        if let Some(days) = self.report_once_days {
            acceptance = acceptance.report_once(days);
        }
        for segment in &self.segments {
            segment.check()?;
            acceptance = acceptance.segment(&segment.name, &segment.value);
        }
        for metric in &self.metrics {
            acceptance = acceptance.metric(&metric.name, metric.values()?);
        }
        Ok(acceptance)
    }

    /// The experiment about refusals, and the terms for it.
    fn refusals(&self) -> Result<Option<(ExperimentId, Acceptance)>, SetupError> {
        let Some(RefusalTerms { experiment, epsilon_max }) = &self.refusals else {
            return Ok(None);
        };
        let refused = |message: String| SetupError::Refusals { message };
        let id = ExperimentId::new(experiment).map_err(|error| refused(error.to_string()))?;
        let epsilon = Epsilon::new(*epsilon_max).map_err(|error| refused(error.to_string()))?;
        let acceptance = match self.signers()? {
            Some(signers) => Acceptance::signed(epsilon, refusals::rewards(), signers),
            None => Acceptance::unsigned(epsilon, refusals::rewards()),
        };
        let acceptance = match self.log.as_ref().map(LogTerms::witnessed).transpose()? {
            Some(log) => acceptance.witnessed(log),
            None => acceptance,
        };
        Ok(Some((id, acceptance)))
    }

    fn signers(&self) -> Result<Option<Signers>, SetupError> {
        let refused = |message: String| SetupError::Signers { message };
        let keys: Result<Vec<_>, _> = self.signers.iter().map(|key| key.parse()).collect();
        let keys =
            keys.map_err(|error: bandana_shared::signing::KeyError| refused(error.to_string()))?;
        match &keys[..] {
            [] => Ok(None),
            [operator] => Ok(Some(Signers::key(*operator))),
            [operator, countersigner] => {
                Signers::operator_and_countersigner(*operator, *countersigner)
                    .map(Some)
                    .map_err(|error| refused(error.to_string()))
            }
            more => Err(refused(format!(
                "{} keys are given; give the operator's, or the operator's and a countersigner's",
                more.len()
            ))),
        }
    }

    fn budget(&self) -> Result<Budget, SetupError> {
        let refused = |message: String| SetupError::Budget { message };
        let loss = |nats: f64| PrivacyLoss::new(nats).map_err(|error| refused(error.to_string()));
        let (window, lifetime) = (loss(self.window_budget)?, loss(self.lifetime_budget)?);
        Budget::new(window, self.window_days, lifetime).map_err(|error| refused(error.to_string()))
    }
}

/// The place of a client's state.
#[derive(Clone)]
pub enum Store {
    /// Nothing is kept: the budget begins anew with each start.
    Memory,
    /// A directory of the app's own, for one client at a time, left out of backups.
    Directory {
        /// The path.
        path: String,
    },
    /// The host makes the writes: see [`crate::Write`].
    Host {
        /// The last bytes of [`crate::Slot::State`]; `None`: nothing was ever written.
        state: Option<Vec<u8>>,
        /// The last bytes of [`crate::Slot::Rewards`], if there are any.
        rewards: Option<Vec<u8>>,
    },
}

/// Prints nothing that is kept.
impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Memory => f.write_str("Memory"),
            Self::Directory { path } => write!(f, "Directory({path:?})"),
            Self::Host { .. } => f.write_str("Host"),
        }
    }
}

/// The rewards of an app's experiments, which a server's must equal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RewardTerms {
    /// 0 or 1; without a reward 0.
    Binary,
    /// `low` to `high`, clamped; without a reward `low`.
    Bounded {
        /// The least reward.
        low: f64,
        /// The largest reward.
        high: f64,
    },
    /// 0, 1, ... up to `categories` - 1; without a reward 0.
    Categorical {
        /// The number of categories.
        categories: u32,
    },
}

impl RewardTerms {
    /// The rewards, or what was wrong.
    fn to_rewards(self) -> Result<Rewards, String> {
        match self {
            Self::Binary => Ok(Rewards::binary()),
            Self::Bounded { low, high } => {
                let range = RewardRange::new(low, high);
                range.map(Rewards::bounded).map_err(|error| error.to_string())
            }
            Self::Categorical { categories } => {
                let alphabet = Alphabet::new(categories);
                alphabet.map(Rewards::categorical).map_err(|error| error.to_string())
            }
        }
    }
}

/// The experiment about refusals, and what its report may cost.
#[derive(Clone, Debug, PartialEq)]
pub struct RefusalTerms {
    /// The name of the experiment, as its operator has made it (`--refusals`).
    pub experiment: String,
    /// The largest ε of a report about refusals, in nats.
    pub epsilon_max: f64,
}

/// A public property of installations, such as the platform, and this one's value. It comes with
/// each report of an experiment that divides by it, so that whoever sees the report sees the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The property, as experiments name it.
    pub name: String,
    /// The value. With one that an experiment does not list, the installation does not take part.
    pub value: String,
}

impl Segment {
    /// Checks the name, which is the app's. The value may be what a device tells, and no
    /// experiment need list it.
    fn check(&self) -> Result<(), SetupError> {
        let named = cells::Segmentation::new(&self.name, ["one", "other"]);
        let refused =
            |error: cells::CellsError| SetupError::Segments { message: error.to_string() };
        named.map(drop).map_err(refused)
    }
}

/// What an experiment may measure beside its rewards.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// The name, as experiments have it.
    pub name: String,
    /// The values, which the experiment's must equal: binary or bounded.
    pub values: RewardTerms,
}

impl Metric {
    fn values(&self) -> Result<Rewards, SetupError> {
        let refused = |message: String| SetupError::Metrics { message };
        let values = self.values.to_rewards();
        let values = values.map_err(|message| refused(format!("{:?}: {message}", self.name)))?;
        // Some share: that of the assignments is the experiment's.
        let share = Millionths::new(1).map_err(|error| refused(error.to_string()))?;
        let metric = cells::Metric::new(&self.name, values, share);
        metric.map(|metric| metric.values()).map_err(|error| refused(error.to_string()))
    }
}

/// A setting that can't be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SetupError {
    /// The largest ε of a report.
    #[error("epsilon_max: {message}")]
    Epsilon {
        /// What was wrong, and what was expected.
        message: String,
    },
    /// The rewards.
    #[error("rewards: {message}")]
    Rewards {
        /// What was wrong, and what was expected.
        message: String,
    },
    /// The public log.
    #[error("log: {message}")]
    Log {
        /// What is wrong.
        message: String,
    },
    /// The keys of signers.
    #[error("signers: {message}")]
    Signers {
        /// What was wrong, and what was expected.
        message: String,
    },
    /// The budget.
    #[error("budget: {message}")]
    Budget {
        /// What was wrong, and what was expected.
        message: String,
    },
    /// The app's key.
    #[error("app_key: {message}")]
    AppKey {
        /// What was wrong, and what was expected.
        message: String,
    },
    /// The segments.
    #[error("segments: {message}")]
    Segments {
        /// What was wrong, and what was expected.
        message: String,
    },
    /// The metrics.
    #[error("metrics: {message}")]
    Metrics {
        /// What was wrong, and what was expected.
        message: String,
    },
    /// The terms for the experiment about refusals.
    #[error("refusals: {message}")]
    Refusals {
        /// What was wrong, and what was expected.
        message: String,
    },
    /// The name of an experiment.
    #[error("experiment: {message}")]
    Experiment {
        /// What was wrong, and what was expected.
        message: String,
    },
    /// The client was closed.
    #[error("the client was closed; start another one")]
    Closed,
}
