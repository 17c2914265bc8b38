//! The committed tallies of an experiment, as learners and verdicts see them.

use bandana_shared::confidence::{Count, Strata};
use bandana_shared::identity::{CellIndex, Day, Revision};
use bandana_shared::specification::Specification;
use bandana_shared::tally::Tally;

use super::history::History;
use super::window::{Days, Memory};

/// The committed tallies of an experiment.
#[derive(Clone, Debug, Default)]
pub struct TallySnapshot {
    /// Tallies of every cell, over all days.
    pub tallies: Vec<Tally>,
    /// Tallies by day, for the days within the memory, as [`Memory::prune`] leaves them.
    pub days: Days,
    /// Tallies by day and revision. If it is empty, all users of a segment are one stratum.
    pub history: History,
}

impl TallySnapshot {
    /// Number of reports of all cells.
    pub fn reports(&self) -> u64 {
        self.tallies.iter().copied().sum::<Tally>().reports()
    }

    /// The strata of the users who report the metric with this number, where 0 stands for the
    /// rewards, in the segments for which `is_in` holds.
    pub fn strata(
        &self,
        specification: &Specification,
        metric: usize,
        is_in: impl Fn(usize) -> bool,
    ) -> Strata {
        let (cells, alphabet) = (specification.cells(), specification.channel().alphabet());
        if !self.history.is_empty() {
            return self.history.strata((cells, alphabet), metric, is_in);
        }
        let of_segment = |segment: usize| {
            let arms = cells.of_arms(&self.tallies, metric, Some(segment));
            (0, arms.iter().map(|tally| Count::of(tally, alphabet)).collect())
        };
        Strata::new((0..cells.segments()).filter(|one| is_in(*one)).map(of_segment))
    }

    /// The strata of the users who report their rewards, with two arms: users who are not held out,
    /// and users who are.
    pub fn strata_of_groups(&self, specification: &Specification) -> Strata {
        let (cells, alphabet) = (specification.cells(), specification.channel().alphabet());
        if !self.history.is_empty() {
            return self.history.strata_of_groups(cells, alphabet);
        }
        let of_group =
            |is_held_out| -> Tally { cells.of_group(&self.tallies, is_held_out).into_iter().sum() };
        Strata::of_tallies(&[of_group(false), of_group(true)], alphabet)
    }

    /// Takes over cells of a newer snapshot: those for whose number of new reports `is_enough`
    /// holds, and those that have lost reports.
    pub fn advance(&mut self, newer: &Self, is_enough: impl Fn(u64) -> bool) {
        self.tallies.resize(newer.tallies.len(), Tally::EMPTY);
        self.days.retain(|day, _| newer.days.contains_key(day));
        for (cell, (own, next)) in self.tallies.iter_mut().zip(&newer.tallies).enumerate() {
            if next.reports() >= own.reports() && !is_enough(next.reports() - own.reports()) {
                continue;
            }
            *own = *next;
            if let Ok(index) = CellIndex::new(cell) {
                self.history.replace(index, &newer.history);
            }
            for (day, tallies) in &newer.days {
                let of_day = tallies.get(cell).copied().unwrap_or(Tally::EMPTY);
                let own = self.days.entry(*day).or_default();
                if own.len() <= cell {
                    own.resize(cell + 1, Tally::EMPTY);
                }
                own[cell] = of_day;
            }
        }
    }

    /// Takes the tallies by day that this memory needs from the history.
    pub fn remember(&mut self, memory: Memory) {
        self.days = self.history.days();
        memory.prune(&mut self.days);
    }

    /// Adds all reports of another snapshot, except its days.
    pub fn extend(&mut self, other: &Self) {
        let cells = self.tallies.len().max(other.tallies.len());
        self.tallies.resize(cells, Tally::EMPTY);
        for (sum, tally) in self.tallies.iter_mut().zip(&other.tallies) {
            *sum += *tally;
        }
        self.history.extend(&other.history);
    }

    /// Adds a tally of a cell on a day and in a revision, and drops days beyond the memory.
    pub fn add(
        &mut self,
        memory: Memory,
        (day, revision, cell, tally): (Day, Option<Revision>, CellIndex, Tally),
    ) {
        add_to(&mut self.tallies, cell, tally);
        self.history.add(day, revision, cell, tally);
        let is_new = !self.days.contains_key(&day);
        add_to(self.days.entry(day).or_default(), cell, tally);
        if is_new {
            memory.prune(&mut self.days);
        }
    }
}

fn add_to(tallies: &mut Vec<Tally>, cell: CellIndex, tally: Tally) {
    if tallies.len() <= cell.get() {
        tallies.resize(cell.get() + 1, Tally::EMPTY);
    }
    tallies[cell.get()] += tally;
}
