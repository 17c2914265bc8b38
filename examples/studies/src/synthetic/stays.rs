//! A table of stays in hospitals, whose columns declare many more values than occur.

use bandana_mechanisms::queries::QueryError;
use bandana_mechanisms::queries::rows::Rows;
use bandana_mechanisms::queries::universe::Schema;
use rand::RngExt as _;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng as _;

use super::census::{coin, near};

/// The columns: 3,564 values, of which about 500 occur, and 80 often.
pub(super) const COLUMNS: [&str; 11] = [
    "hospital:0..1999",
    "region:0..7",
    "diagnosis:0..399",
    "drug:0..199",
    "ward:0..199",
    "doctor:0..249",
    "days:0..179",
    "age:0..19",
    "payer:0..299",
    "sex:0..1",
    "outcome:0..3",
];

/// `rows` stays of this seed.
///
/// # Errors
/// [`QueryError`] for too many rows.
pub fn stays(rows: usize, seed: u64) -> Result<Rows, QueryError> {
    let mut stays = Rows::new(Schema::parse(&COLUMNS)?);
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    for _ in 0..rows {
        stays.push(&stay(&mut rng).map(u32::from))?;
    }
    Ok(stays)
}

/// A rank from 0 to `ranks` - 1, each with a probability in proportion to (rank + 1)^-`power`.
fn zipf(ranks: u16, power: f64, rng: &mut ChaCha20Rng) -> u16 {
    let weight = |rank: u16| f64::from(rank + 1).powf(-power);
    let mut left = rng.random_range(0.0..1.0) * (0..ranks).map(weight).sum::<f64>();
    let passed = |&rank: &u16| {
        left -= weight(rank);
        left < 0.0
    };
    (0..ranks).find(passed).unwrap_or(0)
}

/// The code of a rank: those that occur are all over the domain. Primes go into no size.
fn code(rank: u16, prime: u16, size: u16) -> u16 {
    let code = (u32::from(rank) + 1) * u32::from(prime) % u32::from(size);
    u16::try_from(code).unwrap_or(0)
}

fn stay(rng: &mut ChaCha20Rng) -> [u16; 11] {
    let (age, sex) = (near(11.0, 5.0, 19, rng), u16::from(coin(0.51, rng)));
    let hospital = zipf(18, 0.7, rng);
    let region = if coin(0.9, rng) { hospital % 8 } else { rng.random_range(0..8) };
    // A heavy tail: one of ten has a diagnosis that fewer than 1 in 500 have.
    let diagnosis = match zipf(400, 1.6, rng) {
        rank if rank < 8 && age > 12 => (rank + 3) % 8,
        rank => rank,
    };
    let drug = if coin(0.8, rng) { diagnosis % 14 } else { zipf(14, 1.0, rng) };
    let ward = if coin(0.85, rng) { diagnosis % 9 } else { rng.random_range(0..9) };
    let doctor = if coin(0.9, rng) { hospital + ward % 3 } else { zipf(20, 0.5, rng) } % 20;
    let days = match zipf(180, 1.8, rng) {
        0 => 1 + ward % 4,
        more => more + 2,
    };
    let payer = match age {
        14.. => [0, 0, 0, 1][rng.random_range(0..4)],
        _ => zipf(6, 1.2, rng),
    };
    let outcome = match f64::from(age) + f64::from(diagnosis % 5) {
        ..8.0 => 0,
        ..16.0 => [0, 0, 1, 1, 2][rng.random_range(0..5)],
        _ => [1, 2, 2, 3][rng.random_range(0..4)],
    };
    [
        code(hospital, 727, 2000),
        region,
        code(diagnosis, 151, 400),
        code(drug, 61, 200),
        code(ward, 83, 200),
        code(doctor, 97, 250),
        days.min(179),
        age,
        code(payer, 113, 300),
        sex,
        outcome,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_of_the_declared_values_occur() {
        let stays = stays(5_000, 1).unwrap();
        let columns = stays.schema().columns();
        let often = |place: usize| {
            let mut counts = vec![0_u32; columns[place].values()];
            stays.codes(place).iter().for_each(|&code| counts[usize::from(code)] += 1);
            let occur = counts.iter().filter(|&&count| count > 0).count();
            (occur, counts.iter().filter(|&&count| count >= 50).count())
        };
        let found: Vec<(usize, usize)> = (0..columns.len()).map(often).collect();
        // Wide columns with few values, and two with a heavy tail.
        for (place, most) in [(0, 18), (3, 14), (4, 9), (5, 20), (8, 6)] {
            assert!(found[place].0 <= most && found[place].0 >= most - 1, "{found:?}");
        }
        for place in [2, 6] {
            assert!(found[place].0 > 60 && found[place].1 < 20, "{found:?}");
        }
    }
}
