//! The sparse vector technique under zero-concentrated privacy, as a race of exponential numbers.
//!
//! A **run** compares queries with a threshold, one after the other, until one is above it. A run
//! has a secret number Λ from Exp(1). For a query whose value exceeds the threshold by m, let w =
//! exp(θ m). The run calls the query "above" with probability 1 - exp(-Λ w). So it compares m with
//! the difference of two Gumbel numbers in units of 1/θ, one of them drawn once in a run.
//!
//! # Privacy
//! A run is 9/16 θ²-zero-concentrated differentially private, for θ <= 1/2, queries that one person
//! changes by at most 1, and any number of comparisons. (Laplace noise of scale 1/θ on threshold
//! and queries is 3 θ-differentially private. By the general bound, that costs 9/2 θ², 8 times as
//! much.)
//!
//! **1. The law.** Let S be the sum of the w of a run's queries up to some point. Then P(none of them
//! is above) = E exp(-Λ S) = 1/(1 + S). Queries depend on what was answered before, but within a run
//! all those answers are "below", so for each pair of neighbours they are two fixed sequences w and
//! w' with |ln(w'/w)| <= θ. We let each query take a unit of time u, and X(u) = 1 + S grow linearly in
//! it from X(0) = 1; Y is the same for the neighbour. The run ends at time u with density P = X'/X²
//! and Q = Y'/Y², and Y' = D X' with exp(-θ) <= D <= exp(θ). What is answered is the number of the unit,
//! a function of u, so it has no larger divergence; and so has what ends early.
//!
//! **2. A bound.** Let α = k + 1 > 1, R = Y/X, q = sinh(kθ)/sinh(θ), p = sinh(αθ)/sinh(θ), and h(R) = q
//! R^(2k+1)/(2k+1) + C, where C is the largest value of p R^(2k) - q R^(2k+1) (2k+2)/(2k+1) for R > 0.
//! The function D^-k is convex, and p - q D is its chord on [exp(-θ), exp(θ)], so P^α Q^(1-α) = X'/X²
//! R^(2k) D^-k <= X'/X² R^(2k) (p - q D) <= X'/X² (h + (R - D) dh/dR) = -d/du (h(R)/X), as R' = (D - R)
//! X'/X. Integrated from u = 0, where R = X = 1, the divergence of order α is at most ln h(1)/k; and
//! h(1) = (q + p r^(2k))/(2k+1), with the place of the maximum r = k p/(α q).
//!
//! **3. ln h(1) <= 9/16 k α θ².** With s(x) = ln(sinh(x)/x), x = kθ, y = αθ and E = (2k+1)(s(y) - s(x)),
//! that is ln h(1) = s(x) - s(θ) + ln((k + α exp(E))/(2k+1)). s' grows, is concave, 0 at 0 and below 1,
//! and s'' <= 1/3; s(θ) >= θ²/6 - θ⁴/180.
//! - *y >= 16/3.* No density ratio is beyond exp(3θ): X'/Y' and (Y/X)² are not beyond exp(θ) and
//!   exp(2θ). So the divergence is at most 3θ <= 9/16 αθ².
//! - *y <= 3/4.* As ln((k + α e^E)/(2k+1)) <= αE/(2k+1) + kE²/(2(2k+1)), and s(x) = x²/6 minus something that
//!   grows, ln h(1) <= k α θ²/2 + k E²/(2(2k+1)); E <= (2k+1)² θ²/6 makes the last term at most k (2k+1)³
//!   θ⁴/72 <= k α y² θ²/9 <= k α θ²/16.
//! - *Between,* k >= 1/2 as θ <= 1/2. With z = (x+y)/2 and v = z s'(z), E <= 2 v (Hermite and Hadamard),
//!   ln((k + α e^E)/(2k+1)) <= v + ln cosh(v) + θ s'(z)/2, and s(x) <= s(z) - θ s'(z)/2 + θ² s'(z)/(8z). So
//!   ln h(1) <= F(z) + θ²/24 - θ²/6 + θ⁴/180, where F(z) = s(z) + v + ln cosh(v) <= 0.545 z² (a function
//!   of one number, which a test follows; its largest ratio is 0.5412, at z = 1.85). As z >= θ, that is
//!   at most 9/16 (z² - θ²/4) = 9/16 k α θ².
//!
//! # Exactness
//! Λ is -ln of a uniform number, the digits of which follow from a key (ChaCha20, one stream for each
//! run), as many as are needed. Comparisons are with bounds, which are refined until they decide
//! (`bounds.rs`): there is no float between the key and the answer. m is cut to 64/θ in magnitude
//! before, which changes no sensitivity.

