//! The state of a trusted experiment: the secret state, and the released part of it.
//!
//! # Noise
//! The noise of a release is derived from a key, not stored. Before an episode begins, a key from
//! the operating system is made durable for its release, and for no other. At the release the exact
//! samplers draw from ChaCha20. The seed is SHA-256 over a fixed word, the key, the bytes of the
//! whole state of the algorithm (open buffers included), and the integers that the noise is added
//! to. SHA-256 of a secret key and a message acts as a random function of the message; so:
//!
//! - The same state is released with the same noise, however often the release is retried: after a
//!   crash, after a commit of unknown outcome, or by two replicas at once. Noise is never redrawn
//!   for a sum: an observer of both draws could average it away.
//! - A store may go back in time, by a failover to a standby that lags behind or by a restored
//!   file, and *other* rewards may come than the first time. Then the state differs, and the noise
//!   is independent. Stored noise would be added to both sums, so the difference of the releases
//!   would be exactly that of the sums. With independent noise an observer of both has seen two
//!   releases: a reward that is in both pays at most 2ρ instead of ρ.
//!
//! - Another build may compute different integers from the same state, by floating-point arithmetic
//!   that rounds differently. Then their noise is independent too.
//!
//! The first two are tested. The key is deleted with its release, and is in no backup.

use std::fmt;

use bandana_mechanisms::noise::NoEntropy;
use bandana_shared::stored::{self, Stored, StoredError};
use rand::Rng;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng as _;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::algorithm::{Algorithm, AlgorithmSettings, Played, Shown};
use super::error::ZcdpError;
use super::lattice::{Action, LatticeReward};

/// Domain separation of this use of SHA-256.
const DOMAIN: &[u8] = b"bandana: noise of one release of a trusted experiment, 1";

/// The key of one release. `Debug` does not show it.
#[derive(Clone, Serialize, Deserialize)]
pub struct NoiseKey([u8; 32]);

impl NoiseKey {
    /// A new key from the operating system, so that a restored snapshot of the machine can't repeat
    /// it.
    ///
    /// # Errors
    /// [`NoEntropy`]: nothing may be released.
    pub fn secure() -> Result<Self, NoEntropy> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)?;
        Ok(Self(key))
    }

    /// A key that is not secret, for tests and simulations.
    pub fn insecure(key: [u8; 32]) -> Self {
        Self(key)
    }
}

impl fmt::Debug for NoiseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NoiseKey(<private>)")
    }
}

/// The complete state of a trusted experiment, including unreleased sums of rewards and the key of
/// the next release.
#[derive(Clone, Serialize, Deserialize)]
pub struct SecretState {
    algorithm: Algorithm,
    key: NoiseKey,
    releases: u64,
}

impl Stored for SecretState {
    const MAGIC: [u8; 4] = *b"BDts";
    const VERSION: u16 = 1;
}

impl fmt::Debug for SecretState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretState(<private>)")
    }
}

impl SecretState {
    /// The initial state, with the key of the first release.
    ///
    /// # Errors
    /// When the algorithm refuses its settings.
    pub fn new(plan: AlgorithmSettings, key: NoiseKey) -> Result<Self, ZcdpError> {
        Ok(Self { algorithm: Algorithm::new(plan)?, key, releases: 0 })
    }

    /// Whether a statistic is due for release.
    pub fn is_due(&self) -> bool {
        self.algorithm.is_due()
    }

    /// Adds a validated reward.
    ///
    /// # Errors
    /// When a statistic is due, or there are too many rewards.
    pub fn observe(&mut self, played: &Played, reward: LatticeReward) -> Result<(), ZcdpError> {
        self.algorithm.observe(played, reward)
    }

    /// Releases the due statistic with noise from the prepared key, and stores the key of the next
    /// release. This state must already be durable, and nothing may be published before the
    /// resulting state is.
    ///
    /// # Errors
    /// When the algorithm refuses; [`ReleaseError::Encode`] when the state can't be encoded.
    pub fn release(&mut self, next: NoiseKey) -> Result<(), ReleaseError> {
        let noise = self.noise()?;
        self.algorithm.release(&noise)?;
        self.key = next;
        self.releases += 1;
        Ok(())
    }

