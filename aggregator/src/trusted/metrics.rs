//! Metrics of experiments whose users disclose their rewards: counts only, no rewards.

use bandana_shared::wire::v1::DisclosureStatus;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::DisclosureVerdict;

/// Counts outcomes of disclosures. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TrustedMetrics {
    /// Indexed by the number of the status less 1: number 0 is never sent.
    outcomes: Vec<Counter>,
    turned_away: Counter,
    releases: Counter,
    commits: Counter,
    collisions: Counter,
    handed_over: Counter,
}

/// The statuses that are sent, ordered by number.
fn statuses() -> impl Iterator<Item = DisclosureStatus> {
    (1..).map_while(|number| DisclosureStatus::try_from(number).ok())
}

/// The label of a status, such as "counted".
fn label(status: DisclosureStatus) -> String {
    status.as_str_name().trim_start_matches("DISCLOSURE_STATUS_").to_lowercase()
}

impl TrustedMetrics {
    pub(crate) fn new() -> Self {
        Self {
            outcomes: statuses().map(|_| Counter::default()).collect(),
            turned_away: Counter::default(),
            releases: Counter::default(),
            commits: Counter::default(),
            collisions: Counter::default(),
            handed_over: Counter::default(),
        }
    }

    pub(crate) fn registered(registry: &mut Registry) -> Self {
        let outcomes: Family<[(&str, String); 1], Counter> = Family::default();
        let of = |status| outcomes.get_or_create_owned(&[("outcome", label(status))]);
        let this = Self { outcomes: statuses().map(of).collect(), ..Self::new() };
        let disclosures = "Disclosures to trusted experiments that were answered, by their status";
        registry.register("disclosures", disclosures, outcomes);
        registry.register(
            "disclosures_turned_away",
            "Disclosures that were told to come again, because of the server",
            this.turned_away.clone(),
        );
        let releases = "Statistics of trusted experiments that this server has released";
        registry.register("trusted_releases", releases, this.releases.clone());
        let commits = "Groups of disclosures that this server has committed";
        registry.register("trusted_commits", commits, this.commits.clone());
        let collisions = "Groups of disclosures that were decided about anew, because another \
            replica had changed the experiment";
        registry.register("trusted_collisions", collisions, this.collisions.clone());
        let handed_over = "Disclosures that this server has handed over to another replica";
        registry.register("disclosures_handed_over", handed_over, this.handed_over.clone());
        this
    }

    /// Counts a verdict on a disclosure.
    pub(crate) fn decided(&self, verdict: &DisclosureVerdict) {
        match status_of(verdict) {
            Some(status) => self.refused(status),
            None => drop(self.turned_away.inc()),
        }
    }

    /// Counts a disclosure with this status.
    pub(crate) fn refused(&self, status: DisclosureStatus) {
        let place = usize::try_from(i32::from(status)).unwrap_or_default().saturating_sub(1);
        self.outcomes[place].inc();
    }

    /// Counts a disclosure without a verdict.
    pub(crate) fn turned_away(&self) {
        self.turned_away.inc();
    }

    /// Counts a disclosure that exceeded the rate limit.
    pub(crate) fn over_rate(&self) {
        self.turned_away.inc();
    }

    /// Counts a committed group.
    pub(crate) fn committed(&self) {
        self.commits.inc();
    }

    /// Counts a collision: another replica changed the experiment first.
    pub(crate) fn collided(&self) {
        self.collisions.inc();
    }

    /// Counts disclosures handed over to another replica.
    pub(crate) fn handed_over(&self, disclosures: usize) {
        self.handed_over.inc_by(disclosures as u64);
    }

    /// Counts a release.
    pub(crate) fn released(&self) {
        self.releases.inc();
    }
}

/// The status that represents a verdict, if there is one.
pub(crate) fn status_of(verdict: &DisclosureVerdict) -> Option<DisclosureStatus> {
    Some(match verdict {
        DisclosureVerdict::Counted => DisclosureStatus::Counted,
        DisclosureVerdict::Duplicate => DisclosureStatus::Duplicate,
        DisclosureVerdict::Malformed(_) => DisclosureStatus::Malformed,
        DisclosureVerdict::Expired { .. } => DisclosureStatus::Expired,
        DisclosureVerdict::FutureDay { .. } => DisclosureStatus::FutureDay,
        DisclosureVerdict::Paused => DisclosureStatus::Paused,
        DisclosureVerdict::Stopped | DisclosureVerdict::Full(_) | DisclosureVerdict::Halted(_) => {
            DisclosureStatus::Stopped
        }
        DisclosureVerdict::ClockBehind | DisclosureVerdict::Gone => return None,
    })
}