use std::fmt;

use rand::Rng;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng as _;

use super::QueryError;
use super::bounds::{Bounds, Uniform, exp, exp_of};
use super::price::check_beta;

/// Billionths in one.
const NANOS: u64 = 1_000_000_000;

/// Initial number of binary digits.
const PRECISION: u64 = 128;

/// Magnitude of θ m to which distances are cut.
const EXPONENT_MAX: u64 = 64;

/// The secret of a session, from which the secret number of each of its runs follows.
#[derive(Clone, PartialEq, Eq)]
pub struct RunKey([u8; 32]);

impl RunKey {
    /// A new key. Draw one for each session.
    pub fn draw<R: Rng + ?Sized>(rng: &mut R) -> Self {
        let mut key = [0; 32];
        rng.fill_bytes(&mut key);
        Self(key)
    }

    /// The key of these bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its bytes, which must stay secret.
    pub fn to_bytes(&self) -> [u8; 32] {
        self.0
    }

    /// The uniform number of a run, with its first `bits` digits. The same digits come first
    /// whenever it is asked.
    fn uniform(&self, run: u32, bits: u64) -> Uniform {
        let mut digits = ChaCha20Rng::from_seed(self.0);
        digits.set_stream(run.into());
        let mut uniform = Uniform::default();
        uniform.extend(bits, &mut digits);
        uniform
    }
}

impl fmt::Debug for RunKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RunKey(<secret>)")
    }
}

/// Comparisons of queries with a threshold, in runs. A run ends with the first query that is called
/// above.
///
/// ```
/// use bandana_mechanisms::noise::secure_generator;
/// use bandana_mechanisms::queries::threshold::{AboveThreshold, RunKey};
/// // 20 runs for rho = 0.5: noise of about 4.7 rows.
/// let mechanism = AboveThreshold::within(500_000_000, 20)?;
/// assert!(mechanism.rho_nanos(20) <= 500_000_000);
/// let mut rng = secure_generator()?;
/// let key = RunKey::draw(&mut rng);
/// assert!(!mechanism.is_above(&key, 0, -300, &mut rng));
/// assert!(mechanism.is_above(&key, 0, 300, &mut rng));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AboveThreshold {
    /// θ in billionths, at least 1 and at most half a billion.
    step: u64,
}

impl AboveThreshold {
    /// The mechanism with this θ in billionths, clamped to 1 to half a billion.
    pub fn of_step(nanos: u64) -> Self {
        Self { step: nanos.clamp(1, NANOS / 2) }
    }

    /// The mechanism with the largest θ at which `runs` runs cost at most `nanos` billionths of ρ:
    /// 9 c θ² <= 16 ρ, in integers.
    ///
    /// # Errors
    /// [`QueryError::TooManyParts`] when that θ is 0, and for 0 runs.
    pub fn within(nanos: u64, runs: u32) -> Result<Self, QueryError> {
        let square = 16 * u128::from(nanos) * u128::from(NANOS);
        let root = square.checked_div(9 * u128::from(runs)).unwrap_or(0).isqrt();
        match u64::try_from(root) {
            Ok(step) if step > 0 => Ok(Self::of_step(step)),
            _ => Err(QueryError::TooManyParts { parts: runs.into() }),
        }
    }

    /// θ in billionths.
    pub fn step(self) -> u64 {
        self.step
    }

    /// The ρ of `runs` runs in billionths, rounded up.
    pub fn rho_nanos(self, runs: u32) -> u64 {
        let ninths = 9 * u128::from(runs) * u128::from(self.step).pow(2);
        u64::try_from(ninths.div_ceil(16 * u128::from(NANOS))).unwrap_or(u64::MAX)
    }

    /// Whether a query that exceeds the threshold by `distance` is called above it. `rng` is for this
    /// comparison alone.
    pub fn is_above<R: Rng + ?Sized>(
        self,
        key: &RunKey,
        run: u32,
        distance: i64,
        rng: &mut R,
    ) -> bool {
        self.is_above_from(PRECISION, key, run, distance, rng)
    }

