//! Uploads: reports that are sent together.

use thiserror::Error;

use crate::alphabet::{Alphabet, Symbol};
use crate::canonical::Writer;
use crate::identity::{CellIndex, Day, Digest, UploadId};
use crate::limits::REPORTS_PER_UPLOAD_MAX;
use crate::tally::Tally;

/// Private reports sorted by cell: a packed run of symbols for each cell. The symbols are bits unless
/// another alphabet is given.
///
/// ```
/// use bandana_shared::identity::CellIndex;
/// use bandana_shared::upload::PackedReports;
/// let (first, third) = (CellIndex::new(0)?, CellIndex::new(2)?);
/// let reports = PackedReports::pack(vec![(third, true), (first, false), (third, false)])?;
/// let tallies: Vec<_> = reports.tallies().collect();
/// assert_eq!(tallies[1].0, third);
/// assert_eq!((tallies[1].1.reports(), tallies[1].1.ones()), (2, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedReports {
    /// Strictly ascending cells, each with its number of reports, at least 1.
    runs: Vec<(CellIndex, u32)>,
    alphabet: Alphabet,
    /// [`Alphabet::bits_per_symbol`] bits for each report, the first reports in the least
    /// significant bits. Eight bits, four pairs or two nibbles to a byte.
    bits: Vec<u8>,
}

impl PackedReports {
    /// A single report.
    pub fn single(cell: CellIndex, bit: bool) -> Self {
        Self { runs: vec![(cell, 1)], alphabet: Alphabet::BITS, bits: vec![u8::from(bit)] }
    }

    /// Sorts and packs reports. Their order within a cell is kept.
    ///
    /// # Errors
    /// [`UploadError::ReportCount`] for no reports, and for more than [`REPORTS_PER_UPLOAD_MAX`].
    pub fn pack(reports: Vec<(CellIndex, bool)>) -> Result<Self, UploadError> {
        let reports = reports.into_iter().map(|(cell, bit)| (cell, Symbol::from(bit)));
        Self::pack_symbols(reports.collect(), Alphabet::BITS)
    }

    /// Like [`Self::pack`], for reports of these symbols.
    ///
    /// # Errors
    /// As [`Self::pack`], and [`UploadError::UnknownSymbol`].
    pub fn pack_symbols(
        mut reports: Vec<(CellIndex, Symbol)>,
        alphabet: Alphabet,
    ) -> Result<Self, UploadError> {
        check_count(reports.len() as u64)?;
        reports.sort_by_key(|&(cell, _)| cell);
        let mut runs: Vec<(CellIndex, u32)> = Vec::new();
        let width = alphabet.bits_per_symbol();
        let mut bits = vec![0; (reports.len() * width).div_ceil(8)];
        for (place, (cell, symbol)) in reports.into_iter().enumerate() {
            if !alphabet.contains(symbol) {
                return Err(UploadError::UnknownSymbol { symbol: symbol.get(), alphabet });
            }
            match runs.last_mut() {
                Some((last, count)) if *last == cell => *count += 1,
                _ => runs.push((cell, 1)),
            }
            bits[place * width / 8] |= symbol.get() << (place * width % 8);
        }
        Ok(Self { runs, alphabet, bits })
    }

    /// Checks runs and bits from another party: flattened pairs of cell and number of reports, and
    /// the bits in their order.
    ///
    /// # Errors
    /// [`UploadError`] for the first rule that is broken.
    pub fn from_packed(runs: &[u32], bits: &[u8]) -> Result<Self, UploadError> {
        Self::symbols_from_packed(runs, bits, Alphabet::BITS)
    }

    /// Like [`Self::from_packed`], for reports of these symbols.
    ///
    /// # Errors
    /// [`UploadError`] for the first rule that is broken.
    pub fn symbols_from_packed(
        runs: &[u32],
        bits: &[u8],
        alphabet: Alphabet,
    ) -> Result<Self, UploadError> {
        let runs = check_runs(runs)?;
        let reports: usize = runs.iter().map(|&(_, count)| count as usize).sum();
        let width = alphabet.bits_per_symbol();
        let expected = (reports * width).div_ceil(8);
        if bits.len() != expected {
            return Err(UploadError::BitLength { bytes: bits.len(), reports, expected });
        }
        let unused = expected * 8 - reports * width;
        if unused > 0 && bits[expected - 1] >> (8 - unused) != 0 {
            return Err(UploadError::UnusedBits);
        }
        let packed = Self { runs, alphabet, bits: bits.to_vec() };
        if u32::from(alphabet.len()) < 1 << width {
            let mut symbols = (0..reports).map(|place| packed.symbol(place));
            if let Some(symbol) = symbols.find(|symbol| *symbol >= alphabet.len()) {
                return Err(UploadError::UnknownSymbol { symbol, alphabet });
            }
        }
        Ok(packed)
    }

