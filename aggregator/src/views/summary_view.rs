//! The summary of an experiment in a list: without its arms.

use bandana_edge::operator_client::Client;
use bandana_shared::wire::v1::specification::Mechanism;
use bandana_shared::wire::v1::{
    ExperimentStatus, ExperimentView as Extent, ListExperimentsRequest,
};
use serde::Serialize;

use super::alarm_view::{self, AlarmView};
use super::experiment_view::{learner, state};
use super::failure::Failure;
use super::table::{Side, Table, visible};

/// The summary of an experiment in a list.
#[derive(Debug, Serialize)]
pub(crate) struct SummaryView {
    experiment_id: String,
    state: &'static str,
    archived: bool,
    revision: u32,
    arms_in_play: u32,
    simulation: bool,
    epsilon: f64,
    mechanism: &'static str,
    learner: &'static str,
    reports: u64,
    alarms: Vec<AlarmView>,
    title: String,
    owner: String,
    tags: Vec<String>,
    /// What was decided; null for nothing yet.
    decision: Option<String>,
}

impl From<&ExperimentStatus> for SummaryView {
    fn from(status: &ExperimentStatus) -> Self {
        let specification = status.specification.clone().unwrap_or_default();
        let record = status.record.clone().unwrap_or_default();
        Self {
            experiment_id: specification.experiment_id,
            state: state(status.state()),
            archived: status.archived,
            revision: specification.revision,
            arms_in_play: status.arms_in_play,
            simulation: specification.simulation,
            epsilon: specification.epsilon,
            mechanism: match specification.mechanism {
                Some(Mechanism::Linear(_)) => "linear",
                Some(Mechanism::Quadratic(_)) => "quadratic",
                Some(Mechanism::Exponential(_)) => "exponential",
                Some(Mechanism::RandomizedResponse(randomized)) if randomized.symbols > 0 => {
                    "k-ary"
                }
                Some(Mechanism::RandomizedResponse(_)) => "randomized-response",
                None => "unknown",
            },
            learner: learner(status),
            reports: status.reports,
            alarms: status.alarms.iter().cloned().map(Into::into).collect(),
            title: record.title,
            owner: record.owner,
            tags: record.tags,
            decision: record.decision.map(|decision| decision.decision),
        }
    }
}

/// All experiments, fetched page by page.
pub(crate) async fn all(
    client: &mut Client,
    extent: Extent,
    show_archived: bool,
) -> Result<Vec<ExperimentStatus>, Failure> {
    let view = extent.into();
    let mut request = ListExperimentsRequest { view, show_archived, ..Default::default() };
    let mut all = Vec::new();
    loop {
        let answer = client.list_experiments(request.clone()).await?.into_inner();
        all.extend(answer.experiments);
        if answer.next_page_token.is_empty() {
            return Ok(all);
        }
        request.page_token = answer.next_page_token;
    }
}

/// One line per experiment.
pub(crate) fn list(experiments: &[SummaryView], columns: Option<usize>) -> String {
    if experiments.is_empty() {
        return "there are no experiments\n".to_owned();
    }
    let mut table = Table::new([
        ("experiment", Side::Left),
        ("state", Side::Right),
        ("revision", Side::Right),
        ("arms", Side::Right),
        ("epsilon", Side::Right),
        ("mechanism", Side::Right),
        ("learner", Side::Right),
        ("reports", Side::Right),
        ("alarms", Side::Left),
        ("owner", Side::Left),
        ("title", Side::Left),
    ]);
    for view in experiments {
        table.push([
            view.experiment_id.clone(),
            if view.archived { "archived" } else { view.state }.to_owned(),
            view.revision.to_string(),
            view.arms_in_play.to_string(),
            view.epsilon.to_string(),
            view.mechanism.to_owned(),
            view.learner.to_owned(),
            view.reports.to_string(),
            alarm_view::names(&view.alarms),
            visible(&view.owner),
            visible(&view.title),
        ]);
    }
    table.render(columns)
}
