//! Counts of rows by their cell in marginals, exact.

use super::sampling::Codes;
use super::tree::{Columns, cells, members};

/// The number of rows in each cell of a marginal.
pub(super) fn counts(codes: &[&[u16]], set: Columns, sizes: &[usize]) -> Vec<u64> {
    let cells = usize::try_from(cells(set, sizes)).unwrap_or(0);
    let mut counts = vec![0_u64; cells];
    let rows = codes.first().map_or(0, |codes| codes.len());
    let columns: Vec<(usize, &[u16])> = members(set)
        .filter_map(|column| Some((*sizes.get(column)?, *codes.get(column)?)))
        .collect();
    for row in 0..rows {
        let add = |cell: usize, (size, codes): &(usize, &[u16])| {
            cell * size + codes.get(row).map_or(0, |&code| usize::from(code))
        };
        if let Some(count) = counts.get_mut(columns.iter().fold(0, add)) {
            *count += 1;
        }
    }
    counts
}

/// The codes of each column as slices.
pub(super) fn slices(codes: &Codes) -> Vec<&[u16]> {
    codes.iter().map(Vec::as_slice).collect()
}

/// The differences between two tables on all marginals of a kind, in units of one over the product
/// of their numbers of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Differences {
    /// The largest sum of magnitudes over the cells of a marginal.
    pub(super) largest: i64,
    /// The mean of these sums over all marginals, rounded down.
    pub(super) mean: i64,
    /// The largest magnitude of a cell.
    pub(super) cell: i64,
}

impl Differences {
    /// The squared Euclidean distance by which a changed row of the data moves the three numbers
    /// together, for `m` synthetic rows: 9 m².
    ///
    /// A changed row moves two counts of each marginal by 1, and m times a count by m. So the sum
    /// of a marginal changes by at most 2 m, and so does the largest of them. The sum over all k
    /// marginals changes by at most 2 m k, and its k-th part, rounded down, by at most 2 m, a whole
    /// number. The largest cell changes by at most m. (2 m)² + (2 m)² + m² = 9 m².
    pub(super) fn squared_sensitivity(m: u64) -> u64 {
        9 * m * m
    }

    /// Of the data's counts, and those of `m` synthetic rows.
    pub(super) fn of(pairs: &[(&[u64], Vec<u64>)], rows: u64, m: u64) -> Self {
        let (mut largest, mut sum, mut cell, mut marginals) = (0_u128, 0_u128, 0_u128, 0_u128);
        for &(data, ref synthetic) in pairs {
            let gaps = data.iter().zip(synthetic).map(|(&count, &other)| {
                (u128::from(m) * u128::from(count)).abs_diff(u128::from(rows) * u128::from(other))
            });
            let mut total = 0;
            for gap in gaps {
                total += gap;
                cell = cell.max(gap);
            }
            largest = largest.max(total);
            sum += total;
            marginals += 1;
        }
        let whole = |number: u128| i64::try_from(number).unwrap_or(i64::MAX);
        Self { largest: whole(largest), mean: whole(sum / marginals.max(1)), cell: whole(cell) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [usize; 3] = [2, 3, 2];
    const SETS: [Columns; 3] = [0b11, 0b101, 0b110];

    fn rows(count: usize) -> Codes {
        let size = |column: usize| SIZES[column];
        let code = |column: usize, row: usize| {
            u16::try_from((row * row + row * (column + 3) / 2) % size(column)).unwrap()
        };
        (0..3).map(|column| (0..count).map(|row| code(column, row)).collect()).collect()
    }

    fn differences(data: &Codes, synthetic: &Codes) -> [i64; 3] {
        let all: Vec<Vec<u64>> =
            SETS.iter().map(|&set| counts(&slices(data), set, &SIZES)).collect();
        let pairs: Vec<_> = all
            .iter()
            .zip(SETS)
            .map(|(exact, set)| (&exact[..], counts(&slices(synthetic), set, &SIZES)))
            .collect();
        let (n, m) = (data[0].len() as u64, synthetic[0].len() as u64);
        let Differences { largest, mean, cell } = Differences::of(&pairs, n, m);
        [largest, mean, cell]
    }

    #[test]
    fn a_changed_row_moves_counts_and_differences_by_no_more_than_the_noise_covers() {
        let (data, synthetic) = (rows(11), rows(7));
        let before = differences(&data, &synthetic);
        let (mut farthest, mut most) = (0, 0);
        for row in 0..11 {
            for cell in 0..12_u16 {
                let mut other = data.clone();
                for (column, code) in [cell / 6, cell / 2 % 3, cell % 2].into_iter().enumerate() {
                    other[column][row] = code;
                }
                for set in SETS {
                    let pair = [&data, &other].map(|codes| counts(&slices(codes), set, &SIZES));
                    let gap = |(a, b): (&u64, &u64)| a.abs_diff(*b).pow(2);
                    most = most.max(pair[0].iter().zip(&pair[1]).map(gap).sum::<u64>());
                }
                let after = differences(&other, &synthetic);
                let moved: u64 = before.iter().zip(after).map(|(a, b)| a.abs_diff(b).pow(2)).sum();
                farthest = farthest.max(moved);
                assert!(moved <= Differences::squared_sensitivity(7), "{before:?} {after:?}");
            }
        }
        assert_eq!(most, 2);
        // Not far from what is attained.
        assert!(3 * farthest > Differences::squared_sensitivity(7), "{farthest}");
    }
}
