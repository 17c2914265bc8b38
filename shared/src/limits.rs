//! Every limit of the protocol, each with its reason.

/// Largest number of arms in one experiment. A policy of this size is 5 KiB on the wire, and its
/// Thompson weights take milliseconds to compute.
pub const ARMS_MAX: usize = 1024;

/// Largest number of weights of a policy: one for each arm, and one for each arm in each segment.
pub const WEIGHTS_MAX: usize = 2 * ARMS_MAX;

/// Largest size of an arm's label, in bytes.
pub const LABEL_BYTES_MAX: usize = 128;

/// Largest number of characters of an experiment's id.
pub const EXPERIMENT_ID_CHARS_MAX: usize = 64;

/// Largest number of characters of a layer's name, the same as of an experiment's id.
pub const LAYER_NAME_CHARS_MAX: usize = EXPERIMENT_ID_CHARS_MAX;

/// Largest number of characters of the name of a metric or a segmentation, the same as of an
/// experiment's id.
pub const NAME_CHARS_MAX: usize = EXPERIMENT_ID_CHARS_MAX;

/// Largest number of values of a segmentation. Each divides the reports of an arm further.
pub const VALUES_MAX: usize = 16;

/// Largest number of segmentations of an experiment. Each makes a property of a user public.
pub const SEGMENTATIONS_MAX: usize = 8;

/// Largest number of segments. A segment is a combination of the segmentations' values, so a report
/// tells at most eight bits of its user's segment.
pub const SEGMENTS_MAX: usize = 256;

/// Largest number of metrics in addition to the rewards. Each takes reports from the others.
pub const METRICS_MAX: usize = 15;

/// Largest number of features of a private context. A report is about at most one of them, so each
/// takes reports from the others.
pub const FEATURES_MAX: usize = 15;

/// Longest period in which an installation reports once, in days: ten years. 0 stands for a period
/// that never ends.
pub const REPORT_DAYS_MAX: u32 = 3650;

/// Largest number of reports in one upload: 2 KiB of bits, 8 KiB of symbols. Larger batches gain
/// nothing, since the fixed part of an upload is already below one hundredth of its size.
pub const REPORTS_PER_UPLOAD_MAX: usize = 16_384;

/// Largest size of an encoded upload in bytes: enough for the symbols of the largest number of
/// reports, a run for every arm, and the fixed fields.
pub const UPLOAD_BYTES_MAX: usize = 16 * 1024;

/// Longest attribution window, in seconds: 90 days.
pub const ATTRIBUTION_WINDOW_SECONDS_MAX: u32 = 90 * 86_400;

/// Largest random release delay of a report, in seconds: 7 days.
pub const RELEASE_DELAY_SECONDS_MAX: u32 = 7 * 86_400;

/// Largest number of signatures of one specification that are kept and checked: those of an
/// operator and a countersigner, those of their successor keys, and as many again. A device checks no
/// more, whatever a server sends.
pub const SIGNATURES_MAX: usize = 8;

/// Longest validity of a signature, in days: ten years. A signature without an expiry could never
/// be revoked.
pub const SIGNATURE_DAYS_MAX: u32 = 3650;

// Two varints of at most 3 bytes for each arm, a byte for two reports of the largest
// alphabet, and 64 bytes for id, digest, day and the tags.
const _: () = assert!(ARMS_MAX * 6 + REPORTS_PER_UPLOAD_MAX / 2 + 64 <= UPLOAD_BYTES_MAX);
