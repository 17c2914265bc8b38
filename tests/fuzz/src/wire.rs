//! Messages from the network, and the canonical encoding.

use std::collections::BTreeMap;

use bandana_shared::alphabet::{Alphabet, Symbol};
use bandana_shared::identity::{CellIndex, UnixSeconds};
use bandana_shared::policy::Policy;
use bandana_shared::signing::Signature;
use bandana_shared::specification::Specification;
use bandana_shared::upload::{PackedReports, Upload};
use bandana_shared::wire::{decode_specification, read_upload, v1};
use prost::Message as _;

use crate::input::byte;

fn alphabet(data: &mut &[u8]) -> Alphabet {
    Alphabet::new(u32::from(byte(data) % 15) + 2).unwrap_or(Alphabet::BITS)
}

/// A parsed upload survives a round trip.
pub fn upload(mut data: &[u8]) {
    let alphabet = alphabet(&mut data);
    let Ok(message) = v1::UploadRequest::decode(data) else { return };
    let Ok(upload) = read_upload(&message, alphabet) else { return };
    let bytes = upload.to_bytes();
    let again = v1::UploadRequest::decode(&bytes[..]).expect("what was written is a message");
    assert_eq!(read_upload(&again, alphabet).as_ref(), Ok(&upload));
    same_as_naive(&upload.reports, alphabet);
}

/// Reports as the format defines them, parsed bit by bit.
fn naive(runs: &[u32], bits: &[u8], alphabet: Alphabet) -> Vec<(u32, u8)> {
    let width = alphabet.bits_per_symbol();
    let bit = |place: usize| (bits[place / 8] >> (place % 8)) & 1;
    let mut place = 0;
    let mut reports = Vec::new();
    for run in runs.chunks_exact(2) {
        for _ in 0..run[1] {
            let symbol = (0..width).fold(0, |symbol, i| symbol | (bit(place + i) << i));
            reports.push((run[0], symbol));
            place += width;
        }
    }
    reports
}

/// Compares tallies with those of a bit-by-bit parser.
fn same_as_naive(reports: &PackedReports, alphabet: Alphabet) {
    let runs: Vec<u32> = reports.flat_runs().collect();
    let naive = naive(&runs, reports.bits(), alphabet);
    assert_eq!(naive.len(), reports.len());
    let mut wanted: BTreeMap<(u32, u8), u64> = BTreeMap::new();
    for report in naive {
        *wanted.entry(report).or_default() += 1;
    }
    for (arm, tally) in reports.tallies() {
        for symbol in alphabet.symbols() {
            let count = wanted.remove(&(arm.to_u32(), symbol.get())).unwrap_or_default();
            assert_eq!(tally.count(symbol), count, "{arm:?} {symbol:?}");
        }
    }
    assert!(wanted.is_empty(), "not tallied: {wanted:?}");
}

/// Packed reports are parsed as by a naive parser.
pub fn packed(mut data: &[u8]) {
    let alphabet = alphabet(&mut data);
    let pair = |pair: &[u8]| {
        let arm = CellIndex::new(usize::from(pair[0])).ok()?;
        Some((arm, Symbol::new(pair[1] % 16)?))
    };
    let reports: Vec<_> = data.chunks_exact(2).filter_map(pair).collect();
    let mut wanted: Vec<(u32, u8)> =
        reports.iter().map(|(arm, symbol)| (arm.to_u32(), symbol.get())).collect();
    let is_known = wanted.iter().all(|(_, symbol)| *symbol < alphabet.len());
    let packed = PackedReports::pack_symbols(reports, alphabet);
    assert_eq!(packed.is_ok(), is_known && !wanted.is_empty(), "{packed:?}");
    let Ok(packed) = packed else { return };
    same_as_naive(&packed, alphabet);
    let runs: Vec<u32> = packed.flat_runs().collect();
    // The order within an arm is preserved.
    wanted.sort_by_key(|(arm, _)| *arm);
    assert_eq!(naive(&runs, packed.bits(), alphabet), wanted);
    let read = PackedReports::symbols_from_packed(&runs, packed.bits(), alphabet);
    assert_eq!(read, Ok(packed));
}

/// A specification is accepted in its canonical encoding only.
pub fn specification(data: &[u8]) {
    let Ok(specification) = decode_specification(data) else { return };
    assert_eq!(specification.canonical_bytes(), data);
    same_when_written(&specification);
}

/// A valid specification message has one canonical encoding, which survives a round trip.
pub fn canonical(data: &[u8]) {
    let Ok(message) = v1::Specification::decode(data) else { return };
    let Ok(specification) = Specification::try_from(&message) else { return };
    same_when_written(&specification);
}

fn same_when_written(specification: &Specification) {
    let bytes = specification.canonical_bytes();
    let read = decode_specification(&bytes).expect("canonical bytes are read");
    assert_eq!((&read, read.digest()), (specification, specification.digest()));
    let message = v1::Specification::from(specification);
    assert_eq!(message.encode_to_vec(), bytes, "prost encodes it in the same way");
    let made = Specification::new(specification.to_parts()).expect("its parts are valid");
    assert_eq!(&made, specification);
}

/// A policy gives every arm its stated share, and never draws an arm of share 0.
pub fn policy(mut data: &[u8]) {
    let uniform = u32::from_le_bytes(crate::input::bytes(&mut data));
    let Ok(message) = v1::Policy::decode(data) else { return };
    let Ok(policy) = Policy::try_from(&message) else { return };
    let again = v1::Policy::from(&policy);
    assert_eq!(again.weights, message.weights);
    let arm = policy.weights.draw(uniform);
    assert!(policy.weights.get(arm.get()) > 0, "{arm:?} of {message:?}");
    let sum: f64 = (0..policy.weights.len()).map(|arm| policy.weights.share(arm)).sum();
    assert!((sum - 1.0).abs() < 1e-6, "{sum}");
    assert!(policy.weights.entropy().is_finite());
}

/// Signatures without the key never verify.
pub fn signatures(mut data: &[u8]) {
    let now = UnixSeconds::new(crate::input::u64(&mut data));
    let Ok(message) = v1::Experiment::decode(data) else { return };
    let specification = Specification::try_from(&message);
    for signature in bandana_shared::wire::signatures(&message.signatures) {
        let written = v1::SpecificationSignature::from(&signature);
        assert_eq!(Signature::try_from(&written).ok().as_ref(), Some(&signature));
        if let Ok(specification) = &specification {
            let fits = signature.fits(specification);
            let good = signature.verify(specification, now);
            assert!(fits || good.is_err());
        }
    }
    if let Ok(message) = v1::UploadRequest::decode(data) {
        // The bytes of one message type are given to parsers of others.
        Upload::try_from(&message).ok();
    }
}
