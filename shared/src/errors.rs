//! Printing of errors by `Debug`.

use std::error::Error;
use std::fmt;

/// Makes the `Debug` of an error say what its `Display` says, and the causes: so a `main` that returns the
/// error prints it.
///
/// ```
/// #[derive(thiserror::Error)]
/// #[error("the app can't start")]
/// struct StartError(#[source] std::fmt::Error);
///
/// bandana_shared::debug_says!(StartError);
///
/// let cause = std::fmt::Error;
/// assert_eq!(format!("{:?}", StartError(cause)), format!("the app can't start: {cause}"));
/// ```
#[macro_export]
macro_rules! debug_says {
    ($error:ty) => {
        impl ::std::fmt::Debug for $error {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                $crate::errors::say(self, f)
            }
        }
    };
}

/// Writes what an error says, and the causes.
///
/// # Errors
/// Those of writing.
#[doc(hidden)]
pub fn say(error: &dyn Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{error}")?;
    let mut cause = error.source();
    while let Some(error) = cause {
        write!(f, ": {error}")?;
        cause = error.source();
    }
    Ok(())
}
