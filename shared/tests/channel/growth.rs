//! The lower bound of `e^ε - 1`, against exact numbers.

use bandana_shared::channel::Growth;
use bandana_shared::epsilon::Epsilon;
use rand::{Rng as _, RngExt as _};

use crate::channel::cases::{epsilons, patterns, random};
use crate::channel::exact::{Exact, exact, exp_m1, power_of_two, whole};

/// The bound as a fraction.
fn bound(epsilon: Epsilon) -> Exact {
    let growth = Growth::below(epsilon);
    whole(growth.mantissa().into()) * power_of_two(-isize::try_from(growth.shift()).unwrap())
}

#[test]
fn the_bound_is_below_and_near() {
    for epsilon in epsilons(1000).into_iter().chain(patterns(100)) {
        let (found, exact) = (bound(epsilon), exp_m1(&exact(epsilon.get())));
        assert!(found < exact, "{epsilon:?}");
        assert!(&exact - found <= &exact * power_of_two(-58), "{epsilon:?}");
    }
}

#[test]
fn known_exponentials() {
    // e = 2.718281828459045235..., e^32 = 78962960182680.69516...
    let places = |nats, unit: u128| {
        let scaled = bound(Epsilon::new(nats).unwrap()) * whole(unit);
        u128::try_from(scaled.floor()).unwrap()
    };
    assert_eq!(places(1.0, 10_u128.pow(16)), 17_182_818_284_590_452);
    assert_eq!(places(32.0, 1000), 78_962_960_182_679_695);
    let of_one = Growth::below(Epsilon::new(1.0).unwrap());
    assert_eq!((of_one.mantissa(), of_one.shift()), (7_924_176_284_022_426_266, 62));
}

#[test]
fn a_step_is_the_floor_of_its_fraction() {
    let mut random = random(8);
    let edges = [0, 1, (1 << 58) - 1, 1 << 58, 1 << 63, u64::MAX];
    for round in 0..100_000_usize {
        let word = |random: &mut rand_chacha::ChaCha8Rng| {
            let any = random.next_u64() >> random.random_range(0..64);
            edges.get(random.random_range(0..12)).copied().unwrap_or(any)
        };
        let (epsilon, high, low) = (word(&mut random), word(&mut random), word(&mut random));
        let sum = u128::from(high) << 64 | u128::from(low);
        let n = u8::try_from(2 + round % 254).unwrap();
        let step = Growth::step(epsilon, sum, n);
        // 2^64 + floor(ε s/(2^58 n)), with s modulo 2^122.
        let rise = whole(step - (1 << 64));
        let unit = whole(n.into()) * power_of_two(58);
        let product = whole(epsilon.into()) * whole(sum & ((1 << 122) - 1));
        assert!(&rise * &unit <= product, "{epsilon} {sum} {n}");
        assert!(product < (&rise + whole(1)) * &unit, "{epsilon} {sum} {n}");
    }
}
