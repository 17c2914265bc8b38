//! Uploads: packing, encoding, and refusals.

#![cfg(test)]
#![cfg(feature = "messages")]

use std::collections::BTreeMap;

use bandana_shared::alphabet::{Alphabet, Symbol};
use bandana_shared::identity::{CellIndex, Day, Digest, IdentityError, UploadId};
use bandana_shared::limits::{ARMS_MAX, REPORTS_PER_UPLOAD_MAX, UPLOAD_BYTES_MAX};
use bandana_shared::tally::Tally;
use bandana_shared::upload::{PackedReports, Upload, UploadError};
use bandana_shared::wire::{read_upload, v1};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use prost::Message as _;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;

fn cell(index: usize) -> CellIndex {
    CellIndex::new(index).unwrap()
}

fn reports() -> impl Strategy<Value = Vec<(CellIndex, bool)>> {
    let cells = prop_oneof![0..3_usize, 0..ARMS_MAX, 120..140_usize];
    vec((cells.prop_map(cell), any::<bool>()), 1..300)
}

fn uploads() -> impl Strategy<Value = Upload> {
    (any::<[u8; 16]>(), any::<[u8; 16]>(), any::<u32>(), reports()).prop_map(
        |(id, digest, day, reports)| Upload {
            id: UploadId::new(id),
            digest: Digest::new(digest),
            day: Day::new(day),
            reports: PackedReports::pack(reports).unwrap(),
        },
    )
}

