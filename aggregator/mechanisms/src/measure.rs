//! Measures of privacy loss.

/// The measure of privacy loss, and so its composition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// ε, by basic composition. Releases are purely differentially private.
    Pure,
    /// ρ of zero-concentrated differential privacy.
    Concentrated,
}

impl Measure {
    /// Its name in the store.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pure => "pure",
            Self::Concentrated => "concentrated",
        }
    }

    /// The measure with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Pure, Self::Concentrated].into_iter().find(|measure| measure.name() == name)
    }
}
