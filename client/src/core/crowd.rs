//! Notices that one installation draws arms for many visitors.

use std::time::Duration;

use crate::assignment::Unreported;
use crate::time::Timestamp;

/// Arms in an hour without a report, since those before have used up what one user has. Nobody is shown an
/// arm every seven seconds for an hour.
const UNPAID_MAX: u32 = 500;

const HOUR: Duration = Duration::from_hours(1);

/// Draws within an hour that a budget of one user does not pay for.
///
/// # Privacy
/// It counts what the app draws, whatever the rewards, and stays on the device.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    since: Option<Timestamp>,
    unpaid: u32,
}

impl Crowd {
    /// Notes an arm that was drawn.
    pub(super) fn drawn(&mut self, unreported: Option<Unreported>, now: Timestamp) {
        let Some(
            Unreported::WindowSpent
            | Unreported::LifetimeSpent
            | Unreported::CentralWindowSpent
            | Unreported::CentralLifetimeSpent
            | Unreported::OutboxFull
            | Unreported::ReportedOnce,
        ) = unreported
        else {
            return;
        };
        // A clock that was set back begins another hour.
        if self.since.is_none_or(|since| now < since || now.since(since) >= HOUR) {
            *self = Self { since: Some(now), unpaid: 0 };
        }
        self.unpaid = self.unpaid.saturating_add(1);
    }

    /// Whether the arms of the last hour were those of many visitors.
    pub(super) fn is_there(&self) -> bool {
        self.unpaid >= UNPAID_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGAN: u64 = 1_700_000_000_000;

    fn drawn(crowd: &mut Crowd, unreported: Option<Unreported>, hours: u64, times: u32) {
        let now = Timestamp::from_unix_ms(BEGAN).after(HOUR * u32::try_from(hours).unwrap());
        (0..times).for_each(|_| crowd.drawn(unreported, now));
    }

    #[test]
    fn arms_of_one_hour_that_nobody_pays_for_are_those_of_a_crowd() {
        let mut crowd = Crowd::default();
        let spent = Some(Unreported::WindowSpent);
        drawn(&mut crowd, None, 0, 10 * UNPAID_MAX);
        drawn(&mut crowd, Some(Unreported::StorageUnusable), 0, 10 * UNPAID_MAX);
        drawn(&mut crowd, spent, 1, UNPAID_MAX - 1);
        drawn(&mut crowd, spent, 2, UNPAID_MAX - 1);
        // The clock was set back.
        drawn(&mut crowd, spent, 0, UNPAID_MAX - 1);
        assert!(!crowd.is_there());
        drawn(&mut crowd, Some(Unreported::ReportedOnce), 0, 1);
        assert!(crowd.is_there());
    }
}
