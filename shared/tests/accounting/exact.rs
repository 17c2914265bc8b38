//! Numbers of 256 bits.

use dashu_float::FBig;
use dashu_float::round::mode::Down;

/// A number of 256 bits; operations on it round down in the last of them.
pub(crate) type Real = FBig<Down, 2>;

const BITS: usize = 256;

/// The exact value of `x`.
pub(crate) fn real(x: f64) -> Real {
    Real::try_from(x).unwrap().with_precision(BITS).value()
}

/// The exact value of `n`.
pub(crate) fn whole(n: u64) -> Real {
    Real::from(n).with_precision(BITS).value()
}

/// `2^power`.
pub(crate) fn power_of_two(power: isize) -> Real {
    whole(1) << power
}

/// The larger number.
pub(crate) fn larger(a: Real, b: Real) -> Real {
    if a < b { b } else { a }
}

/// A bound of the error of thousands of operations on numbers below 2^40.
pub(crate) fn slack() -> Real {
    power_of_two(-200)
}

/// ln(1/δ).
pub(crate) fn log_reciprocal(delta: f64) -> Real {
    -real(delta).ln()
}

/// tanh(ε/2).
pub(crate) fn tanh_of_half(loss: f64) -> Real {
    let growth = real(loss).exp();
    (&growth - whole(1)) / (&growth + whole(1))
}

/// The δ of k rounds of randomized response with loss `single` against `loss`,
/// by the sum over the number of flips.
pub(crate) fn delta_of_equal(single: f64, rounds: u32, loss: f64) -> Real {
    let growth = real(single).exp();
    let mut probability = (&growth / (whole(1) + &growth)).powi(rounds.into());
    // e^loss/e^(the privacy loss of this number of flips)
    let mut quotient = real(loss).exp() / growth.powi(rounds.into());
    let square = &growth * &growth;
    let mut delta = whole(0);
    for flips in 0..=rounds {
        if quotient >= whole(1) {
            break;
        }
        delta += &probability * (whole(1) - &quotient);
        probability =
            probability * whole(u64::from(rounds - flips)) / whole(u64::from(flips + 1)) / &growth;
        quotient *= &square;
    }
    delta
}

/// The δ of rounds of randomized response with these losses against `loss`, by
/// enumeration of all outputs.
pub(crate) fn delta_by_enumeration(losses: &[f64], loss: f64) -> Real {
    let kept: Vec<Real> = losses
        .iter()
        .map(|&single| {
            let growth = real(single).exp();
            &growth / (whole(1) + &growth)
        })
        .collect();
    let factor = real(loss).exp();
    let mut delta = whole(0);
    for output in 0..1_u32 << losses.len() {
        // P under one input, and under the other, where flips change places.
        let (mut here, mut there) = (whole(1), whole(1));
        for (round, kept) in kept.iter().enumerate() {
            let flipped = whole(1) - kept;
            let (p, q) = if output >> round & 1 == 0 { (kept, &flipped) } else { (&flipped, kept) };
            here *= p;
            there *= q;
        }
        delta += larger(whole(0), here - &factor * there);
    }
    delta
}

#[test]
fn enumeration_and_sum_agree() {
    for (single, rounds, loss) in [(0.5, 7, 1.0), (1.25, 4, 0.0), (0.01, 9, 0.03), (3.0, 5, 3.0)] {
        let sum = delta_of_equal(single, rounds, loss);
        let enumerated = delta_by_enumeration(&vec![single; rounds as usize], loss);
        let difference = larger(&sum - &enumerated, &enumerated - &sum);
        assert!(difference < slack(), "{single} {rounds} {loss}");
        assert!(sum > power_of_two(-60));
    }
}
