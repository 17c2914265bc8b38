//! Nano-nats.

use bandana_shared::accounting::nano_nats::NanoNats;
use bandana_shared::epsilon::Epsilon;
use proptest::prelude::*;

use crate::accounting::cases::{SINGLES, epsilon, loss, scales, seeded};
use crate::accounting::exact::{real, whole};

#[test]
fn prices_of_the_range_of_a_report() {
    let price = |nats| NanoNats::from_epsilon(epsilon(nats)).get();
    // 10^9/2^20 = 953.67...
    assert_eq!(price(Epsilon::MIN), 954);
    assert_eq!(price(Epsilon::MAX), 32_000_000_000);
    assert_eq!(price(1.0), 1_000_000_000);
    assert_eq!(price(1.0_f64.next_up()), 1_000_000_001);
    // The float 0.1 is above a tenth, 0.3 below three tenths.
    assert_eq!(price(0.1), 100_000_001);
    assert_eq!(price(0.3), 300_000_000);
}

#[test]
fn losses_beyond_the_range_of_a_report() {
    let convert = |nats| NanoNats::from_loss(loss(nats)).map(NanoNats::get);
    assert_eq!(convert(0.0), Ok(0));
    for tiny in [f64::from_bits(1), f64::MIN_POSITIVE, 1e-40, 1e-30, 1e-9_f64.next_down()] {
        assert_eq!(convert(tiny), Ok(1), "{tiny}");
    }
    assert_eq!(convert(1e10), Ok(10_000_000_000_000_000_000));
    let end = (1_u128 << 64) as f64 / 1e9;
    assert!(convert(end.next_down()).is_ok());
    for huge in [end.next_up(), 1e11, 1e15, 1e16, 1e300, f64::MAX, f64::INFINITY] {
        let refused = NanoNats::from_loss(loss(huge)).unwrap_err();
        assert!(refused.to_string().contains("2^64 nano-nats"), "{huge}");
    }
}

#[test]
fn sums_stop_at_the_end() {
    let (one, max) = (NanoNats::new(1), NanoNats::MAX);
    assert_eq!(one.checked_add(one), Some(NanoNats::new(2)));
    assert_eq!(max.checked_add(one), None);
    assert_eq!(max.saturating_add(one), max);
    assert_eq!(one.saturating_sub(max), NanoNats::ZERO);
    assert_eq!(one.checked_mul(u64::MAX), Some(max));
    assert_eq!(NanoNats::new(2).checked_mul(u64::MAX), None);
    assert_eq!(NanoNats::default(), NanoNats::ZERO);
}

#[test]
fn caps_admit_whole_reports() {
    let cap = NanoNats::new(10);
    assert_eq!(cap.reports(NanoNats::new(3)), 3);
    assert_eq!(cap.reports(NanoNats::new(11)), 0);
    assert_eq!(cap.reports(NanoNats::ZERO), u64::MAX);
    assert_eq!(cap.price_of(3), NanoNats::new(3));
    assert_eq!(cap.price_of(11), NanoNats::ZERO);
    assert_eq!(cap.price_of(0), cap);
}

proptest! {
    #![proptest_config(seeded(500, 71))]

    #[test]
    fn prices_are_the_least_whole_number_above(nats in scales(-60.0, 33.0)) {
        let price = NanoNats::from_loss(loss(nats)).unwrap().get();
        let exact = real(nats) * whole(NanoNats::PER_NAT);
        prop_assert!(whole(price) >= exact && whole(price) < exact + whole(1));
    }

    #[test]
    fn losses_of_prices_are_rounded_up(nano_nats in any::<u64>(), shift in 0..64_u32) {
        let nano_nats = nano_nats >> shift;
        let nats = NanoNats::new(nano_nats).to_loss().get();
        let exact = whole(nano_nats);
        prop_assert!(real(nats) * whole(NanoNats::PER_NAT) >= exact);
        prop_assert!(
            nats == 0.0
                || real(nats.next_down().next_down()) * whole(NanoNats::PER_NAT) < exact
        );
    }

    #[test]
    fn what_a_cap_admits_fits_it_and_one_more_does_not(
        cap in 0..1_u64 << 50, index in 0..SINGLES.len()
    ) {
        let price = NanoNats::from_epsilon(epsilon(SINGLES[index]));
        let cap = NanoNats::new(cap);
        let reports = cap.reports(price);
        prop_assert!(price.checked_mul(reports).unwrap() <= cap);
        prop_assert!(price.checked_mul(reports + 1).unwrap() > cap);
        prop_assert!(reports == 0 || cap.price_of(reports) >= price);
    }
}
