//! Settings of a client, and what their numbers mean.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null;

use bandana_bindings::{
    Configuration, ForcedArm, LogTerms, Metric, RefusalTerms, RewardTerms, Segment, Store,
};

use crate::text::{array, bytes, read};

/// What the rewards of an app's experiments are.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum bandana_rewards {
    /// 0 or 1; without a reward, 0.
    BINARY,
    /// From `reward_low` to `reward_high`; beyond that the nearer end counts. Without a reward, `reward_low`.
    BOUNDED,
    /// 0, 1, ... up to `categories` - 1; without a reward, 0.
    CATEGORICAL,
}

/// A public property of installations, such as the platform, and this one's value. It comes with
/// each report of an experiment that divides by it, so that whoever sees the report sees the value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bandana_segment {
    /// The property, as experiments name it.
    pub name: *const c_char,
    /// The value. With one that an experiment does not list, the installation does not take part.
    pub value: *const c_char,
}

/// What an experiment may measure beside its rewards.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bandana_metric {
    /// The name, as experiments have it.
    pub name: *const c_char,
    /// What its values are: a number of `bandana_rewards`, binary or bounded.
    pub values: c_int,
    /// The least bounded value.
    pub low: f64,
    /// The largest bounded value.
    pub high: f64,
}

/// An experiment whose arm the app gives, for developers and tests.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bandana_forced_arm {
    /// The name of the experiment.
    pub experiment: *const c_char,
    /// The label of the arm.
    pub arm: *const c_char,
}

/// The settings of a client. Begin with `bandana_default_settings`.
#[repr(C)]
#[derive(Debug)]
pub struct bandana_settings {
    /// Whether the user consents. Without, nothing is fetched or sent, and nothing about the user is
    /// kept. Default: false.
    pub consent: bool,
    /// A directory of the app's own, for one client at a time, left out of backups. NULL, the default:
    /// the host has the storage, or nothing is kept and the budget begins anew with each start.
    pub directory: *const c_char,
    /// Whether the host has the storage, and makes the writes. Default: false.
    pub host_storage: bool,
    /// The last bytes written to the slot of the state; NULL: nothing was ever written.
    pub kept_state: *const u8,
    /// How many they are.
    pub kept_state_size: usize,
    /// The last bytes written to the slot of the rewards; NULL: there are none.
    pub kept_rewards: *const u8,
    /// How many they are.
    pub kept_rewards_size: usize,
    /// What rewards are: a number of `bandana_rewards`. Default: binary.
    pub rewards: c_int,
    /// The least bounded reward.
    pub reward_low: f64,
    /// The largest bounded reward.
    pub reward_high: f64,
    /// The number of categories.
    pub categories: u32,
    /// The largest epsilon of a report that the app accepts. Default: 1.
    pub epsilon_max: f64,
    /// The public key of the operator, in hexadecimal, which must have signed every experiment; NULL,
    /// the default: nobody need.
    pub operator_key: *const c_char,
    /// The public key of a countersigner, who must have signed too; NULL, the default: none.
    pub countersigner_key: *const c_char,
    /// The key of the public log that must say what a server tells; NULL, the default: it need not.
    pub log_key: *const c_char,
    /// The keys of its witnesses, separated by blanks.
    pub log_witnesses: *const c_char,
    /// How many of them must have seen what the log says; 0, the default: more than half.
    pub log_quorum: u32,
    /// The most that all reports of a window may cost, in nats. Default: 5.
    pub window_budget: f64,
    /// Days of the window, 1 to 31. Default: 7.
    pub window_days: u32,
    /// The most that all reports of the installation may cost, in nats. Default: 20.
    pub lifetime_budget: f64,
    /// The key of the app; NULL, the default: none.
    pub app_key: *const c_char,
    /// Whether sums of rewards of open assignments are kept in the store, so that the end of the
    /// process does not lose them. Default: true. With false no raw reward rests on a disk, and an
    /// assignment that was open at the end counts as one without those rewards.
    pub keep_pending_rewards: bool,
    /// The shortest release delay that the app accepts, in seconds; below 0, the default: the
    /// library's.
    pub least_release_delay_seconds: i64,
    /// Whether an experiment is reported once in so many days, whichever arm, 0: once for ever; below
    /// 0, the default: as the experiment says.
    pub report_once_days: i64,
    /// The properties that experiments may divide installations by; NULL, the default: none.
    pub segments: *const bandana_segment,
    /// How many they are.
    pub segments_size: usize,
    /// What experiments may measure beside the rewards; NULL, the default: nothing.
    pub metrics: *const bandana_metric,
    /// How many they are.
    pub metrics_size: usize,
    /// The experiment to which the installation tells, by randomized response, whether and why it refuses
    /// others; NULL, the default: it tells nobody.
    pub refusals_experiment: *const c_char,
    /// The largest epsilon of a report about refusals. Default: 0.5.
    pub refusals_epsilon_max: f64,
    /// Experiments whose arm is given, for developers and tests: the arm is shown, and nothing about the
    /// experiment is fetched or reported. NULL, the default: none.
    pub forced: *const bandana_forced_arm,
    /// How many they are.
    pub forced_size: usize,
    /// Called with `context` when there may be a step to take; NULL, the default: nobody is told. It may
    /// only schedule, comes on any thread, and never because of a reward. It must not call the
    /// client. Once `bandana_close` has returned no call is under way, and none comes.
    pub on_work: Option<extern "C" fn(context: *mut c_void)>,
    /// Given to `on_work`.
    pub context: *mut c_void,
}

