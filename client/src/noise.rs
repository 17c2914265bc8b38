//! Sources of noise: the operating system, and seeded ones for simulations.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use thiserror::Error;

mod sealed {
    #[expect(unnameable_types, reason = "a sealed trait: nobody else may implement it")]
    pub trait Sealed {}
}

/// A source of randomness for a client. The trait is sealed, because the privacy of every report
/// depends on it.
///
/// ```
/// use bandana_client::{BulkNoise, EntropyError, NoiseSource, OsNoise};
///
/// /// A fair coin of any source.
/// fn coin<N: NoiseSource>(noise: &mut N) -> Result<bool, EntropyError> {
///     Ok(noise.word()? >> 63 == 1)
/// }
/// let (_on_a_device, _in_a_gateway) = (coin(&mut OsNoise)?, coin(&mut BulkNoise::new()?)?);
/// assert!(!OsNoise::SIMULATED && !BulkNoise::SIMULATED);
/// # Ok::<(), EntropyError>(())
/// ```
pub trait NoiseSource: sealed::Sealed {
    /// Whether the noise is reproducible. Such a source takes part in simulated experiments only,
    /// and every other source in real ones only.
    const SIMULATED: bool;

    /// A uniformly random word, 0 to 2^64 - 1.
    ///
    /// # Errors
    /// [`EntropyError`] when no randomness is available. There is no fallback.
    fn word(&mut self) -> Result<u64, EntropyError>;

    /// A globally unique name. It comes from the operating system for every kind of source, because
    /// a repeated name would make two uploads count as one.
    ///
    /// ```
    /// use bandana_client::{NoiseSource as _, OsNoise};
    /// assert_ne!(OsNoise.unique_name()?, OsNoise.unique_name()?);
    /// # Ok::<(), bandana_client::EntropyError>(())
    /// ```
    ///
    /// # Errors
    /// [`EntropyError`] when the operating system's random source fails.
    fn unique_name(&mut self) -> Result<[u8; 16], EntropyError> {
        let mut name = [0; 16];
        getrandom::fill(&mut name)?;
        Ok(name)
    }

    /// A word for choices that depend on the network, such as the order of uploads or the wait
    /// before a retry. It comes from the operating system for every kind of source. So a network
    /// failure does not change the words of a reproducible simulation.
    ///
    /// ```
    /// use bandana_client::{NoiseSource as _, SeededNoise};
    /// let (mut one, mut other) = (SeededNoise::new(1, 2), SeededNoise::new(1, 2));
    /// one.jitter()?;
    /// assert_eq!(one.word()?, other.word()?);
    /// # Ok::<(), bandana_client::EntropyError>(())
    /// ```
    ///
    /// # Errors
    /// [`EntropyError`] when the operating system's random source fails.
    fn jitter(&mut self) -> Result<u64, EntropyError> {
        Ok(getrandom::u64()?)
    }
}

/// The operating system's randomness, for devices. It is read again for every word, so neither a
/// fork nor a snapshot of a virtual machine can repeat it.
///
/// ```
/// use bandana_client::{Budget, Client, Core, NoiseSource as _, OsNoise};
/// // A device's client has this source only, which has no state that could be copied.
/// let _client: Core<OsNoise> = Client::new(Budget::UNLIMITED);
/// let (mut one, mut copy) = (OsNoise, OsNoise);
/// assert_ne!([one.word()?, one.word()?], [copy.word()?, copy.word()?]);
/// # Ok::<(), bandana_client::EntropyError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct OsNoise;

impl sealed::Sealed for OsNoise {}

impl NoiseSource for OsNoise {
    const SIMULATED: bool = false;

    fn word(&mut self) -> Result<u64, EntropyError> {
        Ok(getrandom::u64()?)
    }
}

/// A generator for gateways that privatize in bulk. It is ChaCha20 with a key from the operating
/// system, and takes a new key every [`Self::WORDS_PER_KEY`] words.
///
/// ```
/// use bandana_client::{BulkNoise, NoiseSource as _};
/// let mut noise = BulkNoise::new()?;
/// let ones: u32 = (0..1000).filter_map(|_| noise.word().ok()).map(u64::count_ones).sum();
/// // 64 000 fair coins are further from half less than once in 10^14.
/// assert!(ones.abs_diff(32_000) < 1000);
/// # Ok::<(), bandana_client::EntropyError>(())
/// ```
///
/// # Privacy
/// A process that forks, or a machine that is restored from a snapshot, repeats the noise until the
/// next key. Use [`OsNoise`] where that can happen. Checking the process id before every word would
/// cost as much as twenty words (0.1 us on Linux), and would not detect a snapshot.
#[derive(Debug)]
pub struct BulkNoise {
    generator: ChaCha20Rng,
    words_left: u32,
}

impl BulkNoise {
    /// The number of words drawn under one key: 65 536.
    pub const WORDS_PER_KEY: u32 = 1 << 16;

    /// A generator with a fresh key.
    ///
    /// ```
    /// use bandana_client::{BulkNoise, NoiseSource as _};
    /// // Each thread of a gateway has its own.
    /// let (mut one, mut other) = (BulkNoise::new()?, BulkNoise::new()?);
    /// assert_ne!([one.word()?, one.word()?], [other.word()?, other.word()?]);
    /// # Ok::<(), bandana_client::EntropyError>(())
    /// ```
    ///
    /// # Errors
    /// [`EntropyError`] when the operating system's random source fails.
    pub fn new() -> Result<Self, EntropyError> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)?;
        Ok(Self { generator: ChaCha20Rng::from_seed(key), words_left: Self::WORDS_PER_KEY })
    }
}

