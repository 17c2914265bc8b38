//! Users who disclose rewards, and a reader of all released statistics.

use std::collections::BTreeMap;

use bandana_shared::wire::v1::trusted_specification::Algorithm;
use bandana_shared::wire::v1::{
    AdacUcb, DiscloseRequest, DisclosureStatus, LazyRelease, ReleasedMean, TrustedExperimentName,
    TrustedSpecification, disclose_request,
};
use rand::RngExt as _;

use super::ways::Caller;

/// Number of arms of a trusted experiment.
const ARMS: u32 = 3;

/// The trusted experiments of a siege.
pub(super) fn experiments() -> [TrustedSpecification; 2] {
    let specification = |id: &str, algorithm| TrustedSpecification {
        experiment_id: id.to_owned(),
        rewards_are_disclosed: true,
        rho: 0.5,
        algorithm: Some(algorithm),
    };
    [
        specification("disclosed", Algorithm::AdacUcb(AdacUcb { arms: ARMS, beta: 1.0 })),
        specification("lazy", Algorithm::LazyRelease(LazyRelease { arms: ARMS })),
    ]
}

/// The number of acknowledged rewards of each trusted experiment.
pub(super) type Rewards = BTreeMap<String, u64>;

/// The statistics of each experiment after each number of releases.
pub(super) type Releases = BTreeMap<(String, u64), Vec<ReleasedMean>>;

/// A call about an experiment.
pub(super) fn named(id: &str) -> TrustedExperimentName {
    TrustedExperimentName { experiment_id: id.to_owned() }
}

/// Discloses rewards until the trouble is over.
pub(super) async fn disclose(mut caller: Caller, day: u32) -> Rewards {
    let names = experiments().map(|experiment| experiment.experiment_id);
    let mut rewards = Rewards::new();
    let mut sent: Vec<DiscloseRequest> = Vec::new();
    while !caller.is_over() {
        let again = !sent.is_empty() && caller.random.random_bool(0.05);
        let request = if again {
            sent[caller.random.random_range(0..sent.len())].clone()
        } else {
            let id: [u8; 16] = caller.random.random();
            DiscloseRequest {
                experiment_id: names[caller.random.random_range(0..names.len())].clone(),
                disclosure_id: id.to_vec().into(),
                played: Some(disclose_request::Played::Arm(caller.random.random_range(0..ARMS))),
                reward: f64::from(u8::from(caller.random.random_bool(0.5))),
                day,
            }
        };
        if disclose_one(&mut caller, &request, again).await && !again {
            *rewards.entry(request.experiment_id.clone()).or_default() += 1;
            sent.push(request);
        }
        caller.pause(40).await;
    }
    rewards
}

/// Discloses one reward; whether it counts.
async fn disclose_one(caller: &mut Caller, request: &DiscloseRequest, again: bool) -> bool {
    let mut is_repeated = again;
    loop {
        let told = caller
            .insist("a disclosure", |mut way| {
                let request = request.clone();
                async move { way.trusted.disclose(request).await }
            })
            .await;
        let (answer, was_lost) = match told {
            Ok(told) => told,
            Err(status) => {
                caller.figures.wrong(format!("a disclosure was refused with {status}"));
                return false;
            }
        };
        is_repeated |= was_lost;
        match answer.status() {
            DisclosureStatus::Counted if !again => caller.count("rewards acknowledged"),
            DisclosureStatus::Duplicate if again => caller.count("rewards sent again"),
            DisclosureStatus::Duplicate if is_repeated || caller.tries_again => {
                caller.count("rewards acknowledged");
                caller.count("rewards counted unheard");
            }
            DisclosureStatus::Paused | DisclosureStatus::FutureDay => {
                caller.pause(300).await;
                continue;
            }
            other => {
                let message = answer.message;
                caller.figures.wrong(format!("a disclosure was answered {other:?}: {message}"));
                return false;
            }
        }
        return true;
    }
}

/// Reads released statistics until the trouble is over. They must change with a release only.
pub(super) async fn read_releases(mut caller: Caller) -> Releases {
    let mut releases = Releases::new();
    while !caller.is_over() {
        read_once(&mut caller, &mut releases).await;
        caller.pause(500).await;
    }
    releases
}

/// Reads the released statistics of each experiment once.
pub(super) async fn read_once(caller: &mut Caller, releases: &mut Releases) {
    for experiment in experiments() {
        let id = experiment.experiment_id;
        let name = named(&id);
        let told = caller
            .insist("released statistics", |mut way| {
                let name = name.clone();
                async move { way.trusted_operator.get_released(name).await }
            })
            .await;
        let Ok((released, _)) = told else {
            caller.figures.wrong("released statistics were refused");
            continue;
        };
        let Some(count) = released.experiment.map(|experiment| experiment.releases) else {
            continue;
        };
        caller.count("releases read");
        let before = releases.entry((id.clone(), count)).or_insert_with(|| released.means.clone());
        if *before != released.means {
            caller.figures.wrong(format!(
                "after {count} releases {id} had {before:?}, and then {:?}",
                released.means
            ));
        }
    }
}
