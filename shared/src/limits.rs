//! Every limit of the protocol, each with its reason.

/// Arms in one experiment. A policy of this size is 5 KiB on the wire, and its
/// Thompson weights take milliseconds to compute.
pub const ARMS_MAX: usize = 1024;

/// Bytes of an arm's label.
pub const LABEL_BYTES_MAX: usize = 128;

/// Characters of an experiment's id.
pub const EXPERIMENT_ID_CHARS_MAX: usize = 64;

/// Reports in one upload: 2 KiB of bits, 8 KiB of symbols. Larger batches gain nothing,
/// since the fixed part of an upload is already below one hundredth of its size.
pub const REPORTS_PER_UPLOAD_MAX: usize = 16_384;

/// Bytes of an encoded upload: the symbols of the largest number of reports, a run
/// for every arm, and the fixed fields, with room to spare.
pub const UPLOAD_BYTES_MAX: usize = 16 * 1024;

/// Seconds that rewards can count after a choice: 90 days.
pub const ATTRIBUTION_WINDOW_SECONDS_MAX: u32 = 90 * 86_400;

/// Seconds of random delay before a report is released: 7 days.
pub const RELEASE_DELAY_SECONDS_MAX: u32 = 7 * 86_400;

/// Signatures of one specification that are kept and looked at: those of an
/// operator and a witness, those of the keys that follow them, and as many again.
/// A device checks no more, whatever a server sends.
pub const SIGNATURES_MAX: usize = 8;

/// Days that a signature can be good for: ten years. One without an end could
/// never be taken back.
pub const SIGNATURE_DAYS_MAX: u32 = 3650;

// Two varints of at most 3 bytes for each arm, a byte for two reports of the largest
// alphabet, and 64 bytes for id, digest, day and the tags.
const _: () = assert!(ARMS_MAX * 6 + REPORTS_PER_UPLOAD_MAX / 2 + 64 <= UPLOAD_BYTES_MAX);
