//! Judging what a server offers by what an app accepts.

use std::time::Duration;

use bandana_shared::cells::Measurement;
use bandana_shared::rewards::Rewards;
use bandana_shared::signing::Signature;
use bandana_shared::specification::{ReleaseTiming, Specification};

use super::Acceptance;
use crate::debit::Debit;
use crate::refusal::Refusal;
use crate::shuffled::Certified;
use crate::time::Timestamp;

/// What an app has accepted of a specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// The time until which the signatures are valid.
    pub(crate) until: Timestamp,
    /// The price of a report.
    pub(crate) price: Debit,
}

impl Acceptance {
    /// Judges a specification and its signatures against the specification that the client holds.
    /// `simulated` says whether the client's noise is simulated. `known` is the last batch whose loss
    /// was computed.
    pub(crate) fn judge(
        &self,
        (offered, signatures): (&Specification, &[Signature]),
        held: Option<&Specification>,
        known: &mut Option<Certified>,
        simulated: bool,
        now: Timestamp,
    ) -> Result<Accepted, Refusal> {
        if offered.is_simulation() != simulated {
            return Err(Refusal::SimulationMark { experiment: offered.is_simulation() });
        }
        if offered.epsilon() > self.epsilon_max {
            return Err(Refusal::Epsilon {
                offered: offered.epsilon().get(),
                accepted: self.epsilon_max.get(),
            });
        }
        if offered.rewards().range() != self.rewards.range() {
            return Err(Refusal::Range);
        }
        if offered.rewards().kind() != self.rewards.kind() {
            return Err(Refusal::Kind { accepted: self.rewards.kind() });
        }
        if self.digests.as_ref().is_some_and(|known| !known.contains(&offered.digest())) {
            return Err(Refusal::Digest(offered.digest()));
        }
        self.judge_measurement(offered.measurement())?;
        match (offered.batch(), &self.shuffled) {
            (Some(batch), None) => return Err(Refusal::NoRelay { batch: batch.get() }),
            (None, Some(_)) => return Err(Refusal::NotShuffled),
            _ => {}
        }
        // A simulated user has no time to hide.
        if !simulated {
            self.judge_timing(offered.timing())?;
        }
        if let Some(held) = held {
            judge_change(offered, held)?;
        }
        let until = match &self.signers {
            Some(signers) => signers.judge(offered, signatures, now)?,
            None => Timestamp::MAX,
        };
        // The last of all: it is the only one that takes long.
        Ok(Accepted { until, price: self.judge_batch(offered, known)? })
    }

    /// The price of a report, if the app accepts its central loss.
    fn judge_batch(
        &self,
        offered: &Specification,
        known: &mut Option<Certified>,
    ) -> Result<Debit, Refusal> {
        let (Some(batch), Some(terms)) = (offered.batch(), &self.shuffled) else {
            return Ok(Debit::unshuffled(offered.price()));
        };
        let (central, accepted) = (terms.certify(offered, batch, known), terms.epsilon_max());
        if central > accepted {
            let (offered, accepted) = (central.get(), accepted.get());
            return Err(Refusal::CentralEpsilon { offered, accepted });
        }
        Ok(terms.price(offered, central))
    }

    fn judge_measurement(&self, offered: &Measurement) -> Result<(), Refusal> {
        for segmentation in offered.segmentations.all() {
            let name = segmentation.name();
            if !self.segments.iter().any(|(known, _)| known == name) {
                return Err(Refusal::Segmentation { name: name.to_owned() });
            }
        }
        for metric in &offered.metrics {
            let (name, values) = (metric.name(), metric.values());
            let is_declared =
                |known: &(String, Rewards)| known.0 == name && known.1.has_values_of(values);
            if !self.metrics.iter().any(is_declared) {
                return Err(Refusal::Metric { name: name.to_owned() });
            }
        }
        if let Some(context) = &offered.context
            && context.names() != self.features
        {
            return Err(Refusal::PrivateContext { features: context.names() });
        }
        Ok(())
    }

    fn judge_timing(&self, offered: ReleaseTiming) -> Result<(), Refusal> {
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        let window = seconds(offered.attribution_window_seconds);
        let delay = seconds(offered.release_delay_seconds_max);
        if window < self.least_attribution_window {
            let accepted = self.least_attribution_window;
            return Err(Refusal::AttributionWindow { offered: window, accepted });
        }
        if delay < self.least_release_delay {
            let accepted = self.least_release_delay;
            return Err(Refusal::ReleaseDelay { offered: delay, accepted });
        }
        Ok(())
    }
}

/// Refuses a change that no revision may make. A later revision may append and retire arms, change
/// the share that is enrolled, and nothing else; within one revision nothing may change.
fn judge_change(offered: &Specification, held: &Specification) -> Result<(), Refusal> {
    if offered.digest() == held.digest() {
        return Ok(());
    }
    if offered.revision() <= held.revision() {
        return Err(Refusal::Revision {
            offered: offered.revision().get(),
            held: held.revision().get(),
        });
    }
    let mut expected = held.to_parts();
    let offered_parts = offered.to_parts();
    expected.revision = offered_parts.revision;
    let old_arms = std::mem::take(&mut expected.arms);
    expected.arms.clone_from(&offered_parts.arms);
    expected.participation.enrolment = offered_parts.participation.enrolment;
    let kept = old_arms.len() <= offered_parts.arms.len()
        && old_arms.iter().zip(&offered_parts.arms).all(|(old, new)| {
            old.label() == new.label() && (new.is_retired() || !old.is_retired())
        });
    if kept && expected == offered_parts { Ok(()) } else { Err(Refusal::Changed) }
}
