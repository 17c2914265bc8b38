//! Synthetic tables of invented people, compared with the table that they were made from.

mod census;
mod stays;

use std::time::Instant;

use anyhow::{Context as _, ensure};
use bandana_mechanisms::queries::marginals::{ReleasedTable, SyntheticTable};
use bandana_mechanisms::queries::price::ConcentratedLoss;
use bandana_mechanisms::queries::rows::Rows;
use bandana_mechanisms::queries::universe::{Column, Schema};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng as _;
use serde::Serialize;

pub use census::people;
pub use stays::stays;

/// How far the two-way marginals of a table are off: total variation distances, as shares of rows.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Distances {
    /// The largest one.
    pub largest: f64,
    /// The mean over all pairs of columns.
    pub mean: f64,
}

/// A table made, compared, and timed.
#[derive(Clone, Debug, Serialize)]
pub struct Trial {
    /// The number of columns of the marginals that it was made for.
    pub ways: u32,
    /// Its distances from the data.
    pub distances: Distances,
    /// The distances that it was released with, and the bounds on their errors.
    pub reported: [(f64, f64); 2],
    /// The marginals that were measured.
    pub chosen: usize,
    /// Seconds to make it.
    pub seconds: f64,
}

/// Compares all two-way marginals of two tables.
///
/// # Errors
/// When the columns differ, or a table is empty.
pub fn distances(data: &Rows, other: &Rows) -> anyhow::Result<Distances> {
    ensure!(data.schema() == other.schema(), "the tables have different columns");
    let names: Vec<&str> = data.schema().columns().iter().map(Column::name).collect();
    let (rows, others) = (data.count() as f64, other.count() as f64);
    ensure!(rows > 0.0 && others > 0.0, "a table is empty");
    let mut all = Vec::new();
    for (place, one) in names.iter().enumerate() {
        for another in names.iter().skip(place + 1) {
            let universe = data.schema().universe(&[*one, *another])?;
            let pairs = data.histogram(&universe).into_iter().zip(other.histogram(&universe));
            let gaps = pairs.map(|(a, b)| (a as f64 / rows - b as f64 / others).abs());
            all.push(gaps.sum::<f64>() / 2.0);
        }
    }
    let largest = all.iter().copied().fold(0.0, f64::max);
    Ok(Distances { largest, mean: all.iter().sum::<f64>() / all.len().max(1) as f64 })
}

/// Makes a table of as many rows as the data have, and compares them.
///
/// # Errors
/// When it can't be made.
#[expect(clippy::disallowed_methods, reason = "seconds for people, and nothing else")]
pub fn trial(data: &Rows, ways: u32, rho: ConcentratedLoss, seed: u64) -> anyhow::Result<Trial> {
    let begun = Instant::now();
    let table = SyntheticTable { ways, rows: u32::try_from(data.count())? };
    let released = table.release(data, &[], rho, 0.05, &mut ChaCha20Rng::seed_from_u64(seed))?;
    let seconds = begun.elapsed().as_secs_f64();
    let reported = [released.largest, released.mean].map(|share| (share.value, share.accuracy));
    let chosen = released.chosen.len();
    let distances = distances(data, &rows(&released)?)?;
    Ok(Trial { ways, distances, reported, chosen, seconds })
}

fn rows(table: &ReleasedTable) -> anyhow::Result<Rows> {
    let mut rows = Rows::new(Schema::new(table.columns.clone())?);
    for row in 0..table.codes.first().map_or(0, Vec::len) {
        let code = |codes: &Vec<u16>| codes.get(row).copied().map(u32::from);
        let codes: Vec<u32> = table.codes.iter().filter_map(code).collect();
        rows.push(&codes)?;
    }
    Ok(rows)
}

/// The rows as CSV, with a line of headings.
///
/// # Errors
/// Those of writing.
pub fn csv(data: &Rows) -> anyhow::Result<Vec<u8>> {
    let columns = data.schema().columns();
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(columns.iter().map(Column::name))?;
    let codes: Vec<&[u16]> = (0..columns.len()).map(|place| data.codes(place)).collect();
    for row in 0..usize::try_from(data.count())? {
        let cells = columns.iter().zip(&codes);
        writer.write_record(cells.map(|(column, codes)| column.value(codes[row].into())))?;
    }
    Ok(writer.into_inner()?)
}

/// Reads rows of these columns from CSV.
///
/// # Errors
/// When a value is not in the domain of its column.
pub fn from_csv(schema: &Schema, bytes: &[u8]) -> anyhow::Result<Rows> {
    let mut rows = Rows::new(schema.clone());
    for record in csv::Reader::from_reader(bytes).records() {
        let record = record?;
        let cells = schema.columns().iter().zip(&record);
        let code = |(column, text): (&Column, &str)| {
            column.read(text).with_context(|| format!("{} can't be {text:?}", column.name()))
        };
        rows.push(&cells.map(code).collect::<anyhow::Result<Vec<u32>>>()?)?;
    }
    Ok(rows)
}
