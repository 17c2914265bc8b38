//! k-ary randomized response, in integers, and the k-level channel on top of it.
//!
//! A device has a true symbol, one of k. It draws one uniform 64-bit integer `u`. If `u < (k-1) t`
//! it sends the other symbol with the number `u div t` among the k - 1 others, otherwise the true
//! one. So every other symbol has the probability `t/2^64` exactly. The likelihood ratio of any
//! symbol between any two true ones is at most `(2^64 - (k-1) t)/t` (Kairouz, Bonawitz and Ramage,
//! "Discrete Distribution Estimation under Local Privacy", 2016, section 4.1, with rounding to the
//! private side).
//!
//! For rewards in a range the true symbol is one of k evenly spaced levels, drawn so that its
//! expectation is the reward: [`KaryChannel::nearby_symbol`]. Drawing the level before randomized
//! response costs no privacy, and keeps the order of mean rewards.

use std::hint::select_unpredictable;

use super::TWO_POW_64;
use super::share::{FloorError, Share};
use crate::alphabet::{Alphabet, Symbol};
use crate::curve::Level;
use crate::epsilon::Epsilon;

/// k-ary randomized response in which every wrong symbol has the share `t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KaryChannel {
    alphabet: Alphabet,
    share: u64,
}

impl KaryChannel {
    /// The channel with the smallest share for `epsilon`, rounded to the private side:
    /// `ceil(2^64 / (e^ε + k - 1))`. [`Self::verify`] accepts it.
    ///
    /// ```
    /// use bandana_shared::{alphabet::Alphabet, channel::KaryChannel, epsilon::Epsilon};
    /// let channel = KaryChannel::for_epsilon(Alphabet::new(6)?, Epsilon::new(5.0)?);
    /// assert!(channel.certified_epsilon() <= 5.0);
    /// // The true symbol is sent in e^5/(e^5 + 5) = 97 of 100 cases.
    /// assert!((channel.truth() as f64 / 2_f64.powi(64) - 0.967).abs() < 0.001);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn for_epsilon(alphabet: Alphabet, epsilon: Epsilon) -> Self {
        Self { alphabet, share: Share::for_epsilon(alphabet.len(), epsilon).get() }
    }

    /// Accepts a share from another party, if its loss is at most ε: `(2^64 - (k-1) t)/t <= e^ε`,
    /// checked in integers as [`Floor::verify`](super::Floor::verify) does.
    ///
    /// # Errors
    /// [`FloorError`].
    ///
    /// # Privacy
    /// The guarantee of every report follows from this check alone.
    pub fn verify(alphabet: Alphabet, share: u64, epsilon: Epsilon) -> Result<Self, FloorError> {
        let share = Share::verify(share, alphabet.len(), epsilon)?.get();
        Ok(Self { alphabet, share })
    }

    /// The symbols.
    pub fn alphabet(self) -> Alphabet {
        self.alphabet
    }

    /// `t`: the number of the `2^64` words that lead to any one wrong symbol.
    pub fn share(self) -> u64 {
        self.share
    }

    /// `2^64 - (k-1) t`: the number of words that lead to the true symbol.
    pub fn truth(self) -> u64 {
        self.width() + self.share
    }

    /// `2^64 - k t`: the number of words for the true symbol beyond those for any other symbol.
    pub fn width(self) -> u64 {
        Share::width(self.share, self.alphabet.len())
    }

    /// The smallest ε that the share certifies, `ln((2^64 - (k-1) t)/t)` in nats, rounded
    /// up.
    pub fn certified_epsilon(self) -> f64 {
        Share::loss(self.width(), self.share)
    }

    /// `1 - k t/2^64`, in (0, 1): the factor by which the channel scales the difference between two
    /// symbols' shares, or between two mean rewards.
    pub fn contrast(self) -> f64 {
        self.width() as f64 / TWO_POW_64
    }

    /// One of the two levels that `reward` lies between, drawn with a uniformly random
    /// `word` so that its expectation is the reward, exactly.
    ///
    /// # Privacy
    /// The level is as secret as the reward. No branch depends on it.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the quotient is below 16")]
    pub fn nearby_symbol(self, reward: Level, word: u64) -> Symbol {
        // reward <= 2^53 in units of 2^-53, so its product with k - 1 is below 2^57. The
        // probability that the upper 53 bits of the word are below the fraction is the fraction.
        let steps = reward.get() * u64::from(self.alphabet.len() - 1);
        let fraction = steps & ((1 << 53) - 1);
        let above = u64::from((word >> 11) < fraction);
        Symbol::of_checked(((steps >> 53) + above) as u8)
    }

    /// The symbol of a category, given by its number. For any other reward it is an arbitrary
    /// symbol.
    ///
    /// # Privacy
    /// The symbol is as secret as the reward. No branch depends on it.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "what no u8 is becomes the nearest"
    )]
    pub fn category(self, reward: f64) -> Symbol {
        Symbol::of_checked((reward as u8).min(self.alphabet.len() - 1))
    }

    /// The symbol to be sent for a true symbol, drawn with a uniformly random `word`.
    ///
    /// # Privacy
    /// No branch depends on the true symbol, nor on whether it is sent. The number of the other
    /// symbol is found by counting, since the time of a division would depend on it.
    #[inline]
    pub fn answer(self, truth: Symbol, word: u64) -> Symbol {
        let others = self.alphabet.len() - 1;
        // The number of multiples of t up to (k-1) t that the word reaches: `word div t`,
        // and k - 1 for the true symbol. (k-1) t is below 2^64.
        let reaches = |multiple: u8| u8::from(word >= u64::from(multiple) * self.share);
        let number = (1..=others).map(reaches).sum::<u8>();
        let other = number + u8::from(number >= truth.get());
        Symbol::of_checked(select_unpredictable(number == others, truth.get(), other))
    }

    /// The answer of [`Self::answer`] to a level drawn by [`Self::nearby_symbol`], from two
    /// uniformly random words.
    ///
    /// # Errors
    /// Returns the error of `word`; there is no symbol then.
    #[inline]
    pub fn draw<E>(
        self,
        reward: Level,
        mut word: impl FnMut() -> Result<u64, E>,
    ) -> Result<Symbol, E> {
        let truth = self.nearby_symbol(reward, word()?);
        Ok(self.answer(truth, word()?))
    }
}
