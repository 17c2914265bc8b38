//! Bounds of real numbers, as integers in units of 2^-b: powers, logarithms and uniform numbers.
//!
//! The bounds hold as every operation rounds the lower one down and the upper one up: exp(-r) for r
//! <= 1 is within its last term of its alternating series, as terms become smaller, and larger
//! exponents are halved before and squared after; -ln(1 - y) for y <= 1/2 is the sum of y^i/i, and
//! what is left after a term is below its power.

use num_bigint::BigUint;
use rand::Rng;

/// Additional binary digits that absorb rounding errors.
pub(super) const GUARD: u64 = 16;

/// An interval that contains a number.
#[derive(Clone, Debug, Default)]
pub(super) struct Bounds {
    pub(super) low: BigUint,
    pub(super) high: BigUint,
}

impl Bounds {
    pub(super) fn exactly(number: BigUint) -> Self {
        Self { low: number.clone(), high: number }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.low += &other.low;
        self.high += &other.high;
    }

    /// The product; all are in units of 2^-`bits`.
    pub(super) fn times(&self, other: &Self, bits: u64) -> Self {
        let (low, high) = (&self.low * &other.low, &self.high * &other.high);
        Self { low: low >> bits, high: (high >> bits) + 1_u32 }
    }

    /// The quotient by a number above 0, if that is certain.
    pub(super) fn over(&self, divisor: &Self, bits: u64) -> Option<Self> {
        let is_positive = divisor.low > BigUint::ZERO;
        is_positive.then(|| Self {
            low: (&self.low << bits) / &divisor.high,
            high: (&self.high << bits) / &divisor.low + 1_u32,
        })
    }

    fn divided(&self, divisor: u32) -> Self {
        Self { low: &self.low / divisor, high: &self.high / divisor + 1_u32 }
    }
}

/// exp(-`numerator`/`denominator`), in units of 2^-`bits`.
pub(super) fn exp((numerator, denominator): (u128, u128), bits: u64) -> Bounds {
    let (numerator, mut denominator) = (BigUint::from(numerator), BigUint::from(denominator));
    let mut halvings = 0;
    while denominator < numerator {
        denominator <<= 1;
        halvings += 1;
    }
    let low = (numerator << bits) / denominator;
    let exponent = Bounds { high: &low + 1_u32, low };
    let mut power = exp_of_part(&exponent, bits);
    for _ in 0..halvings {
        power = power.times(&power, bits);
    }
    power
}

/// exp(-`exponent`), of any exponent.
pub(super) fn exp_of(exponent: &Bounds, bits: u64) -> Bounds {
    if (&exponent.low >> bits) >= BigUint::from(bits) {
        return Bounds { low: BigUint::ZERO, high: BigUint::from(1_u32) };
    }
    // At most 1 after the halvings, also with the rounding.
    let halvings = (&exponent.high >> bits).bits() + 1;
    let (low, high) = (&exponent.low >> halvings, (&exponent.high >> halvings) + 1_u32);
    let mut power = exp_of_part(&Bounds { low, high }, bits);
    for _ in 0..halvings {
        power = power.times(&power, bits);
    }
    power
}

/// -ln of a number above 0 and at most 1.
fn log_reciprocal(number: &BigUint, bits: u64) -> Bounds {
    let one = BigUint::from(1_u32) << bits;
    let halvings = bits.saturating_sub(number.bits());
    // number = 2^-halvings (1 - rest), with a rest of at most 1/2.
    let series = |rest: &BigUint| {
        let rest = Bounds::exactly(rest.clone());
        let (mut power, mut sum) = (Bounds::exactly(one.clone()), Bounds::default());
        for i in 1.. {
            power = power.times(&rest, bits);
            sum.add(&power.divided(i));
            if power.high <= BigUint::from(2_u32) {
                break;
            }
        }
        sum.high += &power.high;
        sum
    };
    let mut log = series(&(&one - (number << halvings).min(one.clone())));
    let two = series(&(&one >> 1_u32));
    log.low += two.low * halvings;
    log.high += two.high * halvings;
    log
}

/// exp(-`exponent`) for an exponent of at most 1.
fn exp_of_part(exponent: &Bounds, bits: u64) -> Bounds {
    let one = BigUint::from(1_u32) << bits;
    let mut term = Bounds::exactly(one.clone());
    let (mut added, mut taken) = (term.clone(), Bounds::default());
    for k in 1.. {
        term = term.times(exponent, bits).divided(k);
        if k % 2 == 1 { &mut taken } else { &mut added }.add(&term);
        if term.high <= BigUint::from(2_u32) {
            break;
        }
    }
    let (most, less) = (added.high + &term.high, taken.high + &term.high);
    let low = if added.low > less { added.low - less } else { BigUint::ZERO };
    Bounds { low, high: (most - taken.low).min(one) }
}

