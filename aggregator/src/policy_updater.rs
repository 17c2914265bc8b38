//! Recomputation of policies.
//!
//! A policy is recomputed after 100 new reports or 1% of the reports that it was computed from,
//! whichever is more, and otherwise within a second.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use bandana_edge::clock::Clock;

use crate::ingest::HarmWatch;
use crate::registry::{Experiment, Registry};

/// The longest time until a report is included in a policy.
const POLICY_AGE_MAX: Duration = Duration::from_secs(1);

/// Recomputes the experiments from `due` at once, and all others with new reports once a second. Once a
/// second, too, has `harm` look for arms that do harm. Returns when the sender of `due` is gone.
pub fn run(
    due: &Receiver<Arc<Experiment>>,
    registry: &Registry,
    clock: &dyn Clock,
    mut harm: HarmWatch,
) {
    let mut swept = clock.monotonic();
    loop {
        let age = clock.monotonic().saturating_sub(swept);
        if age >= POLICY_AGE_MAX {
            for experiment in registry.all() {
                experiment.observe(clock.monotonic());
                recompute(&experiment);
            }
            harm.look(registry);
            swept = clock.monotonic();
            continue;
        }
        match due.recv_timeout(POLICY_AGE_MAX.saturating_sub(age)) {
            // One policy covers all requests that came before it.
            Ok(experiment) if experiment.is_due() => recompute(&experiment),
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn recompute(experiment: &Experiment) {
    if let Err(error) = experiment.recompute() {
        tracing::error!(experiment = %experiment.id(), %error, "the policy can't be recomputed");
    }
}
