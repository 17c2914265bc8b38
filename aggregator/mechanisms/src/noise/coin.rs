//! Coins of exact bias, tossed with integers.

use rand::Rng;

/// Returns `true` with probability `numerator`/`denominator`, exactly. It always does if that is 1
/// or more, or if the denominator is 0.
///
/// ```
/// use rand_chacha::rand_core::SeedableRng as _;
/// let mut rng = rand_chacha::ChaCha20Rng::seed_from_u64(1);
/// assert!(bandana_mechanisms::noise::bernoulli(3, 3, &mut rng));
/// assert!(!bandana_mechanisms::noise::bernoulli(0, 3, &mut rng));
/// ```
pub fn bernoulli<R: Rng + ?Sized>(numerator: u128, denominator: u128, rng: &mut R) -> bool {
    numerator >= denominator || below(denominator, rng) < numerator
}

/// Returns `true` with probability exp(-`numerator`/`denominator`), exactly (Canonne, Kamath and
/// Steinke 2020, algorithm 1). It never does if the denominator is 0.
///
/// ```
/// use rand_chacha::rand_core::SeedableRng as _;
/// let mut rng = rand_chacha::ChaCha20Rng::seed_from_u64(1);
/// assert!(bandana_mechanisms::noise::bernoulli_exp(0, 1, &mut rng));
/// ```
pub fn bernoulli_exp<R: Rng + ?Sized>(numerator: u128, denominator: u128, rng: &mut R) -> bool {
    let Some(whole) = numerator.checked_div(denominator) else { return false };
    exp_of_parts(whole, numerator % denominator, denominator, rng)
}

/// True with probability exp(-`root`^2/`denominator`), exactly, for a denominator below
/// 2^127.
pub(super) fn bernoulli_exp_square<R: Rng + ?Sized>(
    root: u128,
    denominator: u128,
    rng: &mut R,
) -> bool {
    if let Some(square) = root.checked_mul(root) {
        return bernoulli_exp(square, denominator, rng);
    }
    let (whole, rest) = divide_square(root, denominator);
    exp_of_parts(whole, rest, denominator, rng)
}

/// Quotient and remainder of `root`^2 by `denominator` < 2^127. A quotient beyond 128 bits
/// saturates: that many coins are never all true.
fn divide_square(root: u128, denominator: u128) -> (u128, u128) {
    let (low, high) = root.carrying_mul(root, 0);
    let (mut quotient, mut overflows, mut rest) = (0_u128, false, 0_u128);
    for bit in (0..256).rev() {
        let word = if bit < 128 { low } else { high };
        rest = (rest << 1) | ((word >> (bit % 128)) & 1);
        let fits = rest >= denominator;
        if fits {
            rest -= denominator;
        }
        overflows |= quotient >> 127 == 1;
        quotient = (quotient << 1) | u128::from(fits);
    }
    (if overflows { u128::MAX } else { quotient }, rest)
}

/// True with probability exp(-`whole` - `numerator`/`denominator`).
fn exp_of_parts<R: Rng + ?Sized>(
    whole: u128,
    numerator: u128,
    denominator: u128,
    rng: &mut R,
) -> bool {
    let mut left = whole;
    while left > 0 {
        if !exp_of_fraction(1, 1, rng) {
            return false;
        }
        left -= 1;
    }
    exp_of_fraction(numerator, denominator, rng)
}

/// True with probability exp(-γ) for γ = `numerator`/`denominator` of at most 1.
///
/// The coins of probability γ/k, for k = 1, 2, ..., are thrown until one is false; with K
/// the number of that one, P(K > k) = γ^k/k!, so K is odd with probability exp(-γ). A coin of
/// γ/k is two coins, of γ and of 1/k, which keeps the denominator small.
fn exp_of_fraction<R: Rng + ?Sized>(numerator: u128, denominator: u128, rng: &mut R) -> bool {
    let mut k = 1_u64;
    while bernoulli(numerator, denominator, rng) && below_word(k, rng) == 0 {
        k += 1;
    }
    k % 2 == 1
}

/// A uniformly random integer below `bound`, at least 1.
pub(crate) fn below<R: Rng + ?Sized>(bound: u128, rng: &mut R) -> u128 {
    if let Ok(bound) = u64::try_from(bound) {
        return u128::from(below_word(bound, rng));
    }
    let mask = u128::MAX >> (bound - 1).leading_zeros();
    loop {
        let word = (u128::from(rng.next_u64()) << 64) | u128::from(rng.next_u64());
        if word & mask < bound {
            return word & mask;
        }
    }
}

fn below_word<R: Rng + ?Sized>(bound: u64, rng: &mut R) -> u64 {
    if bound <= 1 {
        return 0;
    }
    let mask = u64::MAX >> (bound - 1).leading_zeros();
    loop {
        let word = rng.next_u64() & mask;
        if word < bound {
            return word;
        }
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha20Rng;
    use rand_chacha::rand_core::SeedableRng as _;

    use super::*;

    /// Standard deviations by which a fair coin's count may deviate: exceeded once in 10^9.
    const DEVIATIONS: f64 = 6.1;

    fn check(probability: f64, mut coin: impl FnMut(&mut ChaCha20Rng) -> bool) {
        let mut rng = ChaCha20Rng::seed_from_u64(11);
        let n = 200_000;
        let heads = (0..n).filter(|_| coin(&mut rng)).count() as f64;
        let (n, sd) = (f64::from(n), (f64::from(n) * probability * (1.0 - probability)).sqrt());
        assert!((heads - n * probability).abs() <= DEVIATIONS * sd, "{probability}: {heads}");
    }

    #[test]
    fn coins_have_their_probability() {
        check(2.0 / 3.0, |rng| bernoulli(2, 3, rng));
        check(0.3, |rng| bernoulli(3 << 90, 10 << 90, rng));
        for (numerator, denominator) in [(1, 10), (1, 2), (1, 1), (7, 3), (5, 1)] {
            let probability = (-(numerator as f64) / denominator as f64).exp();
            check(probability, |rng| bernoulli_exp(numerator, denominator, rng));
            let (numerator, denominator) = (numerator << 100, denominator << 100);
            check(probability, |rng| bernoulli_exp(numerator, denominator, rng));
        }
        // Squares beyond 128 bits: (3 2^62)^2/2^126 = 9/4, and (2^70)^2/2^126 = 2^14.
        check((-2.25_f64).exp(), |rng| bernoulli_exp_square(3 << 62, 1 << 126, rng));
        check(0.0, |rng| bernoulli_exp_square(1 << 70, 1 << 126, rng));
    }

    #[test]
    fn squares_are_divided_exactly() {
        let denominator = (1_u128 << 126) + 12_345;
        for root in [1_u128 << 64, (1 << 64) + 987_654_321, u128::MAX >> 2] {
            let (quotient, rest) = divide_square(root, denominator);
            let (low, high) = root.carrying_mul(root, 0);
            let (low_back, high_back) = quotient.carrying_mul(denominator, rest);
            assert_eq!((low, high), (low_back, high_back), "{root}");
            assert!(rest < denominator);
        }
        assert_eq!(divide_square(u128::MAX, 1).0, u128::MAX);
    }
}
