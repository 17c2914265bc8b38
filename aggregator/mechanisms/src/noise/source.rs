//! The source of randomness outside tests.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng as _;
use thiserror::Error;

/// A generator for one release: ChaCha20 with a key of its own from the operating system.
///
/// With a new key for each release, neither a forked process nor a restored snapshot of a machine
/// repeats another one's noise. The key costs half a microsecond.
///
/// # Errors
/// [`NoEntropy`]: nothing may be released.
pub fn secure_generator() -> Result<ChaCha20Rng, NoEntropy> {
    let mut key = [0; 32];
    getrandom::fill(&mut key)?;
    Ok(ChaCha20Rng::from_seed(key))
}

/// The operating system has no randomness.
#[derive(Debug, Error)]
#[error("the operating system's random source failed; nothing is released without noise")]
pub struct NoEntropy(#[from] getrandom::Error);
