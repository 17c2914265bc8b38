//! A table like a census: fifteen columns, most of which depend on others.

use bandana_mechanisms::queries::QueryError;
use bandana_mechanisms::queries::rows::Rows;
use bandana_mechanisms::queries::universe::Schema;
use rand::RngExt as _;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng as _;

/// The columns: 107 values, and 7 10^11 combinations.
pub(super) const COLUMNS: [&str; 15] = [
    "age:0..14",
    "sex:0..1",
    "region:0..8",
    "origin:0..4",
    "education:0..7",
    "marital:0..4",
    "children:0..3",
    "employment:0..4",
    "occupation:0..11",
    "industry:0..9",
    "hours:0..7",
    "income:0..11",
    "housing:0..2",
    "commute:0..5",
    "insurance:0..2",
];

/// `rows` people of this seed.
///
/// # Errors
/// [`QueryError`] for too many rows.
pub fn people(rows: usize, seed: u64) -> Result<Rows, QueryError> {
    let mut people = Rows::new(Schema::parse(&COLUMNS)?);
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    for _ in 0..rows {
        people.push(&person(&mut rng).map(u32::from))?;
    }
    Ok(people)
}

/// A whole number near a level, within 0 to `most`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a small positive number"
)]
pub(super) fn near(level: f64, spread: f64, most: u16, rng: &mut ChaCha20Rng) -> u16 {
    // The sum of four uniform numbers is nearly normal, with a variance of a third.
    let noise: f64 = (0..4).map(|_| rng.random_range(-0.5..0.5)).sum::<f64>() * 3.0_f64.sqrt();
    (level + spread * noise).round().clamp(0.0, f64::from(most)) as u16
}

pub(super) fn coin(probability: f64, rng: &mut ChaCha20Rng) -> bool {
    rng.random_range(0.0..1.0) < probability
}

fn person(rng: &mut ChaCha20Rng) -> [u16; 15] {
    let (age, sex) = (near(6.0, 3.8, 14, rng), u16::from(coin(0.51, rng)));
    let region = rng.random_range(0..9_u16).min(rng.random_range(0..9));
    let origin = if coin(0.6, rng) { 0 } else { (region + rng.random_range(0..3)) % 5 };
    let years = f64::from(age);
    let education = near(5.2 - 0.22 * years - 0.4 * f64::from(origin), 1.6, 7, rng);
    let marital = match years {
        ..2.0 => u16::from(coin(0.1, rng)),
        ..9.0 => [1, 1, 1, 0, 2][rng.random_range(0..5)],
        _ => [1, 1, 2, 3, 3, 4][rng.random_range(0..6)],
    };
    let children = if marital == 0 { u16::from(coin(0.1, rng)) } else { near(1.4, 1.1, 3, rng) };
    let employment = match years {
        11.0.. => 4,
        ..1.0 => [3, 3, 0][rng.random_range(0..3)],
        _ if sex == 1 && children > 1 => [0, 1, 1, 2][rng.random_range(0..4)],
        _ => [0, 0, 0, 1, 2, 0][rng.random_range(0..6)],
    };
    let is_working = employment < 2;
    let skill = f64::from(education);
    let occupation = if is_working { 1 + near(1.4 * skill, 1.7, 10, rng) } else { 0 };
    let place = (f64::from(occupation) * 0.6 + 3.0 * f64::from(sex)).min(8.0);
    let industry = if is_working { 1 + near(place, 1.3, 8, rng) } else { 0 };
    let hours = match employment {
        0 => near(5.0, 0.9, 7, rng),
        1 => near(2.5, 0.9, 7, rng),
        _ => 0,
    };
    let pay = 0.6 * skill + 0.7 * f64::from(hours) + 0.15 * years - 0.8 * f64::from(sex);
    let income = near(pay, 1.2, 11, rng);
    let housing =
        if coin(0.05 + 0.07 * f64::from(income), rng) { 2 } else { u16::from(coin(0.5, rng)) };
    let commute = if is_working { 1 + near(f64::from(region) * 0.4, 1.2, 4, rng) } else { 0 };
    let insurance = if years >= 11.0 { 2 } else { u16::from(is_working && coin(0.8, rng)) };
    [
        age, sex, region, origin, education, marital, children, employment, occupation, industry,
        hours, income, housing, commute, insurance,
    ]
}
