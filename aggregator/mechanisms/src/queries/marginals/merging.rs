//! Values too rare to be told from noise, merged into one value of a narrower column.
//!
//! Most of the declared values of a wide column may not occur. Each of them would add noise to every
//! marginal of the column. So values whose released count is no more than noise are merged before marginals
//! of several columns are chosen, as in McKenna, Miklau and Sheldon, "Winning the NIST contest: a scalable
//! and general approach to differentially private synthetic data", 2021. What differs:
//!
//! - The threshold grows with the number of values: of the values that nobody has, one is kept on average.
//! - Numbers next to each other, which are rare alone but not together, become a value of their own.
//! - Merged values are drawn by their released counts, and not evenly.
//!
//! # Privacy
//! All of this is post-processing. It reads counts that were released with noise, and never the rows. A
//! marginal of narrower columns is one of the data too: a changed row moves two of its counts by 1.

use rand::Rng;

use super::sampling::{Codes, shuffle, systematic};
use super::tree::{Columns, members};
use crate::noise::DiscreteGaussian;

/// Least factor by which a column is narrowed: if few values are rare, what they lose is worth more.
const FACTOR_MIN: usize = 2;

/// A column as a narrower one, some of whose values stand for several.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Merging {
    /// For each value of the column, that of the narrower one.
    places: Vec<u16>,
    /// For each value of the narrower column, the values that it stands for.
    groups: Vec<Vec<u16>>,
    /// The released count of each value of the column, and the variance of its noise.
    released: Vec<i64>,
    variance: f64,
}

impl Merging {
    /// A narrower column by released counts; the column as it is, if it would not become narrower by a
    /// factor of two, or only one value were left.
    pub(super) fn of(released: Vec<i64>, noise: DiscreteGaussian, is_number: bool) -> Self {
        // Noise is above it with a probability of one over the number of values.
        let threshold = noise.quantile(2.0 / released.len().max(1) as f64);
        let mut groups = groups(&released, threshold as f64, is_number);
        if groups.len() < 2 || groups.len() * FACTOR_MIN > released.len() {
            groups = (0..released.len()).map(|value| vec![code(value)]).collect();
        }
        let mut places = vec![0; released.len()];
        for (place, group) in groups.iter().enumerate() {
            for &value in group {
                if let Some(found) = places.get_mut(usize::from(value)) {
                    *found = code(place);
                }
            }
        }
        Self { places, groups, released, variance: noise.variance().to_f64() }
    }

    /// The number of values of the narrower column.
    pub(super) fn size(&self) -> usize {
        self.groups.len()
    }

    /// The released counts of the narrower column, and one over the variance of their noise.
    pub(super) fn counts(&self) -> Vec<(i64, f64)> {
        let precision = |group: &Vec<u16>| 1.0 / (self.variance * group.len().max(1) as f64);
        self.groups.iter().map(|group| (self.of_group(group).sum(), precision(group))).collect()
    }

    fn of_group(&self, group: &[u16]) -> impl Iterator<Item = i64> {
        group.iter().filter_map(|&value| self.released.get(usize::from(value)).copied())
    }

    /// Estimates of the counts of merged values, which have this sum.
    ///
    /// Released counts are drawn to their mean by as much as noise explains how far they are spread (James
    /// and Stein, "Estimation with quadratic loss", 1961, with the mean in place of zero). Of the counts that
    /// are not negative and have the sum, the nearest ones follow.
    fn estimates(&self, group: &[u16], sum: f64) -> Vec<f64> {
        let counts: Vec<f64> = self.of_group(group).map(|count| count as f64).collect();
        let mean = counts.iter().sum::<f64>() / counts.len().max(1) as f64;
        let spread: f64 = counts.iter().map(|count| (count - mean).powi(2)).sum();
        let noise = (counts.len() as f64 - 3.0).max(0.0) * self.variance;
        let kept = if spread > noise { 1.0 - noise / spread } else { 0.0 };
        let drawn: Vec<f64> = counts.iter().map(|count| mean + kept * (count - mean)).collect();
        nearest(&drawn, sum)
    }

