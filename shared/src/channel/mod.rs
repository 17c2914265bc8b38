//! The channels of reports, in integers.
//!
//! - [`Floor`]: one bit, by a curve and then randomized response.
//! - [`KaryChannel`]: one of up to 16 symbols, by k-ary randomized response.
//! - [`Channel`]: either of them, for estimates and learners.

mod bit;
mod growth;
mod kary;
mod share;

pub use bit::{Floor, Threshold};
pub use growth::Growth;
pub use kary::KaryChannel;
pub use share::FloorError;

use crate::alphabet::Alphabet;

/// `2^64` as a floating-point number.
pub(crate) const TWO_POW_64: f64 = (1_u128 << 64) as f64;

/// The channel of an experiment.
///
/// Symbols are scaled to 0..=1, the first one to 0 and the last one to 1. The private mean is the
/// mean of the scaled symbols that are sent. It is `lowest + contrast m` for rewards with mean m
/// after the curve: one increasing function for all arms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// One bit.
    Bit(Floor),
    /// One of k symbols.
    Kary(KaryChannel),
}

impl Channel {
    /// The alphabet of the sent symbols.
    pub fn alphabet(self) -> Alphabet {
        match self {
            Self::Bit(_) => Alphabet::BITS,
            Self::Kary(channel) => channel.alphabet(),
        }
    }

    /// The integer that the privacy rests on: the least number of the `2^64` words that lead to any
    /// one symbol, whatever the reward.
    pub fn floor(self) -> u64 {
        match self {
            Self::Bit(floor) => floor.get(),
            Self::Kary(channel) => channel.share(),
        }
    }

    /// `2^64 - k t`, k the number of symbols and t [`Self::floor`].
    pub fn width(self) -> u64 {
        match self {
            Self::Bit(floor) => floor.width(),
            Self::Kary(channel) => channel.width(),
        }
    }

    /// The smallest ε that the floor certifies, in nats, rounded up.
    pub fn certified_epsilon(self) -> f64 {
        match self {
            Self::Bit(floor) => floor.certified_epsilon(),
            Self::Kary(channel) => channel.certified_epsilon(),
        }
    }

    /// The factor by which the channel scales a difference between two mean rewards, in (0, 1).
    pub fn contrast(self) -> f64 {
        self.width() as f64 / TWO_POW_64
    }

    /// The private mean of the lowest reward, `(1 - contrast)/2`, in (0, 1/2). That of the highest
    /// reward is 1 minus this.
    pub fn lowest_private_mean(self) -> f64 {
        match self {
            Self::Bit(floor) => floor.lowest_private_mean(),
            Self::Kary(channel) => {
                // k t/2, and k t is below 2^64.
                let words = u64::from(channel.alphabet().len()) * channel.share();
                words as f64 / (2.0 * TWO_POW_64)
            }
        }
    }

    /// The log-odds of the private mean of the highest reward; those of the lowest reward are the
    /// negative.
    pub fn highest_log_odds(self) -> f64 {
        match self {
            Self::Bit(floor) => floor.certified_epsilon(),
            // ln((1 - q)/q), with 1 - 2q the contrast.
            Self::Kary(_) => libm::log1p(self.contrast() / self.lowest_private_mean()),
        }
    }
}

impl From<Floor> for Channel {
    fn from(floor: Floor) -> Self {
        Self::Bit(floor)
    }
}

impl From<KaryChannel> for Channel {
    fn from(channel: KaryChannel) -> Self {
        Self::Kary(channel)
    }
}
