//! The durable state of a client, and the changes to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bandana_shared::identity::{ArmIndex, CellIndex, Day, Digest, ExperimentId, StoreId};
use bandana_shared::policy::Policy;
use bandana_shared::signing::Signature;
use bandana_shared::specification::Specification;

use super::own_reports::OwnReports;
use crate::assignment::{AssignmentId, OpenAssignment};
use crate::debit::Debit;
use crate::ledger::{Dropped, Ledger};
use crate::membership::{Secret, pseudonym};
use crate::outbox::{Attempts, Outbox, PendingReport, Sealed};
use crate::privatizer::PrivateReport;
use crate::time::Timestamp;

/// The part of a client that survives a restart.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) ledger: Ledger,
    pub(crate) last_assignment: u64,
    /// The last specification and policy received for each experiment.
    pub(crate) cached: BTreeMap<ExperimentId, CachedExperiment>,
    pub(crate) open: BTreeMap<AssignmentId, OpenAssignment>,
    pub(crate) outbox: Outbox,
    /// For each experiment, the number of its open assignments and unsent reports.
    pub(crate) reports: BTreeMap<ExperimentId, usize>,
    /// The server's day, or the device's if that was later, of the last draw that reports, for each
    /// experiment.
    pub(crate) last_draws: BTreeMap<ExperimentId, Day>,
    /// The arm that the installation keeps, for each experiment in which it keeps one.
    pub(crate) kept: BTreeMap<ExperimentId, ArmIndex>,
    /// None: no experiment was only for a part of the installations yet.
    pub(crate) secret: Option<Secret>,
    /// The shuffled reports of each specification and cell.
    pub(crate) own_reports: OwnReports,
    /// What was dropped while it may have been under way: lost at a restart, as calls are.
    pub(crate) dropped: Dropped,
    /// Whether the user has opted out: then only what [`Self::opt_out`] keeps is left.
    pub(crate) opted_out: bool,
}

/// The specification and policy of an experiment, as received from a server.
#[derive(Clone, Debug)]
pub(crate) struct CachedExperiment {
    pub(crate) specification: Arc<Specification>,
    pub(crate) signatures: Vec<Signature>,
    pub(crate) policy: Policy,
    pub(crate) heard_at: Timestamp,
    /// The store that the specification came from; `None`: the server did not name it.
    pub(crate) store: Option<StoreId>,
}

/// The number of the period of `days` days that contains `day`, counted from 1970-01-01. If `days` is
/// 0, the only period never ends.
fn period(days: u32, day: Day) -> u32 {
    day.get().checked_div(days).unwrap_or(0)
}

/// A drawn arm, with all parts of its report except the bit.
#[derive(Clone, Debug)]
pub(crate) struct Draw {
    pub(crate) id: AssignmentId,
    pub(crate) digest: Digest,
    pub(crate) experiment_id: ExperimentId,
    /// Arm, segment and metric.
    pub(crate) cell: CellIndex,
    pub(crate) chosen_at: Timestamp,
    pub(crate) rewards_until: Timestamp,
    pub(crate) release_at: Timestamp,
    pub(crate) price: Debit,
    /// The day that the draw counts on; `None`: one of an app without a limit, by an earlier version.
    pub(crate) day: Option<Day>,
}

/// One change of a state. Live changes and those replayed after a restart go through the same
/// [`State::apply`].
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// A server's answer was adopted.
    Heard {
        held: CachedExperiment,
        /// Whether specification or signatures differ from before.
        #[cfg_attr(not(feature = "storage"), expect(dead_code, reason = "read by a storage"))]
        anew: bool,
    },
    /// An arm was drawn, and its report debited.
    Drawn(Draw),
    /// The rewards of an assignment became a report.
    Privatized { id: AssignmentId, report: PrivateReport },
    /// A server told its day, when so much was settled.
    DayHeard { day: Day, settled: Debit },
    /// A report got its name and the server's day.
    Sealed { id: AssignmentId, sealed: Sealed },
    /// A report needs no further attempt.
    Settled { id: AssignmentId },
    /// The installation got its secret.
    SecretDrawn(Secret),
    /// An arm was drawn that does not report, and is kept.
    Kept { experiment_id: ExperimentId, arm: ArmIndex },
}

/// A change that does not follow from the state it is applied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inconsistent;

impl State {
    /// The number of every change that was read from a storage. A killed process may not have
    /// synced what was read, so it is not durable before the first write.
    #[cfg(feature = "storage")]
    pub(crate) const AS_READ: u64 = 1;

