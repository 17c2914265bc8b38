//! The secret of an installation, from which its positions in layers and experiments follow.

use std::fmt::{self, Write as _};

use bandana_shared::identity::ExperimentId;
use bandana_shared::participation::{LayerName, Millionths, Participation};
use sha2::{Digest as _, Sha256};

use crate::noise::{EntropyError, NoiseSource};

/// The domain of the hash, so that a position is no hash of another protocol.
const DOMAIN: &[u8] = b"bandana.v1.position\0";

/// 256 random bits that never leave the device.
///
/// # Privacy
/// A position is a hash of the secret and a name, so each looks uniform and independent of all
/// others to whoever lacks the secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret([u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(<private>)")
    }
}

impl Secret {
    pub(crate) fn draw(noise: &mut impl NoiseSource) -> Result<Self, EntropyError> {
        let mut bytes = [0; 32];
        for word in bytes.chunks_exact_mut(8) {
            word.copy_from_slice(&noise.word()?.to_le_bytes());
        }
        Ok(Self(bytes))
    }

    #[cfg(feature = "storage")]
    pub(crate) fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    #[cfg(feature = "storage")]
    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Whether the installation is one of those that take part.
    pub(crate) fn takes_part(&self, id: &ExperimentId, participation: &Participation) -> bool {
        let Participation { layer, enrolment, .. } = participation;
        let in_layer = layer.as_ref().is_none_or(|part| part.holds(self.in_layer(part.name())));
        in_layer && (*enrolment == Millionths::ALL || self.in_experiment(id) < *enrolment)
    }

    /// Whether the installation is one of those that are held out of an experiment.
    pub(crate) fn is_held_out(&self, id: &ExperimentId, holdout: Millionths) -> bool {
        self.position(b"holdout\0", id.as_str()) < holdout
    }

    fn in_layer(&self, name: &LayerName) -> Millionths {
        self.position(b"layer\0", name.as_str())
    }

    fn in_experiment(&self, id: &ExperimentId) -> Millionths {
        self.position(b"experiment\0", id.as_str())
    }

    /// A position below a million. A remainder of 128 bits is uniform to within 2^-108.
    fn position(&self, kind: &[u8], name: &str) -> Millionths {
        let mut hasher = Sha256::new();
        hasher.update(DOMAIN);
        hasher.update(self.0);
        hasher.update(kind);
        hasher.update(name.as_bytes());
        let hash: [u8; 32] = hasher.finalize().into();
        let word = hash.iter().take(16).fold(0_u128, |word, byte| word << 8 | u128::from(*byte));
        let parts = u32::try_from(word % u128::from(Millionths::ALL.get())).unwrap_or(u32::MAX);
        // The remainder is below the whole. What can't be is in no part of any layer.
        Millionths::new(parts).unwrap_or(Millionths::ALL)
    }
}

/// Begin of a pseudonym.
const PSEUDONYM: &str = "opted-out.";

/// What stands for an experiment's name after an opt-out: a hash of it, with the form of a name. Whoever
/// has the device can test a name, and read none. A pseudonym is its own.
pub(crate) fn pseudonym(id: &ExperimentId) -> ExperimentId {
    if id.as_str().starts_with(PSEUDONYM) {
        return id.clone();
    }
    let mut hasher = Sha256::new();
    hasher.update(b"bandana.v1.pseudonym\0");
    hasher.update(id.as_str().as_bytes());
    let hash: [u8; 32] = hasher.finalize().into();
    let hex = hash.iter().take(16).fold(PSEUDONYM.to_owned(), |mut text, byte| {
        // Writing to a string does not fail.
        write!(text, "{byte:02x}").ok();
        text
    });
    ExperimentId::new(hex).unwrap_or_else(|_| id.clone())
}

#[cfg(test)]
mod tests {
    use bandana_shared::participation::Layer;

    use super::*;
    use crate::noise::SeededNoise;

    fn secrets(count: u64) -> impl Iterator<Item = Secret> {
        (0..count).map(|user| Secret::draw(&mut SeededNoise::new(7, user)).unwrap())
    }

    fn of(layer: Option<&str>, enrolment: f64) -> Participation {
        let layer = layer.map(|text| text.parse::<Layer>().unwrap());
        let enrolment = Millionths::from_share(enrolment).unwrap();
        Participation { sticky: None, layer, enrolment }
    }

    #[test]
    fn parts_that_do_not_overlap_share_no_installation_and_leave_none_out() {
        let (one, other) = (ExperimentId::new("one").unwrap(), ExperimentId::new("other").unwrap());
        let parts =
            [(&one, of(Some("checkout:0-0.3"), 1.0)), (&other, of(Some("checkout:0.3-1"), 1.0))];
        let mut counts = [0_u32; 2];
        for secret in secrets(20_000) {
            let is_in = parts.each_ref().map(|(id, part)| secret.takes_part(id, part));
            assert_ne!(is_in[0], is_in[1]);
            counts = [counts[0] + u32::from(is_in[0]), counts[1] + u32::from(is_in[1])];
        }
        // Five standard deviations of a binomial of 20,000 at .3 are 324.
        assert!(counts[0].abs_diff(6000) < 324, "{counts:?}");
    }

    #[test]
    fn layers_and_enrolments_are_independent_of_each_other() {
        let [one, other] = ["one", "other"].map(|id| ExperimentId::new(id).unwrap());
        let halves = [
            (&one, of(Some("a:0-0.5"), 1.0)),
            (&one, of(Some("b:0-0.5"), 1.0)),
            (&one, of(None, 0.5)),
            (&other, of(None, 0.5)),
        ];
        let mut both = [[0_u32; 4]; 4];
        for secret in secrets(20_000) {
            let is_in = halves.each_ref().map(|(id, part)| secret.takes_part(id, part));
            for (a, b) in (0..4).flat_map(|a| (0..a).map(move |b| (a, b))) {
                both[a][b] += u32::from(is_in[a] && is_in[b]);
            }
        }
        for (a, b) in (0..4).flat_map(|a| (0..a).map(move |b| (a, b))) {
            // Five standard deviations of a binomial of 20,000 at .25 are 306.
            assert!(both[a][b].abs_diff(5000) < 306, "{a} and {b}: {}", both[a][b]);
        }
    }

    #[test]
    fn a_larger_enrolment_keeps_those_of_a_smaller_one() {
        let id = ExperimentId::new("one").unwrap();
        let shares = [0.000_001, 0.01, 0.1, 0.5, 0.999_999, 1.0];
        for secret in secrets(2000) {
            let is_in = shares.map(|share| secret.takes_part(&id, &of(None, share)));
            assert!(is_in.is_sorted() && is_in[5]);
        }
    }
}
