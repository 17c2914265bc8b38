//! An app can't add a source of noise: the privacy of every report rests on it.

use bandana_client::{EntropyError, NoiseSource};

struct Constant;

impl NoiseSource for Constant {
    const SIMULATED: bool = false;

    fn word(&mut self) -> Result<u64, EntropyError> {
        Ok(4)
    }
}

fn main() {}