    /// Applies `change`, which has the number `number`.
    ///
    /// # Errors
    /// [`Inconsistent`]; the state is then unchanged.
    pub(crate) fn apply(&mut self, change: &Change, number: u64) -> Result<(), Inconsistent> {
        match change {
            Change::Heard { held, .. } => self.hear(held.clone()),
            Change::DayHeard { day, settled } => self.hear_day(*day, *settled),
            Change::Drawn(draw) => return self.draw(draw),
            Change::Privatized { id, report } => return self.privatize(*id, *report, number),
            Change::Sealed { id, sealed } => {
                let parcel = self.outbox.parcels.get_mut(id).ok_or(Inconsistent)?;
                // Nothing that says so sends a shuffled report to the aggregator itself.
                if !sealed.fits(parcel.batch) {
                    return Err(Inconsistent);
                }
                parcel.sealed = Some(sealed.clone());
                parcel.changed = number;
            }
            Change::Settled { id } => {
                let parcel = self.outbox.parcels.remove(id).ok_or(Inconsistent)?;
                if let Some(reports) = self.reports.get_mut(&parcel.experiment_id) {
                    *reports = reports.saturating_sub(1);
                }
            }
            Change::SecretDrawn(secret) => match &self.secret {
                None => self.secret = Some(secret.clone()),
                Some(_) => return Err(Inconsistent),
            },
            Change::Kept { experiment_id, arm } => {
                let held = self.cached.get(experiment_id).ok_or(Inconsistent)?;
                if arm.get() >= held.specification.arms().len() {
                    return Err(Inconsistent);
                }
                self.kept.insert(experiment_id.clone(), *arm);
            }
        }
        Ok(())
    }

    fn hear(&mut self, held: CachedExperiment) {
        self.cached.insert(held.specification.experiment_id().clone(), held);
    }

    fn draw(&mut self, draw: &Draw) -> Result<(), Inconsistent> {
        let held = self.cached.get(&draw.experiment_id).ok_or(Inconsistent)?;
        let cell = held.specification.cells().cell(draw.cell).ok_or(Inconsistent)?;
        let known = held.specification.digest() == draw.digest;
        // Only a batch makes a report cost less in the central account.
        let is_shuffled = held.specification.batch().is_some();
        let fits = is_shuffled || draw.price == Debit::unshuffled(draw.price.local);
        if !known || !fits || draw.id.get() <= self.last_assignment {
            return Err(Inconsistent);
        }
        self.last_assignment = draw.id.get();
        self.ledger.debit(draw.price);
        self.own_reports.count(draw.digest, draw.cell, draw.price);
        if let Some(day) = draw.day {
            let last = self.last_draws.entry(draw.experiment_id.clone()).or_insert(day);
            *last = day.max(*last);
        }
        let specification = Arc::clone(&held.specification);
        if specification.participation().sticky.is_some() {
            self.kept.insert(draw.experiment_id.clone(), cell.arm);
        }
        let (until, release) = (draw.rewards_until, draw.release_at);
        let open = OpenAssignment::new(specification, draw.cell, until, release);
        let open = open.of_store(held.store).at_price(draw.price);
        self.open.insert(draw.id, open);
        *self.reports.entry(draw.experiment_id.clone()).or_default() += 1;
        Ok(())
    }

    fn privatize(
        &mut self,
        id: AssignmentId,
        report: PrivateReport,
        number: u64,
    ) -> Result<(), Inconsistent> {
        let open = self.open.remove(&id).ok_or(Inconsistent)?;
        let parcel = PendingReport {
            experiment_id: open.specification.experiment_id().clone(),
            digest: open.specification.digest(),
            cell: open.cell,
            report,
            price: open.price,
            batch: open.specification.batch(),
            release_at: open.release_at,
            reach: open.reach(),
            store: open.store,
            sealed: None,
            changed: number,
            attempts: Attempts::default(),
        };
        self.outbox.parcels.insert(id, parcel);
        Ok(())
    }

    /// Whether the installation has drawn a report of an experiment in the period of `days` days that
    /// contains `day`, or in a later one.
    pub(super) fn has_drawn(&self, experiment_id: &ExperimentId, days: u32, day: Day) -> bool {
        let last = self.last_draws.get(experiment_id);
        let before_opt_out = self.last_draws.get(&pseudonym(experiment_id));
        last.max(before_opt_out).is_some_and(|last| period(days, *last) >= period(days, day))
    }

    /// The server's day as last accepted; the first day of all before that.
    pub(crate) fn day(&self) -> Day {
        self.ledger.today().unwrap_or(Day::new(0))
    }

    /// The debits of reports that are settled, and have no day yet.
    pub(crate) fn settled(&self) -> Debit {
        let open = self.open.values().map(|open| open.price);
        let prices = open.chain(self.outbox.parcels.values().map(|parcel| parcel.price));
        let unsettled = prices.fold(self.dropped.debits(), Debit::saturating_add);
        self.ledger.undated().saturating_sub(unsettled)
    }

    /// Accepts the server's day, for the debits that were settled when it was asked for.
    pub(crate) fn hear_day(&mut self, day: Day, settled: Debit) {
        self.ledger.hear(day, settled.min(self.settled()));
        // A day that was a lie counts as this one.
        let today = self.day();
        for day in self.last_draws.values_mut() {
            *day = today.min(*day);
        }
    }

    /// Forgets everything but the spent budget, the assignments' count, and what keeps the user from
    /// paying anew after opting in again: pseudonyms of the experiments that were reported, numbers of
    /// shuffled reports, and the secret.
    pub(crate) fn opt_out(&mut self) {
        *self = Self {
            ledger: std::mem::take(&mut self.ledger),
            last_assignment: self.last_assignment,
            last_draws: std::mem::take(&mut self.last_draws)
                .into_iter()
                .map(|(id, day)| (pseudonym(&id), day))
                .collect(),
            secret: self.secret.take(),
            own_reports: std::mem::take(&mut self.own_reports),
            dropped: self.dropped,
            opted_out: true,
            ..Self::default()
        };
    }
}
