//! An entry of a study: a learner on a channel.

use std::fmt;

use bandana_shared::curve::Mechanism;

use crate::learner::{Contestant, Privacy};

/// A learner on a channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'s> {
    pub(super) contestant: &'s dyn Contestant,
    pub(super) privacy: Privacy,
}

impl Entry<'_> {
    pub(super) fn mechanism_name(self) -> String {
        match (self.contestant.own_channel(), self.privacy.mechanism) {
            (Some(own), _) => own.to_owned(),
            (None, Mechanism::Kary(alphabet)) => format!("k-level, {} levels", alphabet.len()),
            (None, mechanism) => mechanism.name().to_owned(),
        }
    }

    pub(super) fn epsilon(self) -> Option<f64> {
        (!self.contestant.is_nonprivate()).then_some(self.privacy.epsilon.get())
    }
}

impl fmt::Display for Entry<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}, {}", self.contestant.name(), self.mechanism_name())?;
        self.epsilon().map_or(Ok(()), |epsilon| write!(formatter, ", {epsilon}"))
    }
}
