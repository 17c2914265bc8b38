//! The hypothesis of multiplicative weights over all combinations of values, as a graphical model.
//!
//! An update multiplies the weight of every combination by a factor that depends on its cell in one
//! marginal. So after any number of updates the weight is a product of one factor for each marginal
//! that was learned, and its logarithm is the sum of their potentials: a Markov random field, which
//! a junction tree of these marginals computes exactly (Lauritzen and Spiegelhalter, "Local
//! computations with probabilities on graphical structures", 1988). Nothing is stored for each
//! combination.

use super::tree::{Clique, Columns, junction_tree, projection};

/// The lowest potential of a cell, below the highest one of its clique: keeps every product of
/// messages above zero.
const LOWEST: f64 = -60.0;

/// A marginal that was measured, and the potential that is learned from it.
#[derive(Clone, Debug)]
struct Learned {
    columns: Columns,
    /// The released counts, the mean of all releases weighed by their precision.
    target: Vec<f64>,
    /// One over the variance of each count of the target.
    precision: Vec<f64>,
    potential: Vec<f64>,
    /// The clique that contains it, and the cell for each cell of that clique.
    clique: usize,
    cells: Vec<u32>,
}

/// A clique, with maps between its cells and those of the separator to its parent.
#[derive(Clone, Debug)]
struct Node {
    clique: Clique,
    /// For each cell of the clique, that of the separator.
    of_clique: Vec<u32>,
    /// For each cell of the parent, that of the separator.
    of_parent: Vec<u32>,
    separator_cells: usize,
}

/// A distribution over the combinations of values of some columns, learned from marginals.
#[derive(Clone, Debug)]
pub(super) struct Model {
    rows: f64,
    sizes: Vec<usize>,
    learned: Vec<Learned>,
    nodes: Vec<Node>,
    /// The probability of each cell of each clique.
    beliefs: Vec<Vec<f64>>,
    /// The step of the updates, as the last search has found it.
    step: f64,
}

/// The sums of weights over the cells that are mapped to each place.
fn gathered(weights: &[f64], cells: &[u32], places: usize) -> Vec<f64> {
    let mut sums = vec![0.0; places];
    for (weight, &cell) in weights.iter().zip(cells) {
        if let Some(sum) = sums.get_mut(cell as usize) {
            *sum += weight;
        }
    }
    sums
}

/// Multiplies each weight by the factor that its cell is mapped to.
fn scale(weights: &mut [f64], cells: &[u32], factors: &[f64]) {
    for (weight, &cell) in weights.iter_mut().zip(cells) {
        *weight *= factors.get(cell as usize).copied().unwrap_or(0.0);
    }
}

/// Divides by the sum; uniform if there is none.
fn normalize(weights: &mut [f64]) {
    let total: f64 = weights.iter().sum();
    let even = 1.0 / weights.len().max(1) as f64;
    for weight in weights {
        *weight = if total > 0.0 { *weight / total } else { even };
    }
}

impl Model {
    /// The uniform distribution for a number of rows.
    pub(super) fn new(rows: u64, sizes: Vec<usize>) -> Self {
        let (learned, nodes, beliefs) = (Vec::new(), Vec::new(), Vec::new());
        let mut model = Self { rows: rows as f64, sizes, learned, nodes, beliefs, step: 0.0 };
        model.build();
        model
    }

    /// The sets of columns that were measured.
    pub(super) fn sets(&self) -> Vec<Columns> {
        self.learned.iter().map(|learned| learned.columns).collect()
    }

    /// Adds the release of a marginal: each count, and one over the variance of its noise.
    /// [`Self::learn`] must follow.
    pub(super) fn measure(&mut self, columns: Columns, counts: &[(i64, f64)]) {
        if let Some(known) = self.learned.iter_mut().find(|known| known.columns == columns) {
            let old = known.target.iter_mut().zip(&mut known.precision);
            for ((mean, weight), &(count, precision)) in old.zip(counts) {
                *mean = (*mean * *weight + count as f64 * precision) / (*weight + precision);
                *weight += precision;
            }
            return;
        }
        let target = counts.iter().map(|&(count, _)| count as f64).collect();
        let precision = counts.iter().map(|&(_, precision)| precision).collect();
        let potential = vec![0.0; counts.len()];
        let (clique, cells) = (0, Vec::new());
        self.learned.push(Learned { columns, target, precision, potential, clique, cells });
        self.build();
    }

    /// Makes a junction tree for the marginals.
    fn build(&mut self) {
        let tree = junction_tree(&self.sets(), &self.sizes);
        let node = |clique: &Clique| {
            let above = clique.parent.and_then(|parent| tree.get(parent)).map_or(0, |p| p.columns);
            let of_clique = projection(clique.columns, clique.separator, &self.sizes);
            let separator_cells = 1 + of_clique.iter().max().copied().unwrap_or(0) as usize;
            let of_parent = projection(above, clique.separator, &self.sizes);
            Node { clique: clique.clone(), of_clique, of_parent, separator_cells }
        };
        self.nodes = tree.iter().map(node).collect();
        for learned in &mut self.learned {
            let place = tree.iter().position(|clique| learned.columns & !clique.columns == 0);
            learned.clique = place.unwrap_or(0);
            let clique = tree.get(learned.clique).map_or(0, |clique| clique.columns);
            learned.cells = projection(clique, learned.columns, &self.sizes);
        }
        let potentials: Vec<Vec<f64>> =
            self.learned.iter().map(|learned| learned.potential.clone()).collect();
        self.beliefs = self.calibrated(&potentials);
    }

