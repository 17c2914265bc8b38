//! Conformance vectors: what every implementation must compute alike.
//!
//! They are written from this implementation, whose own tests compare it with
//! arbitrary-precision arithmetic. `tests/vectors/README.md` explains the fields
//! and the rules to whoever writes a client in another language.

use std::fmt::Write as _;

use anyhow::Context as _;
use serde::Serialize;

mod channel;
mod estimate;
mod kary;
mod messages;
mod signature;
mod trusted;

/// Every file of vectors, with its path from the root and its content.
///
/// # Errors
/// When an example breaks a rule of the protocol.
pub fn generate() -> anyhow::Result<Vec<(String, String)>> {
    Ok(vec![
        file("floor", &channel::floors()?)?,
        file("channel", &channel::reports()?)?,
        file("estimate", &estimate::estimates()?)?,
        file("kary", &kary::vectors()?)?,
        file("specification", &messages::specifications()?)?,
        file("signature", &signature::signatures()?)?,
        file("upload", &messages::uploads()?)?,
        file("trusted", &trusted::vectors())?,
    ])
}

fn file(name: &str, vectors: &impl Serialize) -> anyhow::Result<(String, String)> {
    let json = serde_json::to_string_pretty(vectors).context("vectors as JSON")?;
    Ok((format!("tests/vectors/{name}.json"), json + "\n"))
}

/// A floating-point number: for people, and exactly.
#[derive(Serialize)]
struct Real {
    value: f64,
    bits: String,
}

impl From<f64> for Real {
    fn from(value: f64) -> Self {
        let bits = format!("{:016x}", value.to_bits());
        Self { value, bits }
    }
}

/// Both ends of an interval.
#[derive(Serialize)]
struct Ends {
    low: Real,
    high: Real,
}

impl From<bandana_shared::interval::Interval> for Ends {
    fn from(interval: bandana_shared::interval::Interval) -> Self {
        Self { low: interval.low().into(), high: interval.high().into() }
    }
}

/// Bytes in lower-case hexadecimal.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string can't fail.
        write!(text, "{byte:02x}").unwrap_or_default();
        text
    })
}

/// Words that look random and are the same in every run: Weyl's sequence
/// through the finaliser of SplitMix64.
fn word(index: u64) -> u64 {
    let mut z = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