    /// The number of the symbol of the report at this index.
    fn symbol(&self, place: usize) -> u8 {
        let width = self.alphabet.bits_per_symbol();
        let mask = (1 << width) - 1;
        (self.bits[place * width / 8] >> (place * width % 8)) & mask
    }

    /// The alphabet of the reports.
    pub fn alphabet(&self) -> Alphabet {
        self.alphabet
    }

    /// Number of reports, 1 to [`REPORTS_PER_UPLOAD_MAX`].
    pub fn len(&self) -> usize {
        self.runs.iter().map(|&(_, count)| count as usize).sum()
    }

    /// Always false, since an upload carries at least one report.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The largest index of a cell.
    pub fn last_cell(&self) -> Option<CellIndex> {
        self.runs.last().map(|&(cell, _)| cell)
    }

    /// The tally of each cell that occurs, in ascending order of the cells.
    pub fn tallies(&self) -> impl Iterator<Item = (CellIndex, Tally)> + '_ {
        let mut start = 0;
        self.runs.iter().map(move |&(cell, count)| {
            let end = start + count as usize;
            let tally = self.tally(start, end);
            start = end;
            (cell, tally)
        })
    }

    /// The tally of the reports `start..end`.
    fn tally(&self, start: usize, end: usize) -> Tally {
        let reports = (end - start) as u64;
        let tally = if self.alphabet == Alphabet::BITS {
            Tally::new(reports, count_ones(&self.bits, start, end))
        } else {
            let mut counts = [0_u64; Alphabet::MAX as usize];
            for place in start..end {
                counts[usize::from(self.symbol(place))] += 1;
            }
            Tally::with_symbols(reports, self.alphabet.symbols().zip(counts))
        };
        // The counts are of these reports.
        tally.unwrap_or_default()
    }

    /// The runs as sent on the wire.
    pub fn flat_runs(&self) -> impl Iterator<Item = u32> + Clone + '_ {
        flatten(&self.runs)
    }

    /// The packed symbols.
    pub fn bits(&self) -> &[u8] {
        &self.bits
    }
}

/// Number of ones among the bits `start..end`.
fn count_ones(bits: &[u8], start: usize, end: usize) -> u64 {
    let ones = |bytes: &[u8]| -> u64 {
        let (words, rest) = bytes.as_chunks::<8>();
        let in_words: u32 = words.iter().map(|word| u64::from_le_bytes(*word).count_ones()).sum();
        let in_rest: u32 = rest.iter().map(|byte| byte.count_ones()).sum();
        u64::from(in_words + in_rest)
    };
    let (first, last) = (start / 8, end / 8);
    // Whole bytes from `first` to `last`, minus the bits before `start`, plus the bits of the last
    // byte before `end`.
    let before = (bits[first] & low_mask(start % 8)).count_ones();
    let after =
        if end.is_multiple_of(8) { 0 } else { (bits[last] & low_mask(end % 8)).count_ones() };
    ones(&bits[first..last]) + u64::from(after) - u64::from(before)
}

/// A byte whose `count` lowest bits are set, `count < 8`.
fn low_mask(count: usize) -> u8 {
    (1 << count) - 1
}

/// Checks flattened pairs of cell and number of reports.
fn check_runs(runs: &[u32]) -> Result<Vec<(CellIndex, u32)>, UploadError> {
    let (pairs, []) = runs.as_chunks::<2>() else {
        return Err(UploadError::OddRuns);
    };
    check_count(pairs.iter().map(|&[_, count]| u64::from(count)).sum())?;
    let mut checked: Vec<(CellIndex, u32)> = Vec::with_capacity(pairs.len());
    for &[cell, count] in pairs {
        let cell = CellIndex::new(cell as usize).map_err(|_| UploadError::UnknownCell { cell })?;
        if count == 0 {
            return Err(UploadError::EmptyRun { cell });
        }
        if checked.last().is_some_and(|&(last, _)| last >= cell) {
            return Err(UploadError::UnsortedRuns { cell });
        }
        checked.push((cell, count));
    }
    Ok(checked)
}

