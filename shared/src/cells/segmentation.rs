//! A segmentation: a public property of installations, and the values that it can have.

use std::fmt;

use super::{CellsError, checked_name};
use crate::limits::{LABEL_BYTES_MAX, SEGMENTS_MAX};

/// A public property of installations, such as the platform, and the values that it can have.
///
/// A device reports which value it has, to whoever sees its reports; so an app must agree to each
/// segmentation by its name.
///
/// ```
/// use bandana_shared::cells::Segmentation;
/// let platform = Segmentation::new("platform", ["ios", "android"])?;
/// assert_eq!(platform.place_of("android"), Some(1));
/// assert_eq!(platform.place_of("web"), None);
/// # Ok::<(), bandana_shared::cells::CellsError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Segmentation {
    name: String,
    values: Vec<String>,
}

impl Segmentation {
    /// A segmentation with 2 to [`SEGMENTS_MAX`] values that differ. Its name follows the rule of
    /// experiments' ids, its values that of labels.
    ///
    /// # Errors
    /// [`CellsError::Name`]; [`CellsError::Segments`]; [`CellsError::Value`];
    /// [`CellsError::SameValue`].
    pub fn new<V: Into<String>>(
        name: impl Into<String>,
        values: impl IntoIterator<Item = V>,
    ) -> Result<Self, CellsError> {
        let name = checked_name(name)?;
        let values: Vec<String> = values.into_iter().map(Into::into).collect();
        if !(2..=SEGMENTS_MAX).contains(&values.len()) {
            return Err(CellsError::Segments(values.len()));
        }
        for (place, value) in values.iter().enumerate() {
            let length = 1..=LABEL_BYTES_MAX;
            if !length.contains(&value.len()) || value.chars().any(char::is_control) {
                return Err(CellsError::Value(value.clone()));
            }
            if values[..place].contains(value) {
                return Err(CellsError::SameValue(value.clone()));
            }
        }
        Ok(Self { name, values })
    }

    /// The name of the property.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The values, in the order of their segments.
    pub fn values(&self) -> &[String] {
        &self.values
    }

    /// The segment of the installations with this value.
    pub fn place_of(&self, value: &str) -> Option<usize> {
        self.values.iter().position(|known| known == value)
    }
}

impl fmt::Display for Segmentation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.values.join(","))
    }
}

/// Reads `platform=ios,android`.
impl std::str::FromStr for Segmentation {
    type Err = CellsError;

    fn from_str(text: &str) -> Result<Self, CellsError> {
        let unread = || CellsError::SegmentationForm(text.to_owned());
        let (name, values) = text.split_once('=').ok_or_else(unread)?;
        Self::new(name.trim(), values.split(',').map(str::trim))
    }
}
