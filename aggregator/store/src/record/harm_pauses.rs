//! Harm in the record of an experiment: what it leads to, and what it has led to.
//!
//! A pause for harm and its reason are written in one transaction, so that an arm and a metric pause an
//! experiment once, whichever replica is first and however often servers restart.

use bandana_shared::wire::v1::{ExperimentRecord, HarmAction, HarmPause, SetRecordRequest};

use super::WrittenRecord;

impl WrittenRecord {
    /// Whether an arm that does harm pauses the experiment.
    pub fn pauses_on_harm(&self) -> bool {
        self.message().on_harm() == HarmAction::Pause
    }

    /// The arms and metrics for which the experiment is paused until somebody resumes it.
    pub fn pausing(&self) -> impl Iterator<Item = &HarmPause> {
        self.message().harm_pauses.iter().filter(|pause| !pause.acknowledged)
    }

    /// Whether the experiment was paused for this arm and metric.
    pub fn has_paused_for(&self, arm: u32, metric: &str) -> bool {
        let pauses = &self.message().harm_pauses;
        pauses.iter().any(|pause| pause.arm == arm && pause.metric == metric)
    }

    /// The record with these pauses in addition.
    #[must_use]
    pub fn with_pauses(&self, more: impl IntoIterator<Item = HarmPause>) -> Self {
        let mut record = self.message().clone();
        record.harm_pauses.extend(more);
        Self(record)
    }

    /// The record after somebody has resumed the experiment.
    #[must_use]
    pub fn with_pauses_acknowledged(&self) -> Self {
        let mut record = self.message().clone();
        record.harm_pauses.iter_mut().for_each(|pause| pause.acknowledged = true);
        Self(record)
    }
}

/// Sets what harm leads to. What was acknowledged is forgotten then, so that saying it again has the
/// guardrails watch all arms again.
pub(super) fn set_action(record: &mut ExperimentRecord, request: &SetRecordRequest) {
    if request.on_harm() != HarmAction::Unspecified {
        record.on_harm = request.on_harm;
        record.harm_pauses.retain(|pause| !pause.acknowledged);
    }
}

/// What differs in it, in words.
pub(super) fn difference(now: &ExperimentRecord, before: &ExperimentRecord) -> Option<String> {
    let action = match now.on_harm() {
        HarmAction::Pause => "pause",
        HarmAction::StopArm | HarmAction::Unspecified => "stop-arm",
    };
    let forgets = now.harm_pauses.len() < before.harm_pauses.len();
    let again = if forgets { ", of the arms that it was resumed with too" } else { "" };
    (now.on_harm != before.on_harm || forgets).then(|| format!("on harm {action}{again}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(action: HarmAction) -> SetRecordRequest {
        SetRecordRequest { on_harm: action.into(), ..Default::default() }
    }

    #[test]
    fn what_was_acknowledged_is_watched_again_once_somebody_says_so() {
        let pause = |arm| HarmPause { arm, metric: "returned".into(), ..Default::default() };
        let first = WrittenRecord::default().changed(&request(HarmAction::Pause), 2).unwrap();
        assert!(first.pauses_on_harm() && !first.has_paused_for(1, "returned"));
        assert_eq!(first.differences(&WrittenRecord::default()), "on harm pause");
        let paused = first.with_pauses([pause(1)]);
        assert_eq!(paused.pausing().count(), 1);
        // The pause that is on stays, whatever is written.
        let written = paused.changed(&request(HarmAction::Pause), 2).unwrap();
        assert_eq!(written, paused);
        let resumed = paused.with_pauses_acknowledged();
        assert!(resumed.pausing().count() == 0 && resumed.has_paused_for(1, "returned"));
        assert!(!resumed.has_paused_for(0, "returned") && !resumed.has_paused_for(1, "speed"));
        let title = SetRecordRequest { title: Some("a".into()), ..Default::default() };
        assert!(resumed.changed(&title, 2).unwrap().has_paused_for(1, "returned"));
        let again = resumed.changed(&request(HarmAction::Pause), 2).unwrap();
        assert!(!again.has_paused_for(1, "returned") && again.pauses_on_harm());
        assert!(again.differences(&resumed).contains("of the arms that it was resumed with"));
        let off = first.changed(&request(HarmAction::StopArm), 2).unwrap();
        assert!(!off.pauses_on_harm());
    }
}
