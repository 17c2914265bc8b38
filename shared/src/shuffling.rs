//! Reports on their way through a relay that shuffles: the size of batches, and both layers of seals.
//!
//! A device seals a [`ShuffledReport`] for the aggregator and puts it into an [`Envelope`]. It
//! seals the envelope for the relay. `proto/bandana/v1/shuffling.proto` describes the whole way.
//! All integers are big endian. All lengths are fixed, so a size tells nothing.

use thiserror::Error;

use crate::accounting::shuffling::{REPORTS_MAX, Shuffling};
use crate::channel::Channel;
use crate::gateway::SEALING_BYTES;
use crate::identity::{CellIndex, Day, Digest, UploadId};

/// The number of reports for one arm that a relay hands on together: 2 to 16,384.
///
/// ```
/// use bandana_shared::shuffling::BatchSize;
/// assert_eq!(BatchSize::new(1000)?.get(), 1000);
/// assert!(BatchSize::new(1).is_err());
/// # Ok::<(), bandana_shared::shuffling::BatchSizeError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchSize(u32);

impl BatchSize {
    /// Checks the range.
    ///
    /// # Errors
    /// [`BatchSizeError`] unless `reports` is 2 to 16,384.
    pub fn new(reports: u32) -> Result<Self, BatchSizeError> {
        if (2..=REPORTS_MAX).contains(&reports) {
            Ok(Self(reports))
        } else {
            Err(BatchSizeError(reports))
        }
    }

    /// The number of reports.
    pub fn get(self) -> u32 {
        self.0
    }

    /// The certificate of a batch of this channel's bits, while `colluders` of a thousand people
    /// who report collude with the observer. Their number is rounded up. `None` if the channel
    /// sends no bits, or if nobody in the batch is honest.
    pub fn certificate(self, channel: Channel, colluders: Permille) -> Option<Shuffling> {
        let Channel::Bit(floor) = channel else { return None };
        Shuffling::new(floor, self.0 - colluders.of(self.0)).ok()
    }
}

/// A batch of another size.
#[derive(Clone, Copy, Error, PartialEq, Eq)]
#[error("a batch has 2 to {REPORTS_MAX} reports; got {0}")]
pub struct BatchSizeError(u32);

crate::debug_says!(BatchSizeError);

/// Thousandths of a whole, 0 to 1000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permille(u16);

impl Permille {
    /// No colluders.
    pub const ZERO: Self = Self(0);

    /// Checks the range. Returns `None` for more than 1000.
    pub fn new(parts: u16) -> Option<Self> {
        (parts <= 1000).then_some(Self(parts))
    }

    /// The number of thousandths.
    pub fn get(self) -> u16 {
        self.0
    }

    /// This share of `whole`, rounded up.
    ///
    /// ```
    /// use bandana_shared::shuffling::Permille;
    /// let tenth = Permille::new(100);
    /// assert_eq!(tenth.map(|tenth| [0, 10, 11].map(|whole| tenth.of(whole))), Some([0, 1, 2]));
    /// ```
    pub fn of(self, whole: u32) -> u32 {
        let parts = (u64::from(whole) * u64::from(self.0)).div_ceil(1000);
        // At most the whole.
        u32::try_from(parts).unwrap_or(whole)
    }
}

/// The content that a device seals for the aggregator: one private bit, with its specification and
/// arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShuffledReport {
    /// The digest of the specification.
    pub digest: Digest,
    /// The arm, or the cell in an experiment with segments or metrics.
    pub cell: CellIndex,
    /// The private bit.
    pub bit: bool,
}

impl ShuffledReport {
    /// The length of a report before it is sealed.
    pub const BYTES: usize = 16 + 4 + 1;
    /// The length of a sealed report.
    pub const SEALED_BYTES: usize = Self::BYTES + SEALING_BYTES;

    /// The bytes to be sealed.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..16].copy_from_slice(self.digest.as_bytes());
        bytes[16..20].copy_from_slice(&self.cell.to_u32().to_be_bytes());
        bytes[20] = self.bit.into();
        bytes
    }

    /// Reads opened bytes. Returns `None` if they are no report.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let (digest, rest) = bytes.split_first_chunk()?;
        let (cell, bit) = rest.split_first_chunk()?;
        let bit = match bit {
            [0] => false,
            [1] => true,
            _ => return None,
        };
        Some(Self { digest: Digest::new(*digest), cell: cell_index(*cell)?, bit })
    }
}

