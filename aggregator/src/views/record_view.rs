//! Views of the record of an experiment, as text and as JSON.

use bandana_shared::wire::v1::{Decision, ExperimentRecord};
use serde::Serialize;

use super::table::visible;

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
        let ExperimentRecord { title, hypothesis, owner, tags, links, decision, control_arm } =
            record;
        let decision = decision.map(|Decision { decision, reason, arm }| DecisionView {
            decision,
            reason,
            arm,
        });
        let control_arm = control_arm.unwrap_or(0);
        Self { title, hypothesis, owner, tags, links, decision, control_arm }
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
        rows
    }
}

/// A text that may have several lines, on one.
fn lines(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    visible(&lines.collect::<Vec<_>>().join(" / "))
}