/// The message of an upload, field by field.
fn message(upload: &Upload) -> v1::UploadRequest {
    v1::UploadRequest {
        upload_id: upload.id.as_bytes().to_vec().into(),
        digest: upload.digest.as_bytes().to_vec().into(),
        day: upload.day.get(),
        runs: upload.reports.flat_runs().collect(),
        bits: upload.reports.bits().to_vec().into(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        rng_seed: RngSeed::Fixed(31),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn bytes_are_what_prost_writes_and_decode_to_the_same(upload in uploads()) {
        let bytes = upload.to_bytes();
        prop_assert_eq!(&bytes, &message(&upload).encode_to_vec());
        let decoded = v1::UploadRequest::decode(&bytes[..]).unwrap();
        prop_assert_eq!(&Upload::try_from(&decoded).unwrap(), &upload);
        // Encoding appends.
        let mut buffer = vec![1, 2, 3];
        upload.encode_into(&mut buffer);
        prop_assert_eq!(&buffer[3..], &bytes[..]);
    }

    #[test]
    fn packed_reports_keep_every_bit_in_its_place(reports in reports()) {
        let packed = PackedReports::pack(reports.clone()).unwrap();
        // The model: a list of bits for each cell.
        let mut model: BTreeMap<CellIndex, Vec<bool>> = BTreeMap::new();
        for &(cell, bit) in &reports {
            model.entry(cell).or_default().push(bit);
        }
        let tallies: BTreeMap<CellIndex, Tally> = packed.tallies().collect();
        let expected: BTreeMap<CellIndex, Tally> = model
            .iter()
            .map(|(&cell, bits)| (cell, bits.iter().map(|&bit| Tally::of_bit(bit)).sum()))
            .collect();
        prop_assert_eq!(tallies, expected);
        let runs: Vec<u32> = model
            .iter()
            .flat_map(|(cell, bits)| [cell.to_u32(), u32::try_from(bits.len()).unwrap()])
            .collect();
        prop_assert!(packed.flat_runs().eq(runs.iter().copied()));
        let in_order = model.values().flatten();
        for (place, &bit) in in_order.enumerate() {
            prop_assert_eq!(packed.bits()[place / 8] >> (place % 8) & 1 == 1, bit);
        }
        prop_assert_eq!(packed.len(), reports.len());
        prop_assert_eq!(packed.last_cell(), model.keys().last().copied());
        prop_assert_eq!(PackedReports::from_packed(&runs, packed.bits()), Ok(packed));
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        rng_seed: RngSeed::Fixed(33),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_single_report_has_the_same_bytes_either_way(
        id in any::<[u8; 16]>(),
        day in any::<u32>(),
        index in 0..ARMS_MAX,
        bit in any::<bool>(),
    ) {
        let (id, digest, day) = (UploadId::new(id), Digest::new([9; 16]), Day::new(day));
        let reports = PackedReports::single(cell(index), bit);
        let mut buffer = Vec::new();
        Upload::encode_single_into((id, digest, day), (cell(index), bit), &mut buffer);
        prop_assert_eq!(buffer, Upload { id, digest, day, reports }.to_bytes());
    }
}

/// Reports of an alphabet: symbols are taken modulo their number.
fn symbols() -> impl Strategy<Value = (Alphabet, Vec<(CellIndex, Symbol)>)> {
    let cells = prop_oneof![0..3_usize, 0..ARMS_MAX];
    let reports = vec((cells.prop_map(cell), any::<u8>()), 1..200);
    (Alphabet::MIN..=Alphabet::MAX, reports).prop_map(|(symbols, reports)| {
        let alphabet = Alphabet::new(symbols).unwrap();
        let symbol = |number: u8| Symbol::new(number % alphabet.len()).unwrap();
        (alphabet, reports.into_iter().map(|(cell, number)| (cell, symbol(number))).collect())
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        rng_seed: RngSeed::Fixed(35),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn packed_symbols_travel_and_add_up((alphabet, reports) in symbols()) {
        let packed = PackedReports::pack_symbols(reports.clone(), alphabet).unwrap();
        let mut model: BTreeMap<CellIndex, Tally> = BTreeMap::new();
        for (cell, symbol) in &reports {
            *model.entry(*cell).or_default() += Tally::of_symbol(*symbol);
        }
        prop_assert_eq!(packed.tallies().collect::<BTreeMap<_, _>>(), model.clone());
        prop_assert!(model.values().all(|tally| !tally.exceeds(alphabet)));
        let width = alphabet.bits_per_symbol();
        prop_assert_eq!(packed.bits().len(), (reports.len() * width).div_ceil(8));
        let upload = Upload {
            id: UploadId::new([1; 16]),
            digest: Digest::new([2; 16]),
            day: Day::new(3),
            reports: packed,
        };
        let message = v1::UploadRequest::decode(&upload.to_bytes()[..]).unwrap();
        prop_assert_eq!(read_upload(&message, alphabet), Ok(upload));
        // A report has the same length for every symbol.
        let (cell, symbol) = reports[0];
        let mut single = Vec::new();
        let names = (UploadId::new([1; 16]), Digest::new([2; 16]), Day::new(3));
        Upload::encode_single_into(names, (cell, symbol), &mut single);
        let one = PackedReports::pack_symbols(vec![(cell, symbol)], alphabet).unwrap();
        let (id, digest, day) = names;
        prop_assert_eq!(single, Upload { id, digest, day, reports: one }.to_bytes());
    }
}

#[test]
fn symbols_that_there_are_not_are_refused() {
    use UploadError as E;
    let of = |symbols| Alphabet::new(symbols).unwrap();
    let unknown = |symbol, symbols| E::UnknownSymbol { symbol, alphabet: of(symbols) };
    for (symbols, runs, bits, expected) in [
        (3, &[0, 2][..], &[0b1100_u8][..], Some(unknown(3, 3))),
        (3, &[0, 2], &[0b1000], None),
        (4, &[0, 4], &[0xff], None),
        (6, &[0, 2], &[0x65], Some(unknown(6, 6))),
        (6, &[0, 1, 4, 1], &[0x55], None),
        (16, &[0, 2], &[0xff], None),
        (6, &[0, 1], &[0x15], Some(E::UnusedBits)),
        (6, &[0, 3], &[0x55], Some(E::BitLength { bytes: 1, reports: 3, expected: 2 })),
    ] {
        let read = PackedReports::symbols_from_packed(runs, bits, of(symbols));
        assert_eq!(read.as_ref().err(), expected.as_ref(), "{symbols} {runs:?} {bits:?}");
    }
    let symbol = Symbol::new(5).unwrap();
    let refused = PackedReports::pack_symbols(vec![(cell(0), symbol)], of(5));
    assert_eq!(refused, Err(unknown(5, 5)));
}

#[test]
fn golden_bytes_of_one_report() {
    let upload = Upload {
        id: UploadId::new([0x11; 16]),
        digest: Digest::new([0x22; 16]),
        day: Day::new(20_000),
        reports: PackedReports::single(cell(300), true),
    };
    let by_hand: Vec<u8> = [
        &[0x0a, 16][..],
        &[0x11; 16],
        &[0x12, 16],
        &[0x22; 16],
        &[0x18, 0xa0, 0x9c, 0x01],
        &[0x22, 3, 0xac, 0x02, 0x01],
        &[0x2a, 1, 0x01],
    ]
    .concat();
    assert_eq!(upload.to_bytes(), by_hand);
    assert_eq!(
        PackedReports::pack(vec![(cell(300), true)]),
        Ok(PackedReports::single(cell(300), true))
    );
}

#[test]
fn the_largest_upload_fits_its_limit() {
    let alphabet = Alphabet::new(Alphabet::MAX).unwrap();
    let reports = (0..REPORTS_PER_UPLOAD_MAX)
        .map(|place| (cell(ARMS_MAX - 1 - place % ARMS_MAX), (place % 3 == 0).into()))
        .collect();
    let upload = Upload {
        id: UploadId::new([1; 16]),
        digest: Digest::new([2; 16]),
        day: Day::new(u32::MAX),
        reports: PackedReports::pack_symbols(reports, alphabet).unwrap(),
    };
    let bytes = upload.to_bytes();
    assert!(bytes.len() <= UPLOAD_BYTES_MAX, "{}", bytes.len());
    let decoded = v1::UploadRequest::decode(&bytes[..]).unwrap();
    assert_eq!(read_upload(&decoded, alphabet), Ok(upload));
}

#[test]
fn every_upload_error_has_its_cause() {
    use UploadError as E;
    let most = u32::try_from(REPORTS_PER_UPLOAD_MAX).unwrap();
    let too_many = u64::from(most) + 1;
    for (runs, bits, expected) in [
        (&[0, 1, 2][..], &[1][..], E::OddRuns),
        (&[], &[], E::ReportCount { reports: 0 }),
        (&[0, most, 1, 1], &[0; 2049], E::ReportCount { reports: too_many }),
        (&[0, u32::MAX, 1, u32::MAX], &[0], E::ReportCount { reports: 2 * u64::from(u32::MAX) }),
        (&[1024, 1], &[0], E::UnknownCell { cell: 1024 }),
        (&[u32::MAX, 1], &[0], E::UnknownCell { cell: u32::MAX }),
        (&[0, 1, 1, 0], &[0], E::EmptyRun { cell: cell(1) }),
        (&[1, 1, 1, 1], &[0], E::UnsortedRuns { cell: cell(1) }),
        (&[2, 1, 1, 1], &[0], E::UnsortedRuns { cell: cell(1) }),
        (&[0, 8], &[0, 0], E::BitLength { bytes: 2, reports: 8, expected: 1 }),
        (&[0, 9], &[0], E::BitLength { bytes: 1, reports: 9, expected: 2 }),
        (&[0, 9], &[0, 0b10], E::UnusedBits),
        (&[0, 7], &[0x80], E::UnusedBits),
    ] {
        assert_eq!(PackedReports::from_packed(runs, bits), Err(expected), "{runs:?}");
    }
    assert_eq!(PackedReports::pack(vec![]), Err(E::ReportCount { reports: 0 }));
    let crowd = vec![(cell(0), true); REPORTS_PER_UPLOAD_MAX + 1];
    assert_eq!(PackedReports::pack(crowd), Err(E::ReportCount { reports: too_many }));
}

#[test]
fn uploads_without_a_proper_name_are_refused() {
    use UploadError as E;
    let valid = message(&Upload {
        id: UploadId::new([1; 16]),
        digest: Digest::new([2; 16]),
        day: Day::new(3),
        reports: PackedReports::single(cell(0), true),
    });
    let mut nameless = valid.clone();
    nameless.upload_id = vec![1; 15].into();
    assert_eq!(Upload::try_from(&nameless), Err(E::Identity(IdentityError::UploadId(15))));
    let mut unspecified = valid;
    unspecified.digest.clear();
    assert_eq!(Upload::try_from(&unspecified), Err(E::Identity(IdentityError::Digest(0))));
}

#[test]
fn mutated_and_random_bytes_never_panic() {
    let mut random = ChaCha8Rng::seed_from_u64(32);
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..20_000 {
        let length = random.random_range(1..60);
        let reports =
            (0..length).map(|_| (cell(random.random_range(0..5)), random.random())).collect();
        let upload = Upload {
            id: UploadId::new(random.random()),
            digest: Digest::new(random.random()),
            day: Day::new(random.next_u32() >> 16),
            reports: PackedReports::pack(reports).unwrap(),
        };
        let mut bytes = upload.to_bytes();
        for _ in 0..random.random_range(1..4) {
            let place = random.random_range(0..bytes.len());
            match random.random_range(0..3) {
                0 => bytes.insert(place, random.random()),
                1 => drop(bytes.remove(place)),
                _ => bytes[place] ^= 1 << (random.next_u32() % 8),
            }
        }
        let Ok(message) = v1::UploadRequest::decode(&bytes[..]) else {
            continue;
        };
        match Upload::try_from(&message) {
            Ok(upload) => {
                accepted += 1;
                let reports: u64 = upload.reports.tallies().map(|(_, t)| t.reports()).sum();
                assert_eq!(reports, upload.reports.len() as u64);
                let again = v1::UploadRequest::decode(&upload.to_bytes()[..]).unwrap();
                assert_eq!(Upload::try_from(&again), Ok(upload));
            }
            Err(_) => refused += 1,
        }
    }
    assert!(accepted > 1000 && refused > 1000, "{accepted} {refused}");
}