    fn noise(&self) -> Result<Vec<i64>, StoredError> {
        let Some(scale) = self.algorithm.noise() else { return Ok(Vec::new()) };
        let mut hash = Sha256::new();
        hash.update(DOMAIN);
        hash.update(self.key.0);
        let state = stored::to_bytes(self)?;
        hash.update((state.len() as u64).to_le_bytes());
        hash.update(state);
        for number in self.algorithm.exact_statistic() {
            hash.update(number.to_le_bytes());
        }
        let mut rng = ChaCha20Rng::from_seed(hash.finalize().into());
        Ok(scale.sample(&mut rng))
    }

    /// The released part of the state.
    pub fn released(&self) -> ReleasedState {
        ReleasedState { algorithm: self.algorithm.without_buffers(), releases: self.releases }
    }
}

/// The reason why a statistic can't be released.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// A refusal by the algorithm.
    #[error(transparent)]
    Trusted(#[from] ZcdpError),
    /// The state can't be encoded.
    #[error(transparent)]
    Encode(#[from] StoredError),
    /// There is no randomness for the next key.
    #[error(transparent)]
    NoEntropy(#[from] NoEntropy),
}

/// The released part of a trusted experiment's state: statistics and counts, which suffice for
/// recommendations. Only this part remains after the experiment is stopped.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReleasedState {
    /// The algorithm, with empty buffers.
    algorithm: Algorithm,
    releases: u64,
}

impl Stored for ReleasedState {
    const MAGIC: [u8; 4] = *b"BDtr";
    const VERSION: u16 = 1;
}

impl ReleasedState {
    /// The algorithm's settings.
    pub fn plan(&self) -> AlgorithmSettings {
        self.algorithm.plan()
    }

    /// Validates a play and its reward, independently of the state.
    ///
    /// # Errors
    /// For an unknown arm, or a value out of range.
    pub fn check(&self, played: &Played, reward: f64) -> Result<LatticeReward, ZcdpError> {
        self.algorithm.check(played, reward)
    }

    /// The arm or action to play; for AdaC-OFUL the index of the best of these vectors. Only lazy
    /// release uses `rng`.
    ///
    /// # Errors
    /// When vectors are missing, unexpected, or of another dimension.
    pub fn recommend<R: Rng + ?Sized>(
        &self,
        vectors: &[Action],
        rng: &mut R,
    ) -> Result<usize, ZcdpError> {
        self.algorithm.recommend(vectors, rng)
    }

    /// The released statistics.
    pub fn shown(&self) -> Shown {
        self.algorithm.shown()
    }

    /// Number of rewards that count, released or not.
    pub fn rewards(&self) -> u64 {
        self.algorithm.rewards()
    }

    /// Number of releases so far.
    pub fn releases(&self) -> u64 {
        self.releases
    }
}

#[cfg(test)]
mod tests {
    use super::super::adac_gope::{GopeSettings, PhaseLength};
    use super::super::adac_oful::OfulSettings;
    use super::super::adac_ucb::{Memory, UcbSettings};
    use super::super::estimator::Placement;
    use super::super::lattice::{Protection, RewardRange};
    use super::*;

    /// The state after this reward of arm 0, which ends the arm's first episode.
    fn due(key: u8, reward: f64) -> SecretState {
        let plan = AlgorithmSettings::Ucb(UcbSettings {
            arms: 2,
            protection: Protection::concentrated(0.5).unwrap(),
            exploration: 1.0,
            memory: Memory::Forgetting,
        });
        let mut state = SecretState::new(plan, NoiseKey::insecure([key; 32])).unwrap();
        state.observe(&Played::Arm(0), RewardRange::Unit.reward(reward).unwrap()).unwrap();
        assert!(state.is_due());
        state
    }

    /// The noise in the mean of arm 0.
    fn noise(mut state: SecretState, reward: f64) -> f64 {
        state.release(NoiseKey::insecure([255; 32])).unwrap();
        let Shown::Means(means) = state.released().shown() else { panic!("means") };
        means[0].unwrap().mean - reward
    }

    #[test]
    fn the_same_state_has_the_same_noise_and_another_one_has_its_own() {
        let first = noise(due(1, 0.25), 0.25);
        let read: SecretState =
            stored::from_bytes(&stored::to_bytes(&due(1, 0.25)).unwrap()).unwrap();
        assert_eq!(noise(read, 0.25).to_bits(), first.to_bits());
        // A store restored to an earlier state, and different rewards: the difference of the
        // rewards stays hidden.
        assert!((noise(due(1, 0.75), 0.75) - first).abs() > 1e-6);
        assert!((noise(due(2, 0.25), 0.25) - first).abs() > 1e-6);
    }

    #[test]
    fn noise_by_keys_has_its_variance() {
        // σ² = 1/(2ρ) = 1 for one reward.
        let noises: Vec<f64> = (0..=250).map(|key| noise(due(key, 0.5), 0.5)).collect();
        let count = noises.len() as f64;
        let variance = noises.iter().map(|x| x * x).sum::<f64>() / count;
        // Three standard deviations of the estimate.
        assert!((variance - 1.0).abs() < 3.0 * (2.0 / count).sqrt(), "{variance}");
    }

    /// The other algorithms, after one reward of one of two arms or actions.
    fn others() -> [SecretState; 3] {
        let protection = Protection::concentrated(0.5).unwrap();
        let actions = Action::list(&[vec![1.0], vec![-0.5]]).unwrap();
        let played = Played::Vector(actions[1].clone());
        let gope = AlgorithmSettings::Gope(GopeSettings {
            actions,
            range: RewardRange::Symmetric,
            protection,
            failure: 0.5,
            length: PhaseLength::Exact,
            placement: Placement::Shaped,
        });
        let oful = AlgorithmSettings::Oful(OfulSettings::published(1, protection));
        let lazy = AlgorithmSettings::Lazy { arms: 2, protection };
        let reward = RewardRange::Unit.reward(0.5).unwrap();
        [(gope, Played::Arm(0)), (oful, played), (lazy, Played::Arm(1))].map(|(plan, played)| {
            let mut state = SecretState::new(plan, NoiseKey::insecure([9; 32])).unwrap();
            state.observe(&played, reward).unwrap();
            state
        })
    }

    /// Stored states of version 1: after the first reward, the released state at that time, and the
    /// state after the release, whose noise every later version must reproduce; then the other
    /// algorithms.
    const GOLDEN: [&str; 6] = [
        "42447473010042e856d4000201000000000000e03f000000000000f03f00020000000001fc0000010000\
         0000000000000101070707070707070707070707070707070707070707070707070707070707070700",
        "424474720100652869ff000201000000000000e03f000000000000f03f00020000000001000000000000\
         0000010100",
        "424474730100686a2ebb000201000000000000e03f000000000000f03f0002010101fcde520400000000\
         0000000000010101080808080808080808080808080808080808080808080808080808080808080801",
        "4244747301003d6c83ca010201fc0000020001fbffff0101000000000000e03f000000000000e03f0100\
         0201010102320002010002fc000001000000020000010909090909090909090909090909090909090909\
         09090909090909090909090900",
        "424474730100c9b7022702010101000000000000e03f000000000000f03f9a9999999999b93ffca9f1d2\
         4d62503f000000000000f03f01fc00000080010001000001fbff7f010109090909090909090909090909\
         0909090909090909090909090909090909090900",
        "42447473010086246f5a0301000000000000e03f0200000000000001fc00000100000109090909090909\
         0909090909090909090909090909090909090909090909090900",
    ];

    #[test]
    fn golden_bytes_of_stored_trusted_states() {
        let hex = |bytes: Vec<u8>| {
            bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
        };
        let mut state = due(7, 0.5);
        let before = hex(stored::to_bytes(&state).unwrap());
        let shown = hex(stored::to_bytes(&state.released()).unwrap());
        state.release(NoiseKey::insecure([8; 32])).unwrap();
        let after = hex(stored::to_bytes(&state).unwrap());
        let [gope, oful, lazy] = others().map(|state| hex(stored::to_bytes(&state).unwrap()));
        assert_eq!([before, shown, after, gope, oful, lazy], GOLDEN);
    }
}
