//! The integer arithmetic of the channel, compared with a simple 256-bit implementation.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::needless_range_loop,
    reason = "digits are taken apart, and written as on paper"
)]

use bandana_shared::alphabet::{Alphabet, Symbol};
use bandana_shared::channel::{Floor, KaryChannel};
use bandana_shared::curve::Level;
use bandana_shared::epsilon::Epsilon;

use crate::input::{byte, u64};

/// A number of 256 bits, in 32-bit digits from the lowest on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wide([u32; 8]);

impl Wide {
    fn of(number: u64) -> Self {
        Self([number as u32, (number >> 32) as u32, 0, 0, 0, 0, 0, 0])
    }

    fn plus(self, other: Self) -> Self {
        let mut carry = 0;
        let mut sum = [0; 8];
        for place in 0..8 {
            let digit = u64::from(self.0[place]) + u64::from(other.0[place]) + carry;
            sum[place] = digit as u32;
            carry = digit >> 32;
        }
        assert_eq!(carry, 0, "beyond 256 bits");
        Self(sum)
    }

    fn minus(self, other: Self) -> Self {
        let mut borrow = 0;
        let mut rest = [0; 8];
        for place in 0..8 {
            let digit = i64::from(self.0[place]) - i64::from(other.0[place]) - borrow;
            rest[place] = digit as u32;
            borrow = i64::from(digit < 0);
        }
        assert_eq!(borrow, 0, "below zero");
        Self(rest)
    }

    fn times(self, other: u64) -> Self {
        let [low, high] = [other & u64::from(u32::MAX), other >> 32].map(|digit| self.by(digit));
        low.plus(high.shifted(32))
    }

    /// The product with one digit.
    fn by(self, digit: u64) -> Self {
        let mut carry = 0;
        let mut product = [0; 8];
        for place in 0..8 {
            let part = u64::from(self.0[place]) * digit + carry;
            product[place] = part as u32;
            carry = part >> 32;
        }
        assert_eq!(carry, 0, "beyond 256 bits");
        Self(product)
    }

    fn shifted(self, bits: u32) -> Self {
        let digits = (bits / 32) as usize;
        let mut shifted = [0; 8];
        shifted[digits..].copy_from_slice(&self.0[..8 - digits]);
        assert!(self.0[8 - digits..].iter().all(|digit| *digit == 0), "beyond 256 bits");
        Self(shifted).by(1 << (bits % 32))
    }

    fn is_below(self, other: Self) -> bool {
        self.0.iter().rev().lt(other.0.iter().rev())
    }
}

/// Checks that thresholds and symbols are exact.
pub fn channel(mut data: &[u8]) {
    let kind = byte(&mut data);
    let (claimed, high, low) = (u64(&mut data), u64(&mut data), u64(&mut data));
    // From 2^-20 to 32, evenly on a logarithmic scale.
    let exponent = u64(&mut data) as f64 / u64::MAX as f64 * 25.0 - 20.0;
    let Ok(epsilon) = Epsilon::new(exponent.exp2().clamp(0.000_001, 32.0)) else { return };
    let symbols = u32::from(kind % 15) + 2;
    if kind & 1 == 0 {
        let floor = Floor::for_epsilon(epsilon);
        Floor::verify(floor.get(), epsilon).expect("our own floor keeps its promise");
        bit(floor, claimed, high, low);
        if let Ok(floor) = Floor::verify(claimed, epsilon) {
            assert!(floor.certified_epsilon() <= epsilon.get() * (1.0 + 1e-12));
            bit(floor, high, low, claimed);
        }
    } else if let Ok(alphabet) = Alphabet::new(symbols) {
        let channel = KaryChannel::for_epsilon(alphabet, epsilon);
        KaryChannel::verify(alphabet, channel.share(), epsilon).expect("our own share");
        symbol(channel, claimed, high, low);
        if let Ok(channel) = KaryChannel::verify(alphabet, claimed, epsilon) {
            symbol(channel, high, low, claimed);
        }
    }
}

/// `T = t0 2^64 + level (2^64 - 2 t0) 2^11`, and the bit is `u < T`.
fn bit(floor: Floor, level: u64, high: u64, low: u64) {
    let level = level % ((1 << 53) + 1);
    let Ok(unit) = Level::from_unit(level as f64 / (1_u64 << 53) as f64) else { return };
    assert_eq!(unit.get(), level);
    let whole = Wide::of(1).shifted(64);
    let t0 = Wide::of(floor.get());
    let width = whole.minus(t0).minus(t0);
    let exact = t0.shifted(64).plus(width.times(level).shifted(11));
    let threshold = floor.threshold(unit);
    let word = Wide::of(high).shifted(64).plus(Wide::of(low));
    assert_eq!(threshold.bit(high, low), word.is_below(exact), "{floor:?} {level} {high} {low}");
    let mut words = [high, low].into_iter();
    let drawn = threshold.draw(|| words.next().ok_or(()));
    assert_eq!(drawn, Ok(threshold.bit(high, low)));
    // The likelihood of a one is between t0 and 2^64 - t0.
    let highest = whole.minus(t0).shifted(64);
    assert!(!exact.is_below(t0.shifted(64)) && !highest.is_below(exact));
}

/// `u < (k-1) t` gives another symbol, with the number `u div t`.
fn symbol(channel: KaryChannel, truth: u64, word: u64, reward: u64) {
    let (alphabet, share) = (channel.alphabet(), channel.share());
    let truth = Symbol::new((truth % u64::from(alphabet.len())) as u8).expect("a symbol");
    let others = u64::from(alphabet.len()) - 1;
    let is_other = Wide::of(word).is_below(Wide::of(share).times(others));
    let expected = match u8::try_from(word / share) {
        Ok(number) if is_other => number + u8::from(number >= truth.get()),
        _ => truth.get(),
    };
    assert_eq!(channel.answer(truth, word).get(), expected, "{channel:?} {truth:?} {word}");
    // A reward is rounded to one of the two adjacent levels.
    let reward = reward % ((1 << 53) + 1);
    let Ok(unit) = Level::from_unit(reward as f64 / (1_u64 << 53) as f64) else { return };
    let steps = Wide::of(reward).times(others);
    let near = Wide::of(u64::from(channel.nearby_symbol(unit, word).get())).shifted(53);
    let step = Wide::of(1).shifted(53);
    assert!(near.is_below(steps.plus(step)) && steps.is_below(near.plus(step)));
}