    /// The codes of the narrower column as codes of the column. Each of the rows stands for so many of the
    /// data.
    fn widen<R: Rng + ?Sized>(&self, codes: &[u16], each: f64, rng: &mut R) -> Vec<u16> {
        let mut rows: Vec<Vec<usize>> = vec![Vec::new(); self.groups.len()];
        for (row, &place) in codes.iter().enumerate() {
            if let Some(rows) = rows.get_mut(usize::from(place)) {
                rows.push(row);
            }
        }
        let mut wide = vec![0; codes.len()];
        for (mut rows, group) in rows.into_iter().zip(&self.groups) {
            let values = if let [value] = group[..] {
                vec![value; rows.len()]
            } else {
                shuffle(&mut rows, rng);
                let estimates = self.estimates(group, rows.len() as f64 * each);
                let places = systematic(&estimates, rows.len(), rng).into_iter();
                places.filter_map(|place| group.get(place).copied()).collect()
            };
            for (row, value) in rows.into_iter().zip(values) {
                if let Some(found) = wide.get_mut(row) {
                    *found = value;
                }
            }
        }
        wide
    }
}

/// The values of the narrower column: those above the threshold; numbers next to each other whose sum is
/// above that of as many; and all others together, the last.
fn groups(released: &[i64], threshold: f64, is_number: bool) -> Vec<Vec<u16>> {
    let (mut groups, mut others) = (Vec::new(), Vec::new());
    let (mut run, mut sum) = (Vec::new(), 0.0);
    for (value, &count) in released.iter().enumerate() {
        let count = count as f64;
        if count > threshold {
            groups.push(vec![code(value)]);
            others.append(&mut run);
            sum = 0.0;
            continue;
        }
        run.push(code(value));
        sum += count;
        // The deviation of a sum of k counts is sqrt(k) times that of one.
        if is_number && sum > threshold * (run.len() as f64).sqrt() {
            groups.push(std::mem::take(&mut run));
            sum = 0.0;
        }
    }
    others.append(&mut run);
    if !others.is_empty() {
        groups.push(others);
    }
    groups
}

fn code(place: usize) -> u16 {
    u16::try_from(place).unwrap_or(u16::MAX)
}

/// The point nearest to `counts` of those with this sum and no negative number: the same is taken off each
/// count, and what is negative then is zero.
fn nearest(counts: &[f64], sum: f64) -> Vec<f64> {
    let mut sorted = counts.to_vec();
    sorted.sort_unstable_by(|one, other| other.total_cmp(one));
    let (mut total, mut excess) = (0.0, 0.0);
    for (place, count) in sorted.into_iter().enumerate() {
        total += count;
        let level = (total - sum) / (place + 1) as f64;
        if place > 0 && count <= level {
            break;
        }
        excess = level;
    }
    counts.iter().map(|count| (count - excess).max(0.0)).collect()
}

/// The counts of a marginal, for narrower columns.
pub(super) fn narrowed(exact: &[u64], set: Columns, mergings: &[Merging]) -> Vec<u64> {
    let (mut cells, mut size) = (vec![0_usize], 1);
    for merging in members(set).filter_map(|column| mergings.get(column)) {
        size *= merging.size();
        let next = |&cell: &usize| {
            let places = merging.places.iter();
            places.map(move |&place| cell * merging.size() + usize::from(place))
        };
        cells = cells.iter().flat_map(next).collect();
    }
    let mut counts = vec![0; size];
    for (cell, count) in cells.into_iter().zip(exact) {
        if let Some(sum) = counts.get_mut(cell) {
            *sum += count;
        }
    }
    counts
}

