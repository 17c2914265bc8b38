//! Vectors of the messages between devices and servers of trusted experiments.

use bandana_shared::wire::v1::disclose_request::Played;
use bandana_shared::wire::v1::trusted_specification::Algorithm;
use bandana_shared::wire::v1::{
    AdacGope, AdacOful, AdacUcb, DiscloseRequest, DiscloseResponse, DisclosureStatus,
    GetTrustedExperimentResponse, LazyRelease, RecommendRequest, RecommendResponse,
    TrustedExperimentName, TrustedSpecification, Vector,
};
use prost::Message as _;
use serde::Serialize;

use super::{Real, hex, word};

#[derive(Serialize)]
pub(super) struct TrustedVectors {
    experiments: Vec<ExperimentVector>,
    recommendations: Vec<RecommendationVector>,
    disclosures: Vec<DisclosureVector>,
    verdicts: Vec<VerdictVector>,
}

pub(super) fn vectors() -> TrustedVectors {
    TrustedVectors {
        experiments: experiments(),
        recommendations: recommendations(),
        disclosures: disclosures(),
        verdicts: verdicts(),
    }
}

#[derive(Serialize)]
struct ExperimentVector {
    experiment_id: String,
    rewards_are_disclosed: bool,
    rho: Real,
    algorithm: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    arms: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    beta: Option<Real>,
    #[serde(skip_serializing_if = "Option::is_none")]
    actions: Option<Vec<Vec<Real>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<Real>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dimension: Option<u32>,
    server_day: u32,
    request: String,
    response: String,
    agreed_rho: Real,
    outcome: &'static str,
}

fn reals(coordinates: &[f64]) -> Vec<Real> {
    coordinates.iter().map(|coordinate| Real::from(*coordinate)).collect()
}

fn vector(coordinates: &[f64]) -> Vector {
    Vector { coordinates: coordinates.to_vec() }
}

fn experiments() -> Vec<ExperimentVector> {
    let plane = [vector(&[1.0, 0.0]), vector(&[0.0, 1.0]), vector(&[-0.6, 0.8])];
    let gope = |actions: &[Vector]| {
        Some(Algorithm::AdacGope(AdacGope { actions: actions.to_vec(), delta: 0.01 }))
    };
    let uneven = gope(&[plane[0].clone(), vector(&[1.0])]);
    let ucb = |arms| Some(Algorithm::AdacUcb(AdacUcb { arms, beta: 3.5 }));
    let oful = |dimension| Some(Algorithm::AdacOful(AdacOful { dimension }));
    let lazy = |arms| Some(Algorithm::LazyRelease(LazyRelease { arms }));
    [
        (true, 0.1, ucb(2), "accepted"),
        (true, 0.1, ucb(1024), "accepted"),
        (true, 0.05, gope(&plane), "accepted"),
        (true, 0.1, oful(64), "accepted"),
        (true, 1e-7, lazy(5), "accepted"),
        (true, 0.100_000_001, ucb(2), "beyond"),
        (false, 0.1, ucb(2), "not understood"),
        (true, 0.1, None, "not understood"),
        (true, 0.0, ucb(2), "not understood"),
        (true, -1.0, ucb(2), "not understood"),
        (true, f64::INFINITY, ucb(2), "not understood"),
        (true, 0.1, ucb(1), "not understood"),
        (true, 0.1, lazy(1025), "not understood"),
        (true, 0.1, oful(0), "not understood"),
        (true, 0.1, oful(65), "not understood"),
        (true, 0.1, gope(&plane[..1]), "not understood"),
        (true, 0.1, uneven, "not understood"),
    ]
    .into_iter()
    .map(|(disclosed, rho, algorithm, outcome)| experiment(disclosed, rho, algorithm, outcome))
    .collect()
}

fn experiment(
    rewards_are_disclosed: bool,
    rho: f64,
    algorithm: Option<Algorithm>,
    outcome: &'static str,
) -> ExperimentVector {
    let experiment_id = "headlines".to_owned();
    let (mut arms, mut beta, mut actions, mut delta, mut dimension) =
        (None, None, None, None, None);
    let name = match &algorithm {
        None => "",
        Some(Algorithm::AdacUcb(ucb)) => {
            (arms, beta) = (Some(ucb.arms), Some(ucb.beta.into()));
            "adac_ucb"
        }
        Some(Algorithm::AdacGope(gope)) => {
            let vectors = gope.actions.iter().map(|action| reals(&action.coordinates));
            (actions, delta) = (Some(vectors.collect()), Some(gope.delta.into()));
            "adac_gope"
        }
        Some(Algorithm::AdacOful(oful)) => {
            dimension = Some(oful.dimension);
            "adac_oful"
        }
        Some(Algorithm::LazyRelease(lazy)) => {
            arms = Some(lazy.arms);
            "lazy_release"
        }
    };
    let request = TrustedExperimentName { experiment_id: experiment_id.clone() };
    let specification = TrustedSpecification {
        experiment_id: experiment_id.clone(),
        rewards_are_disclosed,
        rho,
        algorithm,
    };
    let server_day = 20_000;
    let specification = Some(specification);
    let response = GetTrustedExperimentResponse { specification, server_day };
    ExperimentVector {
        experiment_id,
        rewards_are_disclosed,
        rho: rho.into(),
        algorithm: name,
        arms,
        beta,
        actions,
        delta,
        dimension,
        server_day,
        request: hex(&request.encode_to_vec()),
        response: hex(&response.encode_to_vec()),
        agreed_rho: 0.1.into(),
        outcome,
    }
}