    /// The probabilities of the cells of each clique, by one pass of messages to the root of the
    /// tree and one back.
    fn calibrated(&self, potentials: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let weights = |node: &Node| vec![0.0; node.of_clique.len()];
        let mut beliefs: Vec<Vec<f64>> = self.nodes.iter().map(weights).collect();
        for (learned, potential) in self.learned.iter().zip(potentials) {
            let Some(sums) = beliefs.get_mut(learned.clique) else { continue };
            for (sum, &cell) in sums.iter_mut().zip(&learned.cells) {
                *sum += potential.get(cell as usize).copied().unwrap_or(0.0);
            }
        }
        for sums in &mut beliefs {
            let highest = sums.iter().copied().fold(f64::MIN, f64::max);
            for sum in sums {
                *sum = libm::exp((*sum - highest).max(LOWEST));
            }
        }
        let mut messages: Vec<Vec<f64>> = vec![Vec::new(); self.nodes.len()];
        for (place, node) in self.nodes.iter().enumerate().rev() {
            let Some(parent) = node.clique.parent else { continue };
            let Some(own) = beliefs.get(place) else { continue };
            let mut message = gathered(own, &node.of_clique, node.separator_cells);
            normalize(&mut message);
            if let Some(above) = beliefs.get_mut(parent) {
                scale(above, &node.of_parent, &message);
            }
            if let Some(kept) = messages.get_mut(place) {
                *kept = message;
            }
        }
        for (place, node) in self.nodes.iter().enumerate() {
            if let Some(above) = node.clique.parent.and_then(|parent| beliefs.get(parent))
                && let Some(message) = messages.get(place)
            {
                let sums = gathered(above, &node.of_parent, node.separator_cells);
                let back = |(sum, sent): (&f64, &f64)| if *sent > 0.0 { sum / sent } else { 0.0 };
                let factors: Vec<f64> = sums.iter().zip(message).map(back).collect();
                if let Some(own) = beliefs.get_mut(place) {
                    scale(own, &node.of_clique, &factors);
                }
            }
            if let Some(own) = beliefs.get_mut(place) {
                normalize(own);
            }
        }
        beliefs
    }

    /// The expected counts of a learned marginal minus its target, times the precision; and half
    /// the sum of squares that they are the slopes of.
    fn slopes(&self, beliefs: &[Vec<f64>]) -> (Vec<Vec<f64>>, f64) {
        let mut loss = 0.0;
        let slopes = self.learned.iter().map(|learned| {
            let weights = beliefs.get(learned.clique).map_or(&[][..], Vec::as_slice);
            let shares = gathered(weights, &learned.cells, learned.target.len());
            let slope = |((share, target), precision): ((&f64, &f64), &f64)| {
                let gap = share * self.rows - target;
                loss += gap * gap * precision / 2.0;
                gap * precision
            };
            shares.iter().zip(&learned.target).zip(&learned.precision).map(slope).collect()
        });
        let slopes = slopes.collect();
        (slopes, loss)
    }

    /// Updates the weights this many times: each cell of a learned marginal is multiplied by exp(-η
    /// (expected - released)/σ²), with the largest η of a halving search that lessens the error by
    /// at least half of what its slope says.
    pub(super) fn learn(&mut self, updates: u32) {
        let mut potentials: Vec<Vec<f64>> =
            self.learned.iter().map(|learned| learned.potential.clone()).collect();
        let (mut slopes, mut loss) = self.slopes(&self.beliefs);
        let sharpest =
            self.learned.iter().flat_map(|learned| &learned.precision).copied().fold(0.0, f64::max);
        if self.step == 0.0 {
            self.step = 1.0 / (self.rows * sharpest).max(f64::MIN_POSITIVE);
        }
        for _ in 0..updates {
            let mut found = false;
            for _ in 0..40 {
                let moved = moved(&potentials, &slopes, self.step);
                let beliefs = self.calibrated(&moved);
                let (next, lower) = self.slopes(&beliefs);
                let promised = self.promised(&slopes, &beliefs);
                if loss - lower >= 0.5 * promised && promised >= 0.0 {
                    (potentials, self.beliefs, slopes, loss) = (moved, beliefs, next, lower);
                    self.step *= 2.0;
                    found = true;
                    break;
                }
                self.step /= 2.0;
            }
            if !found {
                break;
            }
        }
        for (learned, potential) in self.learned.iter_mut().zip(potentials) {
            learned.potential = potential;
        }
    }