/// The content that a device seals for the relay: a sealed report, and all that the relay needs to
/// know about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The upload's id. Together with `day` it makes the report count once.
    pub id: UploadId,
    /// The day that the upload carries.
    pub day: Day,
    /// The digest of the specification.
    pub digest: Digest,
    /// The arm, or the cell in an experiment with segments or metrics.
    pub cell: CellIndex,
    /// The number of reports of a batch, as in the specification.
    pub batch: BatchSize,
    /// The digest of the aggregator's keys that the report is sealed for: all of a batch are the
    /// same, so that a key for few devices hides none of them.
    pub keys: [u8; 16],
    /// A report, sealed for the aggregator.
    pub report: [u8; ShuffledReport::SEALED_BYTES],
}

impl Envelope {
    /// The length of an envelope before it is sealed.
    pub const BYTES: usize = 16 + 4 + 16 + 4 + 4 + 16 + ShuffledReport::SEALED_BYTES;
    /// The length of a sealed envelope.
    pub const SEALED_BYTES: usize = Self::BYTES + SEALING_BYTES;

    /// The bytes to be sealed.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::BYTES);
        bytes.extend(self.id.as_bytes());
        bytes.extend(self.day.get().to_be_bytes());
        bytes.extend(self.digest.as_bytes());
        bytes.extend(self.cell.to_u32().to_be_bytes());
        bytes.extend(self.batch.get().to_be_bytes());
        bytes.extend(self.keys);
        bytes.extend(self.report);
        bytes
    }

    /// Reads opened bytes. Returns `None` if they are no envelope.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (id, rest) = bytes.split_first_chunk()?;
        let (day, rest) = rest.split_first_chunk()?;
        let (digest, rest) = rest.split_first_chunk()?;
        let (cell, rest) = rest.split_first_chunk()?;
        let (batch, rest) = rest.split_first_chunk()?;
        let (keys, report) = rest.split_first_chunk()?;
        Some(Self {
            id: UploadId::new(*id),
            day: Day::new(u32::from_be_bytes(*day)),
            digest: Digest::new(*digest),
            cell: cell_index(*cell)?,
            batch: BatchSize::new(u32::from_be_bytes(*batch)).ok()?,
            keys: *keys,
            report: report.try_into().ok()?,
        })
    }
}

fn cell_index(bytes: [u8; 4]) -> Option<CellIndex> {
    CellIndex::new(usize::try_from(u32::from_be_bytes(bytes)).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounting::delta::Delta;
    use crate::channel::Floor;
    use crate::epsilon::Epsilon;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let cell = CellIndex::new(1023).unwrap();
        let report = ShuffledReport { digest: Digest::new([7; 16]), cell, bit: true };
        let bytes = report.to_bytes();
        assert_eq!(ShuffledReport::from_bytes(&bytes), Some(report));
        let other = |place: usize, byte: u8| {
            let mut bytes = bytes;
            bytes[place] = byte;
            ShuffledReport::from_bytes(&bytes)
        };
        assert_eq!(other(20, 0), Some(ShuffledReport { bit: false, ..report }));
        assert_eq!((other(20, 2), other(16, 1)), (None, None));
        assert_eq!(ShuffledReport::from_bytes(&bytes[..20]), None);

        let envelope = Envelope {
            id: UploadId::new([1; 16]),
            day: Day::new(20_000),
            digest: report.digest,
            cell,
            batch: BatchSize::new(1000).unwrap(),
            keys: [5; 16],
            report: [9; ShuffledReport::SEALED_BYTES],
        };
        let bytes = envelope.to_bytes();
        assert_eq!(bytes.len(), Envelope::BYTES);
        assert_eq!(Envelope::from_bytes(&bytes), Some(envelope));
        assert_eq!(Envelope::from_bytes(&bytes[1..]), None);
        assert_eq!(Envelope::from_bytes(&[&bytes[..], &[0]].concat()), None);
        let without_batch = [&bytes[..40], &[0, 0, 0, 1], &bytes[44..]].concat();
        assert_eq!(Envelope::from_bytes(&without_batch), None);
    }

    #[test]
    fn colluders_are_no_cover() {
        let channel = Floor::for_epsilon(Epsilon::new(1.0).unwrap()).into();
        let batch = BatchSize::new(1001).unwrap();
        let loss = |colluders| {
            let certificate = batch.certificate(channel, Permille::new(colluders)?)?;
            Some(certificate.loss(Delta::new(1e-6).unwrap()).get())
        };
        let (none, tenth, most) = (loss(0).unwrap(), loss(100).unwrap(), loss(999).unwrap());
        assert!(none < tenth && tenth < 0.15 && most > 0.99, "{none} {tenth} {most}");
        // A single one of a thousand counts for two of 1001.
        let two_less = Shuffling::new(Floor::for_epsilon(Epsilon::new(1.0).unwrap()), 999).unwrap();
        assert_eq!(batch.certificate(channel, Permille(1)), Some(two_less));
        assert_eq!((loss(1000), Permille::new(1001)), (None, None));
    }
}
