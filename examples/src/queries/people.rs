//! Fictitious people.

use std::path::Path;

use anyhow::Context as _;
use bandana_mechanisms::queries::rows::Rows;
use bandana_mechanisms::queries::universe::{Column, Schema};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// Name of the file and of the data set.
pub const FILE: &str = "people.csv";

/// Traits: a name, the share of people who have the trait, and the increase of that share for
/// smokers.
const TRAITS: [(&str, f64, f64); 6] = [
    ("smokes", 0.22, 0.0),
    ("coughs", 0.10, 0.35),
    ("runs", 0.35, -0.2),
    ("drinks", 0.40, 0.15),
    ("insured", 0.85, -0.05),
    ("retired", 0.18, 0.05),
];

/// The columns as declared to the server.
pub fn columns() -> Vec<String> {
    let mut columns = vec!["age:18..97".to_owned(), "city:Bonn|Kiel|Jena|Ulm".to_owned()];
    columns.extend(TRAITS.iter().map(|(name, ..)| format!("{name}:no|yes")));
    columns
}

/// The names of the columns with two values.
pub fn traits() -> Vec<String> {
    TRAITS.iter().map(|(name, ..)| (*name).to_owned()).collect()
}

/// Generates people from a seed.
///
/// # Errors
/// When there are too many.
pub fn invent(count: u32, seed: u64) -> anyhow::Result<Rows> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut rows = Rows::new(Schema::parse(&columns())?);
    for _ in 0..count {
        // The sum of three dice: most people have a medium age.
        let age: u32 = (0..3).map(|_| rng.random_range(0..27)).sum();
        let city = [0, 0, 0, 1, 1, 2, 3, 3].get(rng.random_range(0..8_usize));
        let mut codes = vec![age, city.copied().unwrap_or(0)];
        let mut smokes = false;
        for (place, (_, share, of_smokers)) in TRAITS.iter().enumerate() {
            let share = share + if smokes { *of_smokers } else { 0.0 };
            let is_so = rng.random_bool(share);
            smokes |= place == 0 && is_so;
            codes.push(u32::from(is_so));
        }
        rows.push(&codes)?;
    }
    Ok(rows)
}

/// Writes the people as CSV, in the order of a histogram over all columns, which reveals nothing.
///
/// # Errors
/// When the file can't be written.
pub fn write(rows: &Rows, path: &Path) -> anyhow::Result<()> {
    let universe = rows.schema().universe::<&str>(&[])?;
    let mut writer =
        csv::Writer::from_path(path).with_context(|| format!("writing {}", path.display()))?;
    let columns = universe.schema().columns();
    writer.write_record(columns.iter().map(Column::name))?;
    for (cell, count) in rows.histogram(&universe).into_iter().enumerate() {
        let codes = universe.codes(cell);
        let values: Vec<String> =
            columns.iter().zip(codes).map(|(column, code)| column.value(code)).collect();
        for _ in 0..count {
            writer.write_record(&values)?;
        }
    }
    Ok(writer.flush()?)
}
