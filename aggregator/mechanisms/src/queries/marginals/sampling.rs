//! Rows drawn from a model, as close to its probabilities as whole rows can be.

use rand::{Rng, RngExt as _};

use super::model::Model;
use super::tree::{Columns, members};

/// Rows as the codes of each column.
pub(super) type Codes = Vec<Vec<u16>>;

/// `count` rows of the model.
///
/// The rows of a clique that agree on the separator share its other columns out by systematic
/// sampling, in random order: each combination comes as often as its probability says, but for
/// less than one row.
pub(super) fn draw<R: Rng + ?Sized>(model: &Model, count: usize, rng: &mut R) -> Codes {
    let mut codes: Codes = vec![vec![0; count]; model.sizes().len()];
    for (clique, beliefs, of_separator) in model.cliques() {
        let separators = 1 + of_separator.iter().max().copied().unwrap_or(0) as usize;
        let mut cells: Vec<Vec<usize>> = vec![Vec::new(); separators];
        for (cell, &separator) in of_separator.iter().enumerate() {
            if let Some(cells) = cells.get_mut(separator as usize) {
                cells.push(cell);
            }
        }
        let mut rows: Vec<Vec<usize>> = vec![Vec::new(); separators];
        for row in 0..count {
            if let Some(rows) = rows.get_mut(cell_of(&codes, clique.separator, model, row)) {
                rows.push(row);
            }
        }
        let new: Vec<usize> = members(clique.columns & !clique.separator).collect();
        for (mut rows, cells) in rows.into_iter().zip(cells) {
            shuffle(&mut rows, rng);
            let weights: Vec<f64> =
                cells.iter().map(|&cell| beliefs.get(cell).copied().unwrap_or(0.0)).collect();
            let places = systematic(&weights, rows.len(), rng);
            for (row, place) in rows.into_iter().zip(places) {
                let cell = cells.get(place).copied().unwrap_or(0);
                set(&mut codes, clique.columns, &new, model.sizes(), row, cell);
            }
        }
    }
    codes
}

/// The cell of a row among the combinations of some columns.
fn cell_of(codes: &Codes, columns: Columns, model: &Model, row: usize) -> usize {
    members(columns).fold(0, |cell, column| {
        let size = model.sizes().get(column).copied().unwrap_or(1);
        let code = codes.get(column).and_then(|codes| codes.get(row)).copied().unwrap_or(0);
        cell * size + usize::from(code)
    })
}

/// Gives a row the codes of a cell in the columns that are new.
fn set(
    codes: &mut Codes,
    columns: Columns,
    new: &[usize],
    sizes: &[usize],
    row: usize,
    cell: usize,
) {
    let mut rest = cell;
    let ordered: Vec<usize> = members(columns).collect();
    for &column in ordered.iter().rev() {
        let size = sizes.get(column).copied().unwrap_or(1);
        let code = u16::try_from(rest % size).unwrap_or(u16::MAX);
        rest /= size;
        if new.contains(&column)
            && let Some(place) = codes.get_mut(column).and_then(|codes| codes.get_mut(row))
        {
            *place = code;
        }
    }
}

pub(super) fn shuffle<R: Rng + ?Sized>(rows: &mut [usize], rng: &mut R) {
    for last in (1..rows.len()).rev() {
        rows.swap(last, rng.random_range(0..=last));
    }
}

/// `count` places, in order, each as often as its share of the weights, but for less than one.
pub(super) fn systematic<R: Rng + ?Sized>(
    weights: &[f64],
    count: usize,
    rng: &mut R,
) -> Vec<usize> {
    let total: f64 = weights.iter().sum();
    if count == 0 || total <= 0.0 {
        return vec![0; count];
    }
    let (gap, start) = (total / count as f64, rng.random_range(0.0..1.0));
    let (mut place, mut sum) = (0, weights.first().copied().unwrap_or(0.0));
    let mut places = Vec::with_capacity(count);
    for taken in 0..count {
        let point = (taken as f64 + start) * gap;
        while sum <= point && place + 1 < weights.len() {
            place += 1;
            sum += weights.get(place).copied().unwrap_or(0.0);
        }
        places.push(place);
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha20Rng;
    use rand_chacha::rand_core::SeedableRng as _;

    #[test]
    fn systematic_samples_are_off_by_less_than_one() {
        let mut rng = ChaCha20Rng::seed_from_u64(3);
        let weights = [0.1, 0.0, 2.5, 1.3, 0.7, 0.0];
        for count in [1, 7, 100, 1_001] {
            let places = systematic(&weights, count, &mut rng);
            assert_eq!(places.len(), count);
            for (place, weight) in weights.iter().enumerate() {
                let found = places.iter().filter(|&&other| other == place).count() as f64;
                let expected = weight / 4.6 * count as f64;
                assert!((found - expected).abs() < 1.0 + 1e-9, "{count}: {found} for {expected}");
            }
        }
    }
}
