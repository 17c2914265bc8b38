//! The sign of a coordinate of a private context, as secret as a reward.

use std::fmt;

/// The coordinate of a private context that an assignment reports its rewards with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    /// 1 or -1. Without a private context, 1.
    Known { is_negative: bool },
    /// The process was started again since, and the app keeps no raw values.
    Lost,
}

impl Sign {
    /// The sign for the file of raw values, if one is to be there.
    #[cfg(feature = "storage")]
    pub(crate) fn stored(self) -> Option<bool> {
        match self {
            Self::Known { is_negative } => Some(is_negative),
            Self::Lost => None,
        }
    }
}

impl fmt::Debug for Sign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sign(<private>)")
    }
}
