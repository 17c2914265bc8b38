//! Views of the record of an experiment, as text and as JSON.

use bandana_shared::wire::v1::{
    ArmCost, ArmPrior, Decision, ExperimentRecord, HarmAction, HarmPause,
};
use serde::Serialize;

use super::table::visible;

/// Harm pauses the experiment.
const PAUSE: &str = "pause";

/// Stable JSON form of a record.
#[derive(Debug, Default, Serialize)]
pub(crate) struct RecordView {
    title: String,
    hypothesis: String,
    owner: String,
    tags: Vec<String>,
    links: Vec<String>,
    decision: Option<DecisionView>,
    control_arm: u32,
    on_harm: &'static str,
    harm_pauses: Vec<HarmPauseView>,
    priors: Vec<PriorView>,
    prior_discount: f64,
    arm_costs: Vec<CostView>,
}

/// Stable JSON form of what was known of an arm.
#[derive(Debug, Serialize)]
struct PriorView {
    arm: u32,
    mean: f64,
    worth: f64,
}

/// Stable JSON form of what an arm costs.
#[derive(Debug, Serialize)]
struct CostView {
    arm: u32,
    cost: f64,
}

/// Stable JSON form of a pause by a guardrail.
#[derive(Debug, Serialize)]
struct HarmPauseView {
    arm: u32,
    metric: String,
    unix_seconds: u64,
    acknowledged: bool,
}

/// Stable JSON form of a decision.
#[derive(Debug, Serialize)]
struct DecisionView {
    decision: String,
    reason: String,
    arm: Option<u32>,
}

impl From<ExperimentRecord> for RecordView {
    fn from(record: ExperimentRecord) -> Self {
        let on_harm = match record.on_harm() {
            HarmAction::Pause => PAUSE,
            HarmAction::StopArm | HarmAction::Unspecified => "stop-arm",
        };
        let ExperimentRecord { title, hypothesis, owner, tags, links, decision, .. } = record;
        let decision = decision.map(|Decision { decision, reason, arm }| DecisionView {
            decision,
            reason,
            arm,
        });
        let control_arm = record.control_arm.unwrap_or(0);
        let pause = |HarmPause { arm, metric, unix_seconds, acknowledged }| HarmPauseView {
            arm,
            metric,
            unix_seconds,
            acknowledged,
        };
        let harm_pauses = record.harm_pauses.into_iter().map(pause).collect();
        let prior = |ArmPrior { arm, mean, worth }| PriorView { arm, mean, worth };
        let cost = |ArmCost { arm, cost }| CostView { arm, cost };
        Self {
            title,
            hypothesis,
            owner,
            tags,
            links,
            decision,
            control_arm,
            on_harm,
            harm_pauses,
            priors: record.priors.into_iter().map(prior).collect(),
            prior_discount: record.prior_discount,
            arm_costs: record.arm_costs.into_iter().map(cost).collect(),
        }
    }
}

impl RecordView {
    /// What is written, one row for each part of it. `label` names an arm.
    pub(super) fn rows(&self, label: impl Fn(u32) -> String) -> Vec<(&'static str, String)> {
        let mut rows = Vec::new();
        let mut row = |name, text: String| {
            if !text.is_empty() {
                rows.push((name, text));
            }
        };
        row("title", visible(&self.title));
        row("hypothesis", lines(&self.hypothesis));
        row("owner", visible(&self.owner));
        row("tags", visible(&self.tags.join(", ")));
        row("links", self.links.iter().map(|link| visible(link)).collect::<Vec<_>>().join(" "));
        if let Some(DecisionView { decision, reason, arm }) = &self.decision {
            let arm = arm.map_or_else(String::new, |arm| format!(", for {}", label(arm)));
            row("decision", format!("{}{arm}", visible(decision)));
            row("because", lines(reason));
        }
        if self.control_arm != 0 {
            row("control", label(self.control_arm));
        }
        if self.on_harm == PAUSE {
            row("on harm", "the experiment is paused".to_owned());
        }
        for PriorView { arm, mean, worth } in &self.priors {
            let counted = worth * self.prior_discount;
            row(
                "prior",
                format!(
                    "{}: a mean of {mean} before the experiment, by which the learner began; it counts \
                     as {counted} reports there, and in no estimate or verdict",
                    label(*arm)
                ),
            );
        }
        for CostView { arm, cost } in &self.arm_costs {
            row("cost", format!("a choice of {} costs {cost}", label(*arm)));
        }
        for pause in &self.harm_pauses {
            let again = if pause.acknowledged {
                "resumed; the same does not pause it again"
            } else {
                "paused"
            };
            let (arm, metric) = (label(pause.arm), &pause.metric);
            row("harm", format!("{arm} was beyond the limit of {metric}: {again}"));
        }
        rows
    }
}

/// A text that may have several lines, on one.
fn lines(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    visible(&lines.collect::<Vec<_>>().join(" / "))
}