/// Settings with their defaults.
#[unsafe(no_mangle)]
pub extern "C" fn bandana_default_settings() -> bandana_settings {
    bandana_settings {
        consent: false,
        directory: null(),
        host_storage: false,
        kept_state: null(),
        kept_state_size: 0,
        kept_rewards: null(),
        kept_rewards_size: 0,
        rewards: bandana_rewards::BINARY as c_int,
        reward_low: 0.0,
        reward_high: 1.0,
        categories: 2,
        epsilon_max: 1.0,
        operator_key: null(),
        countersigner_key: null(),
        log_key: null(),
        log_witnesses: null(),
        log_quorum: 0,
        window_budget: 5.0,
        window_days: 7,
        lifetime_budget: 20.0,
        app_key: null(),
        keep_pending_rewards: true,
        least_release_delay_seconds: -1,
        report_once_days: -1,
        segments: null(),
        segments_size: 0,
        metrics: null(),
        metrics_size: 0,
        refusals_experiment: null(),
        refusals_epsilon_max: 0.5,
        forced: null(),
        forced_size: 0,
        on_work: None,
        context: std::ptr::null_mut(),
    }
}

/// The values that a number of `bandana_rewards` says: with the ends of their range, and the number
/// of categories.
fn terms(kind: c_int, (low, high, categories): (f64, f64, u32)) -> Result<RewardTerms, String> {
    let kinds = [
        (bandana_rewards::BINARY, RewardTerms::Binary),
        (bandana_rewards::BOUNDED, RewardTerms::Bounded { low, high }),
        (bandana_rewards::CATEGORICAL, RewardTerms::Categorical { categories }),
    ];
    let found = kinds.into_iter().find(|(known, _)| *known as c_int == kind);
    let terms = found.map(|(_, terms)| terms);
    terms.ok_or_else(|| format!("{kind} is no number of `bandana_rewards`"))
}

/// The segments from C.
///
/// # Safety
/// As for [`configuration`].
unsafe fn segments(settings: &bandana_settings) -> Result<Vec<Segment>, String> {
    // SAFETY: as the caller promises.
    let text = |pointer| unsafe { read(pointer) }.map(Option::unwrap_or_default);
    // SAFETY: as the caller promises.
    let segments = unsafe { array(settings.segments, settings.segments_size) };
    let segment =
        |from: &bandana_segment| Ok(Segment { name: text(from.name)?, value: text(from.value)? });
    let segments: Result<_, String> = segments.iter().map(segment).collect();
    segments.map_err(|why| format!("segments: {why}"))
}

