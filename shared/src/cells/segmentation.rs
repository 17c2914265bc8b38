//! Segmentations: public properties of installations, and the segments that their values make.

use std::fmt;

use super::{CellsError, checked_name};
use crate::limits::{LABEL_BYTES_MAX, SEGMENTATIONS_MAX, SEGMENTS_MAX, VALUES_MAX};

/// A public property of installations, such as the platform, and the values that it can have.
///
/// Whoever sees a device's reports learns which value it has. So an app must agree to each
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
    /// A segmentation with 2 to [`VALUES_MAX`] values that differ. Its name follows the rule for
    /// experiments' ids, and its values follow the rule for labels.
    ///
    /// # Errors
    /// [`CellsError::Name`]; [`CellsError::Values`]; [`CellsError::Value`];
    /// [`CellsError::SameValue`].
    pub fn new<V: Into<String>>(
        name: impl Into<String>,
        values: impl IntoIterator<Item = V>,
    ) -> Result<Self, CellsError> {
        let name = checked_name(name)?;
        let values: Vec<String> = values.into_iter().map(Into::into).collect();
        if !(2..=VALUES_MAX).contains(&values.len()) {
            return Err(CellsError::Values(values.len()));
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

    /// The values.
    pub fn values(&self) -> &[String] {
        &self.values
    }

    /// The place of a value, from 0.
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

/// The segmentations of an experiment. A segment is a combination of a value of each.
///
/// ```
/// use bandana_shared::cells::Segmentations;
/// let both = ["platform=ios,android", "age=young,old,unknown"].map(str::parse);
/// let both = Segmentations::new(both.into_iter().collect::<Result<_, _>>()?)?;
/// assert_eq!(both.segments(), 6);
/// assert_eq!(both.segment([Some(1), Some(1)]), Some(4));
/// assert_eq!(both.label(4), "android, old");
/// # Ok::<(), bandana_shared::cells::CellsError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Segmentations(Vec<Segmentation>);

impl Segmentations {
    /// No segmentation: all installations are in one segment.
    pub const NONE: Self = Self(Vec::new());

    /// These segmentations, at most [`SEGMENTATIONS_MAX`] of different names, which make at most
    /// [`SEGMENTS_MAX`] segments.
    ///
    /// # Errors
    /// [`CellsError::Segmentations`]; [`CellsError::SameSegmentation`]; [`CellsError::Segments`].
    pub fn new(all: Vec<Segmentation>) -> Result<Self, CellsError> {
        if all.len() > SEGMENTATIONS_MAX {
            return Err(CellsError::Segmentations(all.len()));
        }
        for (place, one) in all.iter().enumerate() {
            if all[..place].iter().any(|before| before.name == one.name) {
                return Err(CellsError::SameSegmentation(one.name.clone()));
            }
        }
        let made = Self(all);
        // At most 16^8, so no overflow.
        let segments = made.segments();
        if segments > SEGMENTS_MAX { Err(CellsError::Segments(segments)) } else { Ok(made) }
    }

    /// All of them, in the order in which they make segments.
    pub fn all(&self) -> &[Segmentation] {
        &self.0
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of segments, which is 1 without a segmentation.
    pub fn segments(&self) -> usize {
        self.sizes().product()
    }

    /// The number of values of each segmentation.
    pub fn sizes(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(|one| one.values.len())
    }

    /// The segment that a value of each segmentation makes, given by the places of the values. The
    /// place in the last segmentation changes fastest. The segment is 0 without segmentations, and
    /// `None` if some segmentation has no value.
    pub fn segment(&self, places: impl IntoIterator<Item = Option<usize>>) -> Option<usize> {
        let mut places = places.into_iter();
        self.sizes().try_fold(0, |segment, size| Some(segment * size + places.next()??))
    }

    /// The place of the value in each segmentation that makes a segment.
    pub fn places(&self, segment: usize) -> Vec<usize> {
        let mut rest = segment;
        let mut places: Vec<usize> = self
            .0
            .iter()
            .rev()
            .map(|one| {
                let place = rest % one.values.len();
                rest /= one.values.len();
                place
            })
            .collect();
        places.reverse();
        places
    }

    /// The values that make a segment, as text.
    pub fn label(&self, segment: usize) -> String {
        let values = self.0.iter().zip(self.places(segment));
        values.map(|(one, place)| &*one.values[place]).collect::<Vec<_>>().join(", ")
    }
}

impl From<Segmentation> for Segmentations {
    fn from(one: Segmentation) -> Self {
        Self(vec![one])
    }
}

impl fmt::Display for Segmentations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, one) in self.0.iter().enumerate() {
            write!(f, "{}{one}", if place == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}
