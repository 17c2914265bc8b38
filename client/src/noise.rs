use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use thiserror::Error;

mod sealed {
    #[expect(unnameable_types, reason = "a sealed trait: nobody else may implement it")]
    pub trait Sealed {}
}

/// Where a client's randomness comes from. Sealed: the privacy of every report
/// rests on it.
pub trait NoiseSource: sealed::Sealed {
    /// Whether the noise can be repeated. Such a source takes part in simulated
    /// experiments only, and no other source does.
    const SIMULATED: bool;

    /// A uniformly random word.
    ///
    /// # Errors
    /// [`EntropyError`] when there is none to be had. There is no fallback.
    fn word(&mut self) -> Result<u64, EntropyError>;

    /// A name that nobody else has: from the operating system for every kind
    /// of source, since a repeated name would make two uploads count as one.
    ///
    /// # Errors
    /// [`EntropyError`] when the operating system has no randomness.
    fn unique_name(&mut self) -> Result<[u8; 16], EntropyError> {
        let mut name = [0; 16];
        getrandom::fill(&mut name)?;
        Ok(name)
    }

    /// A word for what depends on the network, such as the order of uploads or
    /// the wait before a retry: from the operating system for every kind of
    /// source, so that a failure changes nothing in a simulation that can be
    /// repeated.
    ///
    /// # Errors
    /// [`EntropyError`] when the operating system has no randomness.
    fn jitter(&mut self) -> Result<u64, EntropyError> {
        Ok(getrandom::u64()?)
    }
}

/// Randomness of the operating system, asked anew for every word: neither a
/// fork nor a snapshot of a virtual machine can make it repeat. For devices.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsNoise;

impl sealed::Sealed for OsNoise {}

impl NoiseSource for OsNoise {
    const SIMULATED: bool = false;

    fn word(&mut self) -> Result<u64, EntropyError> {
        Ok(getrandom::u64()?)
    }
}

/// ChaCha20 with a key from the operating system, and a new one every
/// [`Self::WORDS_PER_KEY`] words. For gateways that privatize in bulk.
///
/// # Privacy
/// A process that forks, or a machine that is restored from a snapshot, repeats
/// the noise until the next key. Use [`OsNoise`] where that can happen. To ask
/// for the process's id before every word would cost twenty words (0.1 us on
/// Linux), and would not see a snapshot.
#[derive(Debug)]
pub struct BulkNoise {
    generator: ChaCha20Rng,
    words_left: u32,
}

impl BulkNoise {
    /// Words drawn under one key.
    pub const WORDS_PER_KEY: u32 = 1 << 16;

    /// A generator with a fresh key.
    ///
    /// # Errors
    /// [`EntropyError`] when the operating system has no randomness.
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

/// Noise from a seed, for simulations that can be repeated.
///
/// # Privacy
/// None. Clients with this noise refuse every experiment that is not marked as
/// a simulation.
#[cfg(feature = "simulation")]
#[derive(Debug)]
pub struct SeededNoise(ChaCha20Rng);

#[cfg(feature = "simulation")]
impl SeededNoise {
    /// The stream of this number under this seed.
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

/// Uniform on `0..=greatest`, by rejection of the incomplete last block of what
/// `draw` draws.
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
#[derive(Clone, Copy, Debug, Error)]
#[error("the operating system's random source failed; no report can be made")]
pub struct EntropyError(#[from] getrandom::Error);

/// Noise for tests of what happens when it runs out.
#[cfg(test)]
pub(crate) mod double {
    use super::{EntropyError, NoiseSource, sealed};

    /// Gives its words, and fails when there are no more.
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