/// A uniform number in [0, 1), of which the first digits are known.
#[derive(Default)]
pub(super) struct Uniform {
    digits: BigUint,
    count: u64,
}

impl Uniform {
    /// Draws digits until `count` are known.
    pub(super) fn extend<R: Rng + ?Sized>(&mut self, count: u64, rng: &mut R) {
        while self.count < count {
            self.digits = (std::mem::take(&mut self.digits) << 64_u32) + rng.next_u64();
            self.count += 64;
        }
    }

    /// Its bounds, from `bits` of its digits, which must be known.
    pub(super) fn bounds(&self, bits: u64) -> Bounds {
        let low = &self.digits >> self.count.saturating_sub(bits);
        Bounds { high: &low + 1_u32, low }
    }

    /// -ln of it, if it is certainly above 0: an exponentially distributed number.
    pub(super) fn log_reciprocal(&self, bits: u64) -> Option<Bounds> {
        let Bounds { low, high } = self.bounds(bits);
        if low == BigUint::ZERO {
            return None;
        }
        // -ln(x) is at most -ln(x + u) + u/x.
        let mut log = log_reciprocal(&high, bits);
        log.high += (BigUint::from(1_u32) << bits) / low + 1_u32;
        Some(log)
    }

    /// The product with a number above 0. The upper bound is exclusive.
    pub(super) fn times(&self, factor: &Bounds) -> Bounds {
        let low = (&self.digits * &factor.low) >> self.count;
        let high = ((&self.digits + 1_u32) * &factor.high) >> self.count;
        Bounds { low, high: high + 1_u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha20Rng;
    use rand_chacha::rand_core::SeedableRng as _;

    fn float(number: &BigUint, bits: u64) -> f64 {
        let kept = number.bits().saturating_sub(60);
        let head = u64::try_from(number >> kept).unwrap_or(u64::MAX) as f64;
        let shift = i32::try_from(kept).unwrap_or(0) - i32::try_from(bits).unwrap_or(0);
        head * 2.0_f64.powi(shift)
    }

    #[test]
    fn powers_and_logarithms_are_within_their_bounds() {
        for bits in [64, 256] {
            for x in [1_u64, 3, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32] {
                // x/2^32.
                let number = BigUint::from(x) << (bits - 32);
                let log = log_reciprocal(&number, bits);
                let exact = -(x as f64 / 4_294_967_296.0).ln();
                assert!(log.low <= log.high);
                assert!(&log.high - &log.low <= BigUint::from(100 * bits), "{x} {bits}");
                assert!(
                    (float(&log.low, bits) - exact).abs() < 1e-14 * (1.0 + exact),
                    "{x} {bits}"
                );
                // And back.
                let back = exp_of(&log, bits);
                assert!(back.low <= number && number <= back.high, "{x} {bits}");
                let width = float(&(&back.high - &back.low), bits);
                assert!(width < 2.0_f64.powi(-45), "{x} {bits}: {width}");
            }
            let huge = Bounds::exactly(BigUint::from(1_u32) << (bits + 40));
            assert_eq!(exp_of(&huge, bits).low, BigUint::ZERO);
            let two = Bounds::exactly(BigUint::from(2_u32) << bits);
            let half = Bounds::exactly(BigUint::from(1_u32) << (bits - 1));
            let four = two.over(&half, bits).map(|Bounds { low, .. }| low >> bits);
            assert_eq!(four, Some(BigUint::from(4_u32)));
            assert!(two.over(&Bounds::default(), bits).is_none());
        }
    }

    #[test]
    fn digits_that_are_drawn_later_leave_earlier_bounds_true() {
        let mut rng = ChaCha20Rng::seed_from_u64(8);
        let mut uniform = Uniform::default();
        uniform.extend(100, &mut rng);
        let early = uniform.bounds(64);
        uniform.extend(300, &mut rng);
        let late = uniform.bounds(256);
        assert!(late.low >= &early.low << 192_u32 && late.high <= &early.high << 192_u32);
        for bits in [8, 64, 256] {
            let Bounds { low, high } = uniform.bounds(bits);
            let log = uniform.log_reciprocal(bits).unwrap();
            assert!(log.low <= log_reciprocal(&high, bits).low);
            assert!(log.high >= log_reciprocal(&low, bits).low);
        }
        assert!(Uniform::default().log_reciprocal(64).is_none());
    }
}
