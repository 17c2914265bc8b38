//! Parsing of the dashboard's requests.

use std::str::FromStr;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use bandana_edge::admission::OPERATOR_REQUEST_BYTES_MAX;
use bandana_edge::auth::Caller;
use bandana_shared::wire::v1::{
    ArmCost, CreateExperimentRequest, Decision, EstimatesRequest, HarmAction, SetRecordRequest,
    Texts,
};
use http::Uri;
use serde::Deserialize;
use tonic::{Request, Status};

use super::refusal::Refusal;
use crate::views::experiment_settings::ExperimentSettings;

/// A request to the service, with the authenticated caller.
pub(super) fn call<T>(caller: &Caller, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(caller.clone());
    request
}

/// A query parameter. All parameters are numbers and ids, so no value is percent-encoded.
pub(super) fn parameter<T: FromStr>(uri: &Uri, name: &str) -> Result<Option<T>, Refusal> {
    let mut pairs = uri.query().unwrap_or_default().split('&');
    let value = pairs.find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    let invalid = || Refusal::invalid(format!("the parameter `{name}` can't be read"));
    value.map(|value| value.parse().map_err(|_| invalid())).transpose()
}

/// The estimates request that the query parameters describe.
pub(super) fn estimates(uri: &Uri, experiment_id: String) -> Result<EstimatesRequest, Refusal> {
    Ok(EstimatesRequest {
        experiment_id,
        alpha: parameter(uri, "alpha")?.unwrap_or(0.0),
        dishonest_share: parameter(uri, "dishonest_share")?.unwrap_or(0.0),
        control_arm: parameter(uri, "control")?,
    })
}

/// The body of a request to create an experiment.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Creation {
    /// As in a file of `bandana experiment create`.
    experiment: ExperimentSettings,
    #[serde(default)]
    accept_nonlinear_estimand: bool,
    /// Whether to leave the experiment a draft, not started.
    #[serde(default)]
    draft: bool,
}

/// Parses the body of a request to create an experiment.
pub(super) fn creation(body: &[u8]) -> Result<CreateExperimentRequest, Refusal> {
    let creation: Creation = serde_json::from_slice(body).map_err(|error| {
        Refusal::invalid(format!("this does not describe a new experiment: {error}"))
    })?;
    let request = creation.experiment.request(creation.accept_nonlinear_estimand);
    let request = request.map_err(|error| Refusal::invalid(error.to_string()))?;
    Ok(CreateExperimentRequest { draft: creation.draft, ..request })
}

/// The body of a request to write a record: what is left out stays as it is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Writing {
    title: Option<String>,
    hypothesis: Option<String>,
    owner: Option<String>,
    tags: Option<Vec<String>>,
    links: Option<Vec<String>>,
    decision: Option<Decided>,
    control_arm: Option<u32>,
    on_harm: Option<OnHarm>,
    #[serde(default)]
    arm_costs: Vec<Cost>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cost {
    arm: u32,
    cost: f64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum OnHarm {
    StopArm,
    Pause,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Decided {
    decision: String,
    reason: String,
    arm: Option<u32>,
}

/// Parses the body of a request to write a record.
pub(super) fn writing(body: &[u8], experiment_id: String) -> Result<SetRecordRequest, Refusal> {
    let writing: Writing = serde_json::from_slice(body)
        .map_err(|error| Refusal::invalid(format!("this does not describe a record: {error}")))?;
    let Writing { title, hypothesis, owner, tags, links, decision, .. } = writing;
    let texts = |texts: Option<Vec<String>>| texts.map(|texts| Texts { texts });
    let decision =
        decision.map(|Decided { decision, reason, arm }| Decision { decision, reason, arm });
    let costs = writing.arm_costs.into_iter().map(|Cost { arm, cost }| ArmCost { arm, cost });
    let on_harm = match writing.on_harm {
        None => HarmAction::Unspecified,
        Some(OnHarm::StopArm) => HarmAction::StopArm,
        Some(OnHarm::Pause) => HarmAction::Pause,
    };
    Ok(SetRecordRequest {
        experiment_id,
        title,
        hypothesis,
        owner,
        tags: texts(tags),
        links: texts(links),
        decision,
        control_arm: writing.control_arm,
        on_harm: on_harm.into(),
        arm_costs: costs.collect(),
    })
}

/// Reads a body, limited in length and time.
pub(super) async fn read(body: Body, time: Duration) -> Result<Bytes, Refusal> {
    let late = || {
        let message = format!("the request was not sent within {} seconds", time.as_secs());
        Status::deadline_exceeded(message)
    };
    let read = tokio::time::timeout(time, to_bytes(body, OPERATOR_REQUEST_BYTES_MAX)).await;
    let cut = |_| {
        let most = OPERATOR_REQUEST_BYTES_MAX;
        Refusal::invalid(format!("the request has more than {most} bytes, or was cut off"))
    };
    read.map_err(|_| late())?.map_err(cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_and_others_refused() {
        let uri = Uri::from_static("/api/x?alpha=0.01&limit=7&alphabet=1");
        assert_eq!(parameter::<f64>(&uri, "alpha").unwrap(), Some(0.01));
        assert_eq!(parameter::<u32>(&uri, "limit").unwrap(), Some(7));
        assert_eq!(parameter::<u32>(&uri, "before").unwrap(), None);
        parameter::<u32>(&uri, "alpha").unwrap_err();
    }

    #[test]
    fn an_experiment_is_created_from_the_fields_of_a_file() {
        let body = br#"{"experiment": {"experiment_id": "a", "epsilon": 1, "arms": ["x", "y"],
            "attribution_window_seconds": 60}, "draft": true}"#;
        let request = creation(body).unwrap();
        assert!(request.draft);
        assert_eq!(request.specification.unwrap().arms.len(), 2);
        for wrong in [&b"{"[..], b"{}", br#"{"experiment": {"epsilom": 1}}"#] {
            creation(wrong).unwrap_err();
        }
    }
}
