//! The key that an app sends to an aggregator.

use std::fmt;

use thiserror::Error;

/// Header, and metadata of gRPC, in which a key is sent.
pub(crate) const HEADER: &str = "bandana-app-key";

/// Longest key, in bytes: far longer than the keys that `bandana app-key` makes.
const BYTES_MAX: usize = 256;

/// The key of an app. The operator of an aggregator makes it with `bandana app-key new`. An
/// aggregator that demands keys can block an app as a whole, and can stop it from using up the
/// share of others. The key is not secret: every copy of the app contains it.
///
/// ```
/// use bandana_client::AppKey;
///
/// // Part of the app.
/// let key = AppKey::new("bndk_AbM1pBHC0jRT1SXPrVgFzWAM5dqMKJkdPDo3ueZ8oA0")?;
/// assert_eq!(format!("{key:?}"), "AppKey(<private>)");
/// # Ok::<(), bandana_client::AppKeyError>(())
/// ```
///
/// # Privacy
/// Give all installations of an app the same key. A key for each installation would name the device
/// in every call, and link all its reports.
#[derive(Clone)]
pub struct AppKey(String);

impl AppKey {
    /// A key from its text.
    ///
    /// ```
    /// use bandana_client::AppKey;
    /// assert!(AppKey::new("bndk_AbM1pBHC0jRT1SXPrVgFzWAM5dqMKJkdPDo3ueZ8oA0").is_ok());
    /// assert!(AppKey::new("with a line\n").is_err());
    /// ```
    ///
    /// # Errors
    /// [`AppKeyError`] when the text is not a valid key.
    pub fn new(key: &str) -> Result<Self, AppKeyError> {
        let fits =
            (1..=BYTES_MAX).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_graphic());
        if fits { Ok(Self(key.to_owned())) } else { Err(AppKeyError) }
    }

    /// The text of the key.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for AppKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AppKey(<private>)")
    }
}

/// A text that is not a valid key.
///
/// ```
/// use bandana_client::{AppKey, AppKeyError};
/// let error: AppKeyError = AppKey::new("").unwrap_err();
/// assert!(error.to_string().contains("bandana app-key new"));
/// ```
#[derive(Clone, Copy, Error, PartialEq, Eq)]
#[error("an app key has 1 to {BYTES_MAX} visible characters, as `bandana app-key new` prints it")]
pub struct AppKeyError;

bandana_shared::debug_says!(AppKeyError);