/// The forced arms from C.
///
/// # Safety
/// As for [`configuration`].
unsafe fn forced(settings: &bandana_settings) -> Result<Vec<ForcedArm>, String> {
    // SAFETY: as the caller promises.
    let text = |pointer| unsafe { read(pointer) }.map(Option::unwrap_or_default);
    // SAFETY: as the caller promises.
    let all = unsafe { array(settings.forced, settings.forced_size) };
    let one = |from: &bandana_forced_arm| {
        Ok(ForcedArm { experiment: text(from.experiment)?, arm: text(from.arm)? })
    };
    let all: Result<_, String> = all.iter().map(one).collect();
    all.map_err(|why| format!("forced: {why}"))
}

/// The metrics from C.
///
/// # Safety
/// As for [`configuration`].
unsafe fn metrics(settings: &bandana_settings) -> Result<Vec<Metric>, String> {
    // SAFETY: as the caller promises.
    let metrics = unsafe { array(settings.metrics, settings.metrics_size) };
    let metric = |from: &bandana_metric| {
        // SAFETY: as the caller promises.
        let name = unsafe { read(from.name) }?.unwrap_or_default();
        // No metric has categories: so many are refused as any others.
        Ok(Metric { name, values: terms(from.values, (from.low, from.high, 2))? })
    };
    let metrics: Result<_, String> = metrics.iter().map(metric).collect();
    metrics.map_err(|why| format!("metrics: {why}"))
}

/// The record of settings from C.
///
/// # Safety
/// Each pointer of the settings is NULL, or leads to what the header says.
pub(crate) unsafe fn configuration(settings: &bandana_settings) -> Result<Configuration, String> {
    // SAFETY: as the caller promises, here and below.
    let given = |pointer| unsafe { read(pointer) };
    let store = match (given(settings.directory)?, settings.host_storage) {
        (Some(_), true) => {
            return Err("directory: the host has the storage; give one of both".into());
        }
        (Some(path), false) => Store::Directory { path },
        (None, true) => Store::Host {
            // SAFETY: as above.
            state: unsafe { bytes(settings.kept_state, settings.kept_state_size) },
            // SAFETY: as above.
            rewards: unsafe { bytes(settings.kept_rewards, settings.kept_rewards_size) },
        },
        (None, false) => Store::Memory,
    };
    let rewards = (settings.reward_low, settings.reward_high, settings.categories);
    let rewards = terms(settings.rewards, rewards).map_err(|why| format!("rewards: {why}"))?;
    let keys = [given(settings.operator_key)?, given(settings.countersigner_key)?];
    if let [None, Some(_)] = keys {
        return Err("signers: a countersigner's key is given without the operator's".into());
    }
    let log_witnesses = given(settings.log_witnesses)?.unwrap_or_default();
    Ok(Configuration {
        store,
        rewards,
        epsilon_max: settings.epsilon_max,
        signers: keys.into_iter().flatten().collect(),
        log: given(settings.log_key)?.map(|key| LogTerms {
            key,
            witnesses: log_witnesses.split_whitespace().map(str::to_owned).collect(),
            quorum: (settings.log_quorum > 0).then_some(settings.log_quorum),
        }),
        window_budget: settings.window_budget,
        window_days: settings.window_days,
        lifetime_budget: settings.lifetime_budget,
        consent: settings.consent,
        app_key: given(settings.app_key)?,
        keep_pending_rewards: settings.keep_pending_rewards,
        least_release_delay_seconds: u64::try_from(settings.least_release_delay_seconds).ok(),
        report_once_days: match settings.report_once_days {
            ..0 => None,
            days => Some(u32::try_from(days).map_err(|_| "report_once_days: too many days")?),
        },
        // SAFETY: as the caller promises.
        segments: unsafe { segments(settings) }?,
        // SAFETY: as above.
        forced: unsafe { forced(settings) }?,
        // SAFETY: as the caller promises.
        metrics: unsafe { metrics(settings) }?,
        refusals: given(settings.refusals_experiment)?.map(|experiment| RefusalTerms {
            experiment,
            epsilon_max: settings.refusals_epsilon_max,
        }),
    })
}