    /// The comparison with bounds of at first `bits` digits, which affect the time only.
    fn is_above_from<R: Rng + ?Sized>(
        self,
        mut bits: u64,
        key: &RunKey,
        run: u32,
        distance: i64,
        rng: &mut R,
    ) -> bool {
        let mut uniform = Uniform::default();
        loop {
            uniform.extend(bits, rng);
            let level = key.uniform(run, bits).log_reciprocal(bits);
            if let Some(below) = level.and_then(|level| self.below(&level, distance, bits)) {
                // Of the uniform number and the probability of "below", the smaller is known.
                let Bounds { low, high } = uniform.bounds(bits);
                if high <= below.low {
                    return false;
                }
                if low >= below.high {
                    return true;
                }
            }
            bits *= 2;
        }
    }

    /// The probability exp(-Λ w) of "below", if the bounds suffice.
    fn below(self, level: &Bounds, distance: i64, bits: u64) -> Option<Bounds> {
        let most = EXPONENT_MAX * NANOS / self.step;
        let magnitude = u128::from(distance.unsigned_abs().min(most));
        let power = exp((magnitude * u128::from(self.step), NANOS.into()), bits);
        let rate = if distance > 0 { level.over(&power, bits)? } else { level.times(&power, bits) };
        Some(exp_of(&rate, bits))
    }

    /// Distances E and E' of the errors. With probability 1 - `beta`, no query that is E rows or
    /// more below the threshold is called above it in `comparisons` comparisons, and none that is
    /// E' rows or more above it is called below it in `runs` runs.
    ///
    /// Given what was answered, Λ is from Exp(1 + S), with a mean of at most 1, so a query of weight w
    /// is called above with probability at most w: E = ln(2 n/β)/θ. A run that goes on after a query of
    /// weight w has a probability of at most 1/(1 + w): E' = ln(2 c/β)/θ.
    ///
    /// # Errors
    /// [`QueryError::Beta`], and [`QueryError::Session`] when no distance is enough.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a positive number of at most 64 billion"
    )]
    pub fn errors(self, comparisons: u64, runs: u32, beta: f64) -> Result<[u64; 2], QueryError> {
        let half = check_beta(beta)? / 2.0;
        let distance = |count: f64| {
            let exponent = libm::log(count.max(1.0) / half).max(0.0);
            let rows = exponent * NANOS as f64 / self.step as f64;
            let is_known = exponent < EXPONENT_MAX as f64 - 1.0;
            is_known.then(|| (rows * (1.0 + 1e-12)).ceil() as u64 + 1)
        };
        match (distance(comparisons as f64), distance(f64::from(runs))) {
            (Some(under), Some(over)) => Ok([under, over]),
            _ => Err(QueryError::Session("no error can be promised with so small a beta")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_few_digits_are_around_those_of_many() {
        const FINE: u64 = 400;
        let mut rng = ChaCha20Rng::seed_from_u64(12);
        let mut certain = 0;
        for number in 0..300_u64 {
            let key = RunKey::draw(&mut rng);
            let mechanism = AboveThreshold::of_step(1 + number * 1_500_000);
            for distance in [-40, -3, 0, 2, 9] {
                let bounds = |bits| {
                    let level = key.uniform(0, bits).log_reciprocal(bits)?;
                    let below = mechanism.below(&level, distance, bits)?;
                    Some([level, below])
                };
                let fine = bounds(FINE).unwrap();
                for bits in [9, 17, 60] {
                    let Some(coarse) = bounds(bits) else { continue };
                    certain += 1;
                    for (coarse, fine) in coarse.iter().zip(&fine) {
                        let is_around = &coarse.low << (FINE - bits) <= fine.low
                            && &coarse.high << (FINE - bits) >= fine.high;
                        assert!(is_around, "{number} {distance} {bits}");
                    }
                }
            }
        }
        assert!(certain > 4_000, "{certain}");
    }

    #[test]
    fn answers_do_not_depend_on_the_digits_that_are_known_at_first() {
        let mut answers = [0; 2];
        for seed in 0..150_u64 {
            let mut rng = ChaCha20Rng::seed_from_u64(seed);
            let key = RunKey::draw(&mut rng);
            let mechanism = AboveThreshold::of_step(1 + seed * 3_000_000);
            for distance in [-400, -7, 0, 1, 5, 30, i64::MAX] {
                let [coarse, fine] = [3, 512].map(|bits| {
                    let mut rng = ChaCha20Rng::seed_from_u64(seed ^ 0x00ff);
                    mechanism.is_above_from(bits, &key, 3, distance, &mut rng)
                });
                assert_eq!(coarse, fine, "{seed} {distance}");
                answers[usize::from(fine)] += 1;
            }
        }
        assert!(answers.iter().all(|&answers| answers > 200), "{answers:?}");
    }
}