    /// What the error lessens by if it is linear: the slopes times the change of the expected
    /// counts.
    fn promised(&self, slopes: &[Vec<f64>], beliefs: &[Vec<f64>]) -> f64 {
        let parts = self.learned.iter().zip(slopes).map(|(learned, slopes)| {
            let of = |beliefs: &[Vec<f64>]| {
                let weights = beliefs.get(learned.clique).map_or(&[][..], Vec::as_slice);
                gathered(weights, &learned.cells, learned.target.len())
            };
            let changes = of(&self.beliefs).into_iter().zip(of(beliefs));
            let part = |((before, after), slope): ((f64, f64), &f64)| (before - after) * slope;
            changes.zip(slopes).map(part).sum::<f64>() * self.rows
        });
        parts.sum()
    }

    /// The probabilities of a marginal, if one clique contains it.
    pub(super) fn marginal(&self, columns: Columns) -> Option<Vec<f64>> {
        let place = self.nodes.iter().position(|node| columns & !node.clique.columns == 0)?;
        let cells = projection(self.nodes.get(place)?.clique.columns, columns, &self.sizes);
        let places = 1 + cells.iter().max().copied().unwrap_or(0) as usize;
        Some(gathered(self.beliefs.get(place)?, &cells, places))
    }

    /// The cliques from the root on, each with its probabilities and, for each of its cells, the
    /// cell of the separator.
    pub(super) fn cliques(&self) -> impl Iterator<Item = (&Clique, &[f64], &[u32])> {
        let parts = self.nodes.iter().zip(&self.beliefs);
        parts.map(|(node, beliefs)| (&node.clique, beliefs.as_slice(), node.of_clique.as_slice()))
    }

    /// The number of values of each column.
    pub(super) fn sizes(&self) -> &[usize] {
        &self.sizes
    }
}

fn moved(potentials: &[Vec<f64>], slopes: &[Vec<f64>], step: f64) -> Vec<Vec<f64>> {
    let pairs = potentials.iter().zip(slopes);
    let one = |(potential, slopes): (&Vec<f64>, &Vec<f64>)| {
        potential.iter().zip(slopes).map(|(value, slope)| value - step * slope).collect()
    };
    pairs.map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queries::marginals::tree::{cells, members};

    const SIZES: [usize; 5] = [2, 3, 2, 4, 3];
    /// A loop of four columns, which needs a chord, and one column beside it.
    const SETS: [Columns; 6] = [0b1, 0b11, 0b110, 0b1100, 0b1001, 0b10000];

    /// A joint distribution with no structure.
    fn truth() -> Vec<f64> {
        let weight = |cell: u32| 1.0 + f64::from(cell * 7919 % 97) / 10.0;
        let mut all: Vec<f64> = (0..144).map(weight).collect();
        normalize(&mut all);
        all
    }

    fn marginal(joint: &[f64], set: Columns) -> Vec<f64> {
        let places = usize::try_from(cells(set, &SIZES)).unwrap();
        gathered(joint, &projection(0b11111, set, &SIZES), places)
    }

    #[expect(clippy::cast_possible_truncation, reason = "whole rows")]
    fn learned(rows: u64) -> Model {
        let mut model = Model::new(rows, SIZES.to_vec());
        for set in SETS {
            let shares = marginal(&truth(), set);
            let counts: Vec<i64> =
                shares.iter().map(|share| (share * rows as f64).round() as i64).collect();
            let counts: Vec<_> = counts.into_iter().map(|count| (count, 0.25)).collect();
            model.measure(set, &counts);
        }
        model.learn(400);
        model
    }

    #[test]
    fn cliques_have_the_probabilities_of_the_weights_of_all_combinations() {
        let model = learned(10_000);
        let mut joint = vec![1.0; 144];
        for learned in &model.learned {
            let factors: Vec<f64> = learned.potential.iter().map(|value| value.exp()).collect();
            scale(&mut joint, &projection(0b11111, learned.columns, &SIZES), &factors);
        }
        normalize(&mut joint);
        let mut compared = 0;
        for (clique, beliefs, _) in model.cliques() {
            for (found, expected) in beliefs.iter().zip(marginal(&joint, clique.columns)) {
                assert!((found - expected).abs() < 1e-12, "{clique:?}: {found} {expected}");
                compared += 1;
            }
        }
        assert!(compared > 30 && members(0b11111).count() == SIZES.len());
    }

    #[test]
    fn what_was_measured_is_learned() {
        let rows = 10_000;
        let model = learned(rows);
        for set in SETS {
            let found = model.marginal(set).unwrap();
            for (found, expected) in found.iter().zip(marginal(&truth(), set)) {
                let gap = (found - expected).abs() * rows as f64;
                assert!(gap < 3.0, "{set:b}: {gap} rows");
            }
        }
        // What was not measured, and no clique joins, is independent.
        assert_eq!(model.marginal(0b10001), None);
    }

    #[test]
    fn two_releases_are_weighed_by_their_precision() {
        let mut model = Model::new(1_000, vec![2]);
        model.measure(1, &[(700, 1.0), (300, 1.0)]);
        model.measure(1, &[(600, 1.0 / 3.0), (400, 1.0 / 3.0)]);
        model.learn(200);
        let share = model.marginal(1).unwrap()[0];
        assert!((share - 0.675).abs() < 1e-4, "{share}");
    }
}
