//! The privacy loss of the channel, from its integers.

use bandana_shared::accounting::nano_nats::NanoNats;
use bandana_shared::alphabet::Alphabet;
use bandana_shared::channel::{Channel, Floor};
use bandana_shared::curve::{Curve, Level, Mechanism};
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::ExperimentId;
use bandana_shared::rewards::Rewards;
use bandana_shared::specification::{Arm, ReleaseTiming, Specification, SpecificationParts};
use rand::RngExt as _;

use crate::channel::cases::{epsilons, levels, mechanisms, probability, random};
use crate::channel::exact::{Exact, exp_below, log_of_quotient, power_of_two, whole};

/// Whether the likelihood ratio of both outputs stays within `bound` when
/// `P(1)` ranges over `least..=greatest`, in units of `2^-128`.
fn within(bound: &Exact, least: u128, greatest: u128) -> bool {
    let (least, greatest) = (whole(least), whole(greatest));
    let one = power_of_two(128);
    let ones = greatest <= bound * &least;
    let zeros = &one - &least <= bound * &(&one - &greatest);
    ones && zeros
}

#[test]
fn no_reward_pair_and_no_output_exceeds_epsilon() {
    let levels = levels(12);
    for epsilon in epsilons(150) {
        let floor = Floor::for_epsilon(epsilon);
        let bound = exp_below(epsilon.get());
        for mechanism in mechanisms() {
            let curve = Curve::new(mechanism, epsilon);
            let all = levels.iter().map(|&level| probability(floor, &curve, level));
            let (least, greatest) =
                all.fold((u128::MAX, 0), |(least, greatest), p| (p.min(least), p.max(greatest)));
            assert!(least > 0, "{epsilon:?} {mechanism:?}");
            assert!(
                within(&bound, least, greatest),
                "{epsilon:?} {mechanism:?}: {least:x} {greatest:x}"
            );
        }
    }
}

#[test]
fn the_extreme_rewards_use_the_whole_budget() {
    // The ends are exactly t0/2^64 and 1 - t0/2^64 for every curve, and the
    // loss is not far below epsilon: with 1.0001 epsilon less it would exceed.
    for epsilon in epsilons(40) {
        let floor = Floor::for_epsilon(epsilon);
        for mechanism in mechanisms() {
            let curve = Curve::new(mechanism, epsilon);
            let least = probability(floor, &curve, Level::ZERO);
            let greatest = probability(floor, &curve, Level::ONE);
            assert_eq!(least, u128::from(floor.get()) << 64);
            assert_eq!(greatest, 0_u128.wrapping_sub(least));
            let smaller = exp_below(epsilon.get() * 0.9999);
            assert!(!within(&smaller, least, greatest), "{epsilon:?}");
        }
    }
}

#[test]
fn the_loss_of_any_verified_floor_stays_within_its_epsilon() {
    // A curve prepared for another epsilon is also bounded by the floor alone.
    let (one, eight) = (Epsilon::new(1.0).unwrap(), Epsilon::new(8.0).unwrap());
    let floor = Floor::verify(1 << 62, Epsilon::new(1.2).unwrap()).unwrap();
    for curve_epsilon in [one, eight] {
        for mechanism in mechanisms() {
            let curve = Curve::new(mechanism, curve_epsilon);
            for level in levels(50) {
                let p = probability(floor, &curve, level);
                // ln 3 = 1.0986...: P is between 1/4 and 3/4.
                assert!((1_u128 << 126..=3 << 126).contains(&p));
            }
        }
    }
}

/// The decimal fractions of which a report may be, in nano-nats.
fn decimals() -> Vec<u64> {
    let mut random = random(7);
    let tenths = (1..=159).map(|tenths| tenths * 100_000_000);
    let hundredths = (1..=300).map(|hundredths| hundredths * 10_000_000);
    let drawn: Vec<u64> = (0..400).map(|_| random.random_range(1000..16_000_000_000_u64)).collect();
    let fractions = (1..=100).map(|parts| 1_000_000_000 / parts);
    tenths.chain(hundredths).chain(drawn).chain(fractions).collect()
}

fn specification(epsilon: Epsilon, symbols: u32, floor: Option<u64>) -> Specification {
    let alphabet = Alphabet::new(symbols).unwrap();
    let (mechanism, rewards) = if alphabet == Alphabet::BITS {
        (Mechanism::Linear, Rewards::binary())
    } else {
        (Mechanism::Kary(alphabet), Rewards::categorical(alphabet))
    };
    let name = ExperimentId::new("priced").unwrap();
    let arms = vec![Arm::new("a").unwrap()];
    let timing = ReleaseTiming::IMMEDIATE;
    let first = Specification::first(name, epsilon, rewards, mechanism, arms, timing).unwrap();
    let parts = first.to_parts();
    let floor = floor.unwrap_or(parts.floor);
    Specification::new(SpecificationParts { floor, ..parts }).unwrap()
}

/// The loss of a channel in nano-nats, from its integers, to 2^-200 above.
fn loss_in_nano_nats(channel: Channel) -> Exact {
    let others = u128::from(channel.alphabet().len()) - 1;
    let least = whole(u128::from(channel.floor()));
    let most = power_of_two(64) - &least * whole(others);
    (log_of_quotient(&most, &least) + power_of_two(-230)) * whole(1_000_000_000)
}

#[test]
fn a_decimal_epsilon_costs_what_it_says_and_its_channel_loses_no_more() {
    let mut rounded_up_before = 0;
    for nano_nats in decimals() {
        let epsilon = Epsilon::new(nano_nats as f64 / 1e9).unwrap();
        for symbols in [2, 3, 16] {
            let specification = specification(epsilon, symbols, None);
            assert_eq!(specification.price().get(), nano_nats, "{epsilon:?}, {symbols} symbols");
            let loss = loss_in_nano_nats(specification.channel());
            assert!(loss <= whole(u128::from(nano_nats)), "{epsilon:?}, {symbols} symbols");
        }
        rounded_up_before += u32::from(NanoNats::from_epsilon(epsilon).get() > nano_nats);
    }
    assert!(rounded_up_before > 200, "{rounded_up_before}");
    let price = |nats| specification(Epsilon::new(nats).unwrap(), 2, None).price();
    let nat = NanoNats::new(NanoNats::PER_NAT);
    assert_eq!((nat.reports(price(0.2)), nat.reports(price(0.1))), (5, 10));
}

#[test]
fn the_loss_of_any_channel_is_at_most_its_price() {
    for epsilon in epsilons(60) {
        let specification = specification(epsilon, 2, None);
        let price = whole(u128::from(specification.price().get()));
        assert!(loss_in_nano_nats(specification.channel()) <= price, "{epsilon:?}");
    }
    // The least floor that is accepted for 0.2 is not for the number below it, and costs more.
    let epsilon = Epsilon::new(0.2).unwrap();
    let (mut refused, mut accepted) = (1, Floor::for_epsilon(epsilon).get());
    while accepted - refused > 1 {
        let middle = refused + (accepted - refused) / 2;
        match Floor::verify(middle, epsilon) {
            Ok(_) => accepted = middle,
            Err(_) => refused = middle,
        }
    }
    assert_eq!(specification(epsilon, 2, Some(accepted)).price().get(), 200_000_001);
}
