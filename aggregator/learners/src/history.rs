//! The history of an experiment: the tallies of its cells by day and revision.
//!
//! Verdicts compare arms among users of the same segment, day and revision. The traffic of arms
//! differs between these groups, and so do the users.

use std::collections::BTreeMap;
use std::sync::Arc;

use bandana_shared::alphabet::{Alphabet, Symbol};
use bandana_shared::cells::{Cell, Cells};
use bandana_shared::confidence::{Count, Strata};
use bandana_shared::identity::{ArmIndex, CellIndex, Day, Revision};
use bandana_shared::tally::Tally;

use super::window::Days;

/// The tallies of the cells, by day and by the revision that the uploads named. The revision is
/// `None` for reports of a store that did not keep it yet.
///
/// A clone shares the tallies until one of the two is changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History(BTreeMap<(Day, Option<Revision>), Arc<CellTallies>>);

/// The tallies of cells, in less space than a [`Tally`] each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct CellTallies {
    /// For each cell the reports, and those that say 1.
    bits: Vec<(u64, u64)>,
    /// By cell, the reports that say a symbol beyond 1.
    beyond: BTreeMap<CellIndex, Vec<(Symbol, u64)>>,
}

impl CellTallies {
    fn tally(&self, cell: CellIndex) -> Tally {
        let (reports, ones) = self.bits.get(cell.get()).copied().unwrap_or_default();
        let beyond = self.beyond.get(&cell).into_iter().flatten().copied();
        let counts = std::iter::once((Symbol::from(true), ones)).chain(beyond);
        Tally::with_symbols(reports, counts).unwrap_or_default()
    }

    fn add(&mut self, cell: CellIndex, more: Tally) {
        self.set(cell, [self.tally(cell), more].into_iter().sum());
    }

    fn set(&mut self, cell: CellIndex, tally: Tally) {
        let place = cell.get();
        if self.bits.len() <= place {
            self.bits.resize(place + 1, (0, 0));
        }
        self.bits[place] = (tally.reports(), tally.ones());
        let beyond: Vec<(Symbol, u64)> = tally.beyond_bits().collect();
        if beyond.is_empty() {
            self.beyond.remove(&cell);
        } else {
            self.beyond.insert(cell, beyond);
        }
    }
}

impl History {
    /// Adds reports on a cell.
    pub fn add(&mut self, day: Day, revision: Option<Revision>, cell: CellIndex, tally: Tally) {
        Arc::make_mut(self.0.entry((day, revision)).or_default()).add(cell, tally);
    }

    /// Replaces the reports on a cell by those of another history.
    pub(super) fn replace(&mut self, cell: CellIndex, other: &Self) {
        for (key, own) in &mut self.0 {
            if !other.0.contains_key(key) && own.tally(cell) != Tally::EMPTY {
                Arc::make_mut(own).set(cell, Tally::EMPTY);
            }
        }
        for (key, tallies) in &other.0 {
            let next = tallies.tally(cell);
            let own = self.0.entry(*key).or_default();
            if own.tally(cell) != next {
                Arc::make_mut(own).set(cell, next);
            }
        }
    }

    /// Adds all reports of another history.
    pub fn extend(&mut self, other: &Self) {
        for (key, tallies) in &other.0 {
            match self.0.entry(*key) {
                std::collections::btree_map::Entry::Vacant(place) => {
                    place.insert(Arc::clone(tallies));
                }
                std::collections::btree_map::Entry::Occupied(mut place) => {
                    let sum = Arc::make_mut(place.get_mut());
                    for cell in (0..tallies.bits.len()).filter_map(|cell| CellIndex::new(cell).ok())
                    {
                        sum.add(cell, tallies.tally(cell));
                    }
                }
            }
        }
    }

    /// The tallies of every cell by day.
    pub(super) fn days(&self) -> Days {
        let mut days = Days::new();
        for ((day, _), tallies) in &self.0 {
            let sums = days.entry(*day).or_default();
            sums.resize(sums.len().max(tallies.bits.len()), Tally::EMPTY);
            for cell in (0..tallies.bits.len()).filter_map(|cell| CellIndex::new(cell).ok()) {
                sums[cell.get()] += tallies.tally(cell);
            }
        }
        days
    }

    /// Whether there are no reports.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The strata of the users who report the metric with this number, where 0 stands for the
    /// rewards. There is one stratum for each day, revision and segment for which `is_in` holds.
    pub fn strata(
        &self,
        (cells, alphabet): (Cells, Alphabet),
        metric: usize,
        is_in: impl Fn(usize) -> bool,
    ) -> Strata {
        let segments: Vec<usize> = (0..cells.segments()).filter(|one| is_in(*one)).collect();
        self.strata_of(alphabet, &segments, |segment| {
            let arm = |arm: usize| {
                let cell = |is_held_out| cell(cells, arm, (segment, is_held_out), metric);
                let own = cell(false);
                own.into_iter().chain(cells.has_holdout().then(|| cell(true)).flatten()).collect()
            };
            (0..cells.arms()).map(arm).collect()
        })
    }

    /// The strata of the users who report their rewards, with two arms: users who are not held out,
    /// and users who are.
    pub fn strata_of_groups(&self, cells: Cells, alphabet: Alphabet) -> Strata {
        let segments: Vec<usize> = (0..cells.segments()).collect();
        self.strata_of(alphabet, &segments, |segment| {
            let group = |is_held_out| {
                let arm = |arm| cell(cells, arm, (segment, is_held_out), 0);
                (0..cells.arms()).filter_map(arm).collect()
            };
            vec![group(false), group(true)]
        })
    }

    /// The strata with counts of sums of cells; `cells` are those of each arm in a segment.
    fn strata_of(
        &self,
        alphabet: Alphabet,
        segments: &[usize],
        cells: impl Fn(usize) -> Vec<Vec<CellIndex>>,
    ) -> Strata {
        let cells: Vec<Vec<Vec<CellIndex>>> = segments.iter().map(|one| cells(*one)).collect();
        let strata = self.0.iter().flat_map(|((_, revision), tallies)| {
            let era = revision.map_or(0, Revision::get);
            let count = |cells: &Vec<CellIndex>| {
                let mut sum = Count::default();
                for cell in cells {
                    sum += Count::of(&tallies.tally(*cell), alphabet);
                }
                sum
            };
            cells.iter().map(move |arms| (era, arms.iter().map(count).collect()))
        });
        Strata::new(strata)
    }
}

fn cell(
    cells: Cells,
    arm: usize,
    (segment, is_held_out): (usize, bool),
    metric: usize,
) -> Option<CellIndex> {
    let arm = ArmIndex::new(arm).ok()?;
    Some(cells.index(Cell { segment, is_held_out, metric, ..Cell::of(arm) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_survive_and_sums_are_those_of_tallies() {
        let of = |number| Symbol::new(number).unwrap();
        let tally = Tally::with_symbols(9, [(of(1), 2), (of(3), 4)]).unwrap();
        let (day, cell) = (Day::new(3), CellIndex::new(5).unwrap());
        let mut history = History::default();
        history.add(day, None, cell, tally);
        let mut other = history.clone();
        other.add(day, None, cell, tally);
        assert_eq!(history.0[&(day, None)].tally(cell), tally, "a clone is of its own");
        history.extend(&other);
        let thrice: Tally = [tally; 3].into_iter().sum();
        assert_eq!(history.0[&(day, None)].tally(cell), thrice);
    }
}