fn check_count(reports: u64) -> Result<(), UploadError> {
    if (1..=REPORTS_PER_UPLOAD_MAX as u64).contains(&reports) {
        Ok(())
    } else {
        Err(UploadError::ReportCount { reports })
    }
}

/// An upload. It has reports, the specification under which they were made, and the name under
/// which they count once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    /// A random id. It is unique together with the day.
    pub id: UploadId,
    /// The specification under which the reports were made.
    pub digest: Digest,
    /// The server's day, as the device last received it.
    pub day: Day,
    /// The reports.
    pub reports: PackedReports,
}

impl Upload {
    /// Appends the canonical encoding of `bandana.v1.UploadRequest`.
    pub fn encode_into(&self, buffer: &mut Vec<u8>) {
        let PackedReports { runs, bits, .. } = &self.reports;
        encode((&self.id, &self.digest, self.day), runs, bits, buffer);
    }

    /// Appends the same bytes as [`Self::encode_into`] does for a single report, without
    /// allocating. The bytes do not depend on the alphabet, and their number does not depend on the
    /// symbol.
    pub fn encode_single_into(
        (id, digest, day): (UploadId, Digest, Day),
        (cell, symbol): (CellIndex, impl Into<Symbol>),
        buffer: &mut Vec<u8>,
    ) {
        encode((&id, &digest, day), &[(cell, 1)], &[symbol.into().get()], buffer);
    }

    /// The canonical encoding of `bandana.v1.UploadRequest`.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut buffer = Vec::with_capacity(64 + self.reports.bits().len());
        self.encode_into(&mut buffer);
        buffer
    }
}

/// Runs as sent on the wire: cells and numbers of reports in turn.
fn flatten(runs: &[(CellIndex, u32)]) -> impl Iterator<Item = u32> + Clone + '_ {
    runs.iter().flat_map(|&(cell, count)| [cell.to_u32(), count])
}

/// Appends the canonical encoding of `bandana.v1.UploadRequest`.
fn encode(
    (id, digest, day): (&UploadId, &Digest, Day),
    runs: &[(CellIndex, u32)],
    bits: &[u8],
    buffer: &mut Vec<u8>,
) {
    let mut writer = Writer::new(buffer);
    writer.bytes(1, id.as_bytes());
    writer.bytes(2, digest.as_bytes());
    writer.varint(3, u64::from(day.get()));
    writer.packed(4, flatten(runs));
    writer.bytes(5, bits);
}

/// An upload that violates the protocol.
#[derive(Clone, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum UploadError {
    /// The id or the digest has the wrong length.
    #[error("the upload can't be identified")]
    Identity(#[from] crate::identity::IdentityError),
    /// There are no reports, or too many.
    #[error(
        "an upload carries 1 to {max} reports; this one has {reports}",
        max = REPORTS_PER_UPLOAD_MAX
    )]
    ReportCount {
        /// The number of reports.
        reports: u64,
    },
    /// The experiment does not have the cell.
    #[error("arm {cell} is not one of the specification's arms")]
    UnknownCell {
        /// The index.
        cell: u32,
    },
    /// The runs have an odd number of entries.
    #[error("runs must be pairs of an arm and a number of reports")]
    OddRuns,
    /// A run has no reports.
    #[error("the run of arm {cell} has no reports; leave it out")]
    EmptyRun {
        /// The cell.
        cell: CellIndex,
    },
    /// The runs are out of order, or two have the same cell.
    #[error("the run of arm {cell} is out of order; arms must be strictly ascending")]
    UnsortedRuns {
        /// The cell.
        cell: CellIndex,
    },
    /// Bits and runs differ in length.
    #[error("{reports} reports need {expected} bytes of bits; got {bytes}")]
    BitLength {
        /// Length of the bits.
        bytes: usize,
        /// Number of reports according to the runs.
        reports: usize,
        /// Correct length of the bits.
        expected: usize,
    },
    /// The channel does not have the symbol.
    #[error(
        "a report says {symbol}; the specification has {} symbols, counted from 0", alphabet.len()
    )]
    UnknownSymbol {
        /// The symbol's number.
        symbol: u8,
        /// Number of symbols of the channel.
        alphabet: Alphabet,
    },
    /// Unused bits after the last report are not zero.
    #[error("the unused bits of the last byte must be zero")]
    UnusedBits,
}

crate::debug_says!(UploadError);
