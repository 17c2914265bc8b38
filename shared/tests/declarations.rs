//! Names, numbers and rewards: accepted and refused values.

#![cfg(test)]

use bandana_shared::curve::Level;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::estimate::Estimand;
use bandana_shared::identity::{
    ArmIndex, Day, Digest, ExperimentId, IdentityError, Revision, UnixSeconds, UploadId,
};
use bandana_shared::interval::Interval;
use bandana_shared::limits::{ARMS_MAX, EXPERIMENT_ID_CHARS_MAX};
use bandana_shared::rewards::{OutOfRange, RewardKind, RewardRange, Rewards, RewardsError};

#[test]
fn experiment_ids_follow_their_rule() {
    let longest = "a".repeat(EXPERIMENT_ID_CHARS_MAX);
    for name in ["a", "7", "a-b_c.d", "0.9", &longest] {
        assert_eq!(ExperimentId::new(name).unwrap().as_str(), name);
    }
    let too_long = longest + "a";
    for name in ["", "-a", ".a", "_a", "A", "a b", "a/b", "ä", "a\0", "a\n", &too_long] {
        let refused = Err(IdentityError::ExperimentId(name.to_owned()));
        assert_eq!(ExperimentId::new(name), refused);
    }
}

#[test]
fn numbers_and_names_of_fixed_length_are_checked() {
    assert_eq!(ArmIndex::new(ARMS_MAX - 1).unwrap().get(), ARMS_MAX - 1);
    for index in [ARMS_MAX, 65_536, 65_537, usize::MAX] {
        assert_eq!(ArmIndex::new(index), Err(IdentityError::Index(index)));
    }
    assert_eq!(Revision::new(0), Err(IdentityError::Revision));
    assert_eq!(Revision::new(u32::MAX).unwrap().next().get(), u32::MAX);
    assert_eq!(Revision::FIRST.next().get(), 2);
    let bytes = [0xab; 17];
    for length in [0, 15, 17] {
        let (upload, digest) =
            (UploadId::try_from(&bytes[..length]), Digest::try_from(&bytes[..length]));
        assert_eq!(upload, Err(IdentityError::UploadId(length)));
        assert_eq!(digest, Err(IdentityError::Digest(length)));
    }
    let id = UploadId::try_from(&bytes[..16]).unwrap();
    assert_eq!(id.to_string(), "ab".repeat(16));
    assert_eq!(format!("{id:?}"), format!("UploadId({})", "ab".repeat(16)));
}

#[test]
fn days_are_counted_from_the_epoch() {
    assert_eq!(Day::of_unix_seconds(86_399), Day::new(0));
    assert_eq!(Day::of_unix_seconds(86_400), Day::new(1));
    // 2024-02-29T12:00:00Z
    assert_eq!(Day::of_unix_seconds(1_709_208_000), Day::new(19_782));
    assert_eq!(Day::of_unix_seconds(u64::MAX), Day::new(u32::MAX));
    assert_eq!(Day::new(5).back(2), Day::new(3));
    assert_eq!(Day::new(5).back(6), Day::new(0));
}

#[test]
fn moments_are_shown_by_the_calendar() {
    // By GNU date.
    for (seconds, text) in [
        (0, "1970-01-01 00:00:00 UTC"),
        (951_782_399, "2000-02-28 23:59:59 UTC"),
        (951_868_800, "2000-03-01 00:00:00 UTC"),
        (1_709_208_001, "2024-02-29 12:00:01 UTC"),
        (1_735_689_599, "2024-12-31 23:59:59 UTC"),
        (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        (253_402_300_799, "9999-12-31 23:59:59 UTC"),
    ] {
        assert_eq!(UnixSeconds::new(seconds).to_string(), text);
    }
    assert_eq!(UnixSeconds::new(5).after_days(2), UnixSeconds::new(172_805));
    assert_eq!(UnixSeconds::new(u64::MAX).after_days(1), UnixSeconds::new(u64::MAX));
}

#[test]
fn epsilons_lie_in_their_range() {
    for nats in [Epsilon::MIN, 1.0, Epsilon::MAX] {
        assert_eq!(Epsilon::new(nats).map(|e| e.get().to_bits()), Ok(nats.to_bits()));
    }
    for nats in [Epsilon::MIN.next_down(), Epsilon::MAX.next_up(), 0.0, -1.0, f64::INFINITY] {
        assert!(Epsilon::new(nats).is_err(), "{nats}");
    }
}

#[test]
fn ranges_are_finite_and_ascending() {
    for (low, high) in [
        (0.0, 0.0),
        (0.0, -0.0),
        (1.0, 0.0),
        (f64::NAN, 1.0),
        (0.0, f64::NAN),
        (f64::NEG_INFINITY, 0.0),
        (0.0, f64::INFINITY),
        (-f64::MAX, f64::MAX),
    ] {
        let refused = RewardRange::new(low, high);
        assert!(matches!(refused, Err(RewardsError::Range { .. })), "{low} {high}");
    }
    let tiny = RewardRange::new(0.0, f64::from_bits(1)).unwrap();
    assert_eq!(tiny.level(f64::from_bits(1)), Ok(Level::ONE));
}

#[test]
fn defaults_and_clamping_fit_the_kind_of_reward() {
    let range = RewardRange::new(-1.0, 3.0).unwrap();
    let binary =
        |out_of_range, default| Rewards::new(RewardKind::Binary, range, out_of_range, default);
    let bounded = |default| Rewards::new(RewardKind::Bounded, range, OutOfRange::Clamp, default);
    assert_eq!(binary(OutOfRange::Clamp, 3.0), Err(RewardsError::BinaryClamp));
    for default in [0.0, 2.9, 4.0] {
        assert_eq!(binary(OutOfRange::Refuse, default), Err(RewardsError::Default { default }));
    }
    for default in [(-1.0_f64).next_down(), 3.0_f64.next_up(), f64::INFINITY] {
        assert_eq!(bounded(default), Err(RewardsError::Default { default }));
    }
    assert!(bounded(f64::NAN).is_err());
    assert!(bounded(0.1).unwrap().admits(2.9));
    let ends = binary(OutOfRange::Refuse, -1.0).unwrap();
    assert!(ends.admits(-1.0) && ends.admits(3.0) && !ends.admits(0.0));
}

#[test]
fn estimands_say_what_can_be_known() {
    let range = RewardRange::new(-1.0, 3.0).unwrap();
    let linear = Estimand::of(true, RewardKind::Bounded, range);
    assert_eq!(linear, Estimand::of(false, RewardKind::Binary, range));
    assert_eq!(linear.name(), "mean reward");
    assert_eq!(linear.range(), Interval::between(-1.0, 3.0));
    let half = linear.interval_from_unit(Interval::between(0.25, 0.5));
    assert_eq!(half, Interval::between(0.0, 1.0));
    assert!((linear.difference_from_unit(0.5) - 2.0).abs() < f64::EPSILON);
    let curved = Estimand::of(false, RewardKind::Bounded, range);
    assert_eq!(curved, Estimand::MeanCurvedReward);
    assert_eq!(curved.name(), "mean of g(reward)");
    assert_eq!(curved.range(), Interval::between(0.0, 1.0));
}
