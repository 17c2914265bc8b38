//! Random numbers of a study: a generator for each purpose.

use rand::SeedableRng as _;

/// The generator of everything random in a trial.
pub type Random = rand::rngs::Xoshiro256PlusPlus;

/// A generator for one purpose, by SplitMix64's mixing function.
pub fn generator(seed: u64, purpose: u64) -> Random {
    let mix = |number: u64| {
        let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ (number >> 31)
    };
    let purpose = mix(purpose.wrapping_add(0x9e37_79b9_7f4a_7c15));
    Random::seed_from_u64(mix(seed ^ purpose))
}
