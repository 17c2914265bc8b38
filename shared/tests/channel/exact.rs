//! Exact binary fractions, and bounds for numbers that are not fractions.

use dashu_float::FBig;
use dashu_float::round::Round;
use dashu_float::round::mode::{Down, Up};

/// A binary fraction of unlimited precision: sums and products are exact.
pub(crate) type Exact = FBig<Down, 2>;

/// Precision of exponentials and logarithms.
const BITS: usize = 256;

/// The exact value of `x`.
pub(crate) fn exact(x: f64) -> Exact {
    Exact::try_from(x).unwrap().with_precision(0).value()
}

/// The exact value of `n`.
pub(crate) fn whole(n: u128) -> Exact {
    Exact::from(n).with_precision(0).value()
}

/// `2^power`.
pub(crate) fn power_of_two(power: isize) -> Exact {
    whole(1) << power
}

/// `x` with a limited precision, for operations that need one.
pub(crate) fn rounded<R: Round>(x: &Exact) -> FBig<R, 2> {
    x.clone().with_rounding::<R>().with_precision(BITS).value()
}

/// `x` as an exact fraction.
pub(crate) fn unlimited<R: Round>(x: FBig<R, 2>) -> Exact {
    x.with_rounding::<Down>().with_precision(0).value()
}

/// The largest number of 256 bits that is not above `e^x`.
pub(crate) fn exp_below(x: f64) -> Exact {
    unlimited(rounded::<Down>(&exact(x)).exp())
}

/// The smallest number of 256 bits that is not below `e^x`.
pub(crate) fn exp_above(x: f64) -> Exact {
    unlimited(rounded::<Up>(&exact(x)).exp())
}

/// `e^x - 1` to 256 bits, rounded down.
pub(crate) fn exp_m1(x: &Exact) -> Exact {
    unlimited(rounded::<Down>(x).exp_m1())
}

/// `a/b` to 256 bits, rounded down.
pub(crate) fn quotient(a: &Exact, b: &Exact) -> Exact {
    unlimited(rounded::<Down>(a) / rounded::<Down>(b))
}

/// `ln(a/b)` to about 250 bits.
pub(crate) fn log_of_quotient(a: &Exact, b: &Exact) -> Exact {
    unlimited(rounded::<Down>(&quotient(&(a - b), b)).ln_1p())
}

/// `ceil(x)` of a number in `0..2^128`.
pub(crate) fn ceiling(x: &Exact) -> u128 {
    u128::try_from(x.ceil()).unwrap()
}

/// `|a - b|`.
pub(crate) fn distance(a: &Exact, b: &Exact) -> Exact {
    if a < b { b - a } else { a - b }
}

#[test]
fn the_reference_agrees_with_published_digits() {
    // e and ln 2 to 40 digits (OEIS A001113, A002162), as whole numbers of
    // 10^-36, which leaves a rounding of one unit.
    let unit = whole(10_u128.pow(36));
    let e = ceiling(&(exp_below(1.0) * &unit));
    assert_eq!(e, 2_718_281_828_459_045_235_360_287_471_352_662_498);
    let ln_2 = ceiling(&(log_of_quotient(&whole(2), &whole(1)) * &unit));
    assert_eq!(ln_2, 693_147_180_559_945_309_417_232_121_458_176_569);
    assert!(exp_below(1.0) < exp_above(1.0));
    assert!(exp_above(1.0) - exp_below(1.0) <= power_of_two(-253));
}

#[test]
fn sums_and_products_are_exact() {
    let tiny = exact(f64::from_bits(1));
    assert_eq!(tiny, power_of_two(-1074));
    let sum = exact(f64::MAX) + &tiny;
    assert_eq!(sum - exact(f64::MAX), tiny);
    let big = whole(u128::MAX);
    assert_eq!(&big * &big, power_of_two(256) - power_of_two(129) + whole(1));
}