impl sealed::Sealed for BulkNoise {}

impl NoiseSource for BulkNoise {
    const SIMULATED: bool = false;

    #[inline]
    fn word(&mut self) -> Result<u64, EntropyError> {
        if self.words_left == 0 {
            *self = Self::new()?;
        }
        self.words_left -= 1;
        Ok(self.generator.next_u64())
    }
}

/// Reproducible noise from a seed, for simulations.
///
/// # Privacy
/// None. Clients with this noise refuse every experiment that is not marked as
/// a simulation.
///
/// ```
/// use bandana_client::{NoiseSource as _, SeededNoise};
/// assert!(SeededNoise::SIMULATED);
/// assert_eq!(SeededNoise::new(1, 2).word()?, SeededNoise::new(1, 2).word()?);
/// # Ok::<(), bandana_client::EntropyError>(())
/// ```
#[cfg(feature = "simulation")]
#[derive(Debug)]
pub struct SeededNoise(ChaCha20Rng);

#[cfg(feature = "simulation")]
impl SeededNoise {
    /// The stream with this number under this seed. Give each user of a simulation a separate
    /// stream. Then added users do not change the noise of the others.
    ///
    /// ```
    /// use bandana_client::{NoiseSource as _, SeededNoise};
    /// assert_ne!(SeededNoise::new(1, 2).word()?, SeededNoise::new(1, 3).word()?);
    /// # Ok::<(), bandana_client::EntropyError>(())
    /// ```
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut generator = ChaCha20Rng::seed_from_u64(seed);
        generator.set_stream(stream);
        Self(generator)
    }
}

#[cfg(feature = "simulation")]
impl sealed::Sealed for SeededNoise {}

#[cfg(feature = "simulation")]
impl NoiseSource for SeededNoise {
    const SIMULATED: bool = true;

    fn word(&mut self) -> Result<u64, EntropyError> {
        Ok(self.0.next_u64())
    }
}

/// A uniform number in `0..=greatest`. Words of `draw` in the incomplete last block are rejected.
pub(crate) fn uniform_up_to(
    greatest: u64,
    mut draw: impl FnMut() -> Result<u64, EntropyError>,
) -> Result<u64, EntropyError> {
    let Some(count) = greatest.checked_add(1) else {
        return draw();
    };
    let usable = u64::MAX - (u64::MAX % count + 1) % count;
    loop {
        let word = draw()?;
        if word <= usable {
            return Ok(word % count);
        }
    }
}

/// The operating system gave no randomness. Nothing was drawn.
///
/// ```
/// use bandana_client::{EntropyError, NoiseSource as _, OsNoise};
///
/// // The error is passed on. There is no weaker fallback.
/// fn thousandth() -> Result<u64, EntropyError> {
///     Ok(OsNoise.word()? % 1000)
/// }
/// assert!(thousandth()? < 1000);
/// # Ok::<(), EntropyError>(())
/// ```
#[derive(Clone, Copy, Error)]
#[error("the operating system's random source failed; no report can be made")]
pub struct EntropyError(#[from] getrandom::Error);

bandana_shared::debug_says!(EntropyError);

/// A finite noise source for tests of its exhaustion.
#[cfg(test)]
pub(crate) mod double {
    use super::{EntropyError, NoiseSource, sealed};

    /// Returns these words in turn, then fails.
    pub(crate) struct Words(pub(crate) std::collections::VecDeque<u64>);

    impl sealed::Sealed for Words {}

    impl NoiseSource for Words {
        const SIMULATED: bool = true;

        fn word(&mut self) -> Result<u64, EntropyError> {
            self.0.pop_front().ok_or(EntropyError(getrandom::Error::UNEXPECTED))
        }

        fn unique_name(&mut self) -> Result<[u8; 16], EntropyError> {
            self.word().map(|word| u128::from(word).to_be_bytes())
        }

        fn jitter(&mut self) -> Result<u64, EntropyError> {
            self.word()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::double::Words;
    use super::*;

    #[test]
    fn uniform_numbers_reject_the_incomplete_block() {
        // 2^64 = 3 * 6148914691236517205 + 1, so the last word is rejected.
        let mut words = Words([u64::MAX, u64::MAX - 1, 0].into());
        assert_eq!(uniform_up_to(2, || words.word()).unwrap(), 2);
        assert_eq!(uniform_up_to(2, || words.word()).unwrap(), 0);
        assert!(uniform_up_to(2, || words.word()).is_err());
        // Powers of two reject nothing.
        let mut words = Words([u64::MAX, 5].into());
        assert_eq!(uniform_up_to(7, || words.word()).unwrap(), 7);
        assert_eq!(uniform_up_to(u64::MAX, || words.word()).unwrap(), 5);
    }

    #[test]
    fn bulk_noise_changes_its_key() {
        let mut noise = BulkNoise::new().unwrap();
        let words: std::collections::HashSet<u64> =
            (0..2 * BulkNoise::WORDS_PER_KEY).map(|_| noise.word().unwrap()).collect();
        // A collision among 2^17 words has a probability of 2^-31.
        assert_eq!(words.len(), 2 * BulkNoise::WORDS_PER_KEY as usize);
        assert_eq!(noise.words_left, 0);
    }
}