/// Rows of narrower columns as rows of the columns. `count` rows of the data were measured.
pub(super) fn widened<R: Rng + ?Sized>(
    codes: &Codes,
    mergings: &[Merging],
    count: u64,
    rng: &mut R,
) -> Codes {
    let each = |codes: &[u16]| count as f64 / codes.len().max(1) as f64;
    let columns = codes.iter().zip(mergings);
    columns.map(|(codes, merging)| merging.widen(codes, each(codes), rng)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::Ratio;
    use crate::queries::marginals::SyntheticTable;
    use crate::queries::price::ConcentratedLoss;
    use crate::queries::rows::Rows;
    use crate::queries::universe::Schema;
    use rand_chacha::ChaCha20Rng;
    use rand_chacha::rand_core::SeedableRng as _;

    /// Of a deviation of 10: the threshold of 20 values is 17.
    fn merged(released: &[i64], is_number: bool) -> Merging {
        let noise = DiscreteGaussian::new(Ratio::whole(100).unwrap());
        Merging::of(released.to_vec(), noise, is_number)
    }

    /// Counts of 20 values, most of which nobody has.
    fn sparse() -> Vec<i64> {
        [9, -14, 2, -3].into_iter().cycle().take(20).collect()
    }

    #[test]
    fn rare_values_become_one_and_come_back_by_their_counts() {
        let mut released = sparse();
        (released[3], released[11]) = (500, 300);
        let merging = merged(&released, false);
        assert_eq!(merging.groups[..2], [vec![3], vec![11]]);
        assert_eq!((merging.size(), merging.groups[2].len()), (3, 18));
        // The sum of 18 counts has 18 times the variance.
        let others: i64 = released.iter().sum::<i64>() - 800;
        assert_eq!(merging.counts(), [(500, 0.01), (300, 0.01), (others, 1.0 / 1_800.0)]);

        let narrow: Vec<u16> = (0..900).map(|row| [0, 0, 1, 2, 2][row % 5]).collect();
        let codes = merging.widen(&narrow, 1.0, &mut ChaCha20Rng::seed_from_u64(1));
        let counts = |value: u16| codes.iter().filter(|&&code| code == value).count();
        for (place, &code) in narrow.iter().zip(&codes) {
            assert_eq!(usize::from(*place), usize::from(merging.places[usize::from(code)]));
        }
        assert_eq!((counts(3), counts(11)), (360, 180));
        // 360 rows for 18 values, whose counts noise explains.
        assert!(counts(0).abs_diff(20) <= 1 && counts(1).abs_diff(20) <= 1, "{codes:?}");
        assert_eq!(narrowed(&[1; 20], 1, &[merging]), [1, 1, 18]);
    }

    #[test]
    fn columns_with_nothing_to_merge_stay_as_they_are() {
        let as_it_is = |released: &[i64]| {
            let merging = merged(released, false);
            let narrow: Vec<u16> = (0..released.len()).map(code).collect();
            assert_eq!(merging.widen(&narrow, 1.0, &mut ChaCha20Rng::seed_from_u64(1)), narrow);
            merging.size() == released.len()
        };
        // Nobody is rare, everybody is, few are; two values, and one.
        assert!(as_it_is(&[100; 20]) && as_it_is(&sparse()));
        assert!(as_it_is(&[[0; 9].as_slice(), &[100; 11]].concat()));
        assert!(as_it_is(&[70, -3]) && as_it_is(&[-3, -4]) && as_it_is(&[5]));
    }

    #[test]
    fn numbers_that_are_rare_alone_are_merged_with_their_neighbours() {
        let even = vec![15; 20];
        // A single group for names, which would say nothing.
        assert_eq!(merged(&even, false).size(), 20);
        let merging = merged(&even, true);
        assert_eq!(merging.size(), 10);
        assert!(merging.groups.iter().all(|group| group.len() == 2 && group[1] == group[0] + 1));
    }

    #[test]
    fn estimates_follow_noise_as_little_as_it_explains_them() {
        let of = |released: &[i64], sum: f64| {
            let all: Vec<u16> = (0..released.len()).map(code).collect();
            merged(released, false).estimates(&all, sum)
        };
        // A spread that noise explains.
        assert_eq!(of(&sparse(), 40.0), [2.0; 20]);
        // A tail that it does not explain is kept in order, and has the sum.
        let tail: Vec<i64> = (0..40).map(|rank| 900 / (rank + 1)).collect();
        let found = of(&tail, 2_000.0);
        assert!((found.iter().sum::<f64>() - 2_000.0).abs() < 1e-6, "{found:?}");
        assert!(found.is_sorted_by(|one, other| one >= other) && found[39] >= 0.0);
        assert!((found[0] - 900.0).abs() < 300.0, "{found:?}");
        assert_eq!(nearest(&[3.0, -5.0, 2.0], 3.0), [2.0, 0.0, 1.0]);
        assert_eq!(nearest(&[7.0], 3.0), [3.0]);
    }

    /// Two columns of 400 values of which 8 occur, the second a function of the first, and one that
    /// depends on both.
    fn sparse_people() -> Rows {
        let schema = Schema::parse(&["a:0..399", "b:0..399", "c:0..2"]).unwrap();
        let mut rows = Rows::new(schema);
        for person in 0..6_000_u32 {
            let kind = person * 40_503 % 65_521 % 8;
            let code = |prime: u32| (kind + 1) * prime % 400;
            rows.push(&[code(151), code(61), kind % 3]).unwrap();
        }
        rows
    }

    #[test]
    fn tables_of_columns_wider_than_the_data_are_close() {
        let rows = sparse_people();
        let price = ConcentratedLoss::new(0.1).unwrap();
        let release = |seed| {
            let table = SyntheticTable { ways: 2, rows: 5_000 };
            let mut rng = ChaCha20Rng::seed_from_u64(seed);
            table.release(&rows, &[], price, 0.05, &mut rng).unwrap()
        };
        for seed in 0..3 {
            let table = release(seed);
            assert!(table.largest.value < 0.08, "{seed}: {:?}", table.largest);
        }
        assert_eq!(release(1), release(1));
    }
}
