//! Overlapping layers: another experiment that has not ended can be given to the same installations.
//!
//! It follows from the stored experiments, so it is never false, and every replica has it. A store takes
//! no such experiment; replicas of earlier versions could add two at the same time.

use super::{Alarm, AlarmName};

/// The alarm of an experiment that overlaps with these others, if it rings.
pub(crate) fn alarm(others: &[String]) -> Option<Alarm> {
    (!others.is_empty()).then(|| Alarm {
        name: AlarmName::LayerOverlap,
        message: format!(
            "an installation can get this experiment and also {}, although their layer should keep \
             them apart. Stop one of them",
            others.join(", ")
        ),
        age: None,
        threshold: 1.0,
        seen: others.len() as f64,
    })
}