#[derive(Serialize)]
struct RecommendationVector {
    experiment_id: String,
    actions: Vec<Vec<Real>>,
    request: String,
    arm: u32,
    server_day: u32,
    response: String,
}

fn recommendations() -> Vec<RecommendationVector> {
    let articles = [vector(&[1.0, 0.0]), vector(&[0.6, -0.8]), vector(&[0.0, 0.0])];
    [("headlines", &[][..], 0, 0), ("headlines", &[], 1023, 20_000), ("articles", &articles, 2, 1)]
        .into_iter()
        .map(|(experiment_id, actions, arm, server_day)| {
            let experiment_id = experiment_id.to_owned();
            let request = RecommendRequest {
                experiment_id: experiment_id.clone(),
                actions: actions.to_vec(),
            };
            let response = RecommendResponse { arm, server_day };
            RecommendationVector {
                experiment_id,
                actions: actions.iter().map(|action| reals(&action.coordinates)).collect(),
                request: hex(&request.encode_to_vec()),
                arm,
                server_day,
                response: hex(&response.encode_to_vec()),
            }
        })
        .collect()
}

#[derive(Serialize)]
struct DisclosureVector {
    experiment_id: String,
    disclosure_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    arm: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<Vec<Real>>,
    reward: Real,
    day: u32,
    bytes: String,
}

fn disclosures() -> Vec<DisclosureVector> {
    let of_arm = |arm| Played::Arm(arm);
    let of_action = |coordinates: &[f64]| Played::Action(vector(coordinates));
    let long: Vec<f64> = (0..64_u32).map(|place| f64::from(place) / 512.0).collect();
    [
        // Default values are omitted, except for the arm, which is in a `oneof`.
        (of_arm(0), 0.0, 0),
        (of_arm(0), 1.0, 20_000),
        (of_arm(1023), 0.1, u32::MAX),
        (of_action(&[0.6, -0.8]), -1.0, 20_001),
        (of_action(&[0.0]), 0.0, 20_002),
        (of_action(&long), 0.25, 20_003),
    ]
    .into_iter()
    .zip(0_u64..)
    .map(|((played, reward, day), number)| {
        let [high, low] = [word(7000 + 2 * number), word(7001 + 2 * number)].map(u128::from);
        let name = (high << 64 | low).to_be_bytes();
        let (arm, action) = match &played {
            Played::Arm(arm) => (Some(*arm), None),
            Played::Action(action) => (None, Some(reals(&action.coordinates))),
        };
        let experiment_id = if arm.is_some() { "headlines" } else { "articles" }.to_owned();
        let message = DiscloseRequest {
            experiment_id: experiment_id.clone(),
            disclosure_id: name.to_vec().into(),
            played: Some(played),
            reward,
            day,
        };
        DisclosureVector {
            experiment_id,
            disclosure_id: hex(&name),
            arm,
            action,
            reward: reward.into(),
            day,
            bytes: hex(&message.encode_to_vec()),
        }
    })
    .collect()
}

#[derive(Serialize)]
struct VerdictVector {
    status: &'static str,
    message: &'static str,
    server_day: u32,
    bytes: String,
    outcome: &'static str,
}

fn verdicts() -> Vec<VerdictVector> {
    use DisclosureStatus::{
        Counted, Duplicate, Expired, FutureDay, Malformed, Paused, Stopped, Unspecified,
    };
    let known = [
        (Unspecified, "", "send again"),
        (Counted, "", "success"),
        (Duplicate, "", "success"),
        (Malformed, "there is no arm 7", "drop"),
        (Expired, "day 19000 is before the replay window", "drop"),
        (FutureDay, "day 20001 has not come", "send again"),
        (Paused, "the experiment is paused", "send again"),
        (Stopped, "the experiment has ended", "drop"),
    ];
    let known = known.into_iter().map(|(status, message, outcome)| {
        verdict(status.into(), status.as_str_name(), message, outcome)
    });
    let newer = verdict(99, "99", "of a newer server", "send again");
    known.chain(std::iter::once(newer)).collect()
}

fn verdict(
    number: i32,
    status: &'static str,
    message: &'static str,
    outcome: &'static str,
) -> VerdictVector {
    let server_day = 20_000;
    let response = DiscloseResponse { status: number, message: message.to_owned(), server_day };
    VerdictVector { status, message, server_day, bytes: hex(&response.encode_to_vec()), outcome }
}
