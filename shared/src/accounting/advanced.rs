//! Advanced composition: the total loss grows like a random walk.
//!
//! Over k rounds the privacy loss is a sum of k terms, each at most ε in magnitude and each with a
//! mean of at most μ whatever came before. By the Azuma-Hoeffding inequality it exceeds k μ + ε
//! sqrt(2 k ln(1/δ)) with probability at most δ. So k rounds are (k μ + ε sqrt(2 k ln(1/δ)), δ)-
//! differentially private (Dwork, Rothblum and Vadhan, "Boosting and differential privacy", 2010,
//! theorem III.3). The forms here differ in μ.
//!
//! The mechanisms may be chosen adaptively; their losses and number may not. A slack of 0 gives no
//! bound: use [`crate::accounting::basic`].

use thiserror::Error;

use crate::accounting::delta::Delta;
use crate::accounting::loss::PrivacyLoss;
use crate::accounting::rounding::{add_up, count_up, mul_up, sqrt_up};
use crate::epsilon::Epsilon;

/// The largest ε up to which the lecture's lemma proves [`lecture`]: the positive
/// root of e^x = 1 + 2x, 1.2564312..., rounded down.
pub const LECTURE_LOSS_MAX: f64 = 1.256_431_208_626_169_5;

/// The total loss of `rounds` rounds of loss ε in textbook form: sqrt(2 k ln(1/δ)) ε + 2 k ε²,
/// rounded up.
///
/// It takes μ = 2ε². Dwork, Rothblum and Vadhan show a mean loss of at most ε (e^ε - 1) (lemma
/// III.2), and the step from there to 2ε² needs e^ε <= 1 + 2ε, which fails above
/// [`LECTURE_LOSS_MAX`]. The value is still a bound there, since [`sharp`] is smaller and always
/// holds; use [`sharp`].
///
/// # Errors
/// [`LectureError`] when `loss` is above [`LECTURE_LOSS_MAX`].
///
/// ```
/// use bandana_shared::accounting::{advanced, delta::Delta};
/// use bandana_shared::epsilon::Epsilon;
/// let slack = Delta::new((-8.0_f64).exp())?;
/// let total = advanced::lecture(Epsilon::new(0.1)?, 100, slack)?;
/// assert!((total.get() - 6.0).abs() < 1e-12); // sqrt(1600) 0.1 + 200 0.01
/// assert!(advanced::lecture(Epsilon::new(1.3)?, 100, slack).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn lecture(loss: Epsilon, rounds: u64, slack: Delta) -> Result<PrivacyLoss, LectureError> {
    if loss.get() > LECTURE_LOSS_MAX {
        return Err(LectureError(loss.get()));
    }
    let nats = loss.get();
    let drift = mul_up(mul_up(2.0, count_up(rounds)), mul_up(nats, nats));
    let spread = deviation(mul_up(count_up(rounds), mul_up(nats, nats)), slack);
    Ok(PrivacyLoss::at_most(add_up(spread, drift)))
}

/// The total loss of `rounds` rounds of any loss ε: sqrt(2 k ln(1/δ)) ε + k ε tanh(ε/2), rounded
/// up.
///
/// The mean loss is at its largest for randomized response, see
/// [`PrivacyLoss::largest_mean`]. This is the third expression of Kairouz, Oh
/// and Viswanath, "The composition theorem for differential privacy", 2015,
/// theorem 3.4.
///
/// ```
/// use bandana_shared::accounting::{advanced, delta::Delta, loss::PrivacyLoss};
/// let slack = Delta::new((-8.0_f64).exp())?;
/// let total = advanced::sharp(PrivacyLoss::new(0.1)?, 100, slack);
/// assert!((total.get() - 4.499_584).abs() < 1e-6); // sqrt(1600) 0.1 + 10 tanh(0.05)
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn sharp(loss: PrivacyLoss, rounds: u64, slack: Delta) -> PrivacyLoss {
    let drift = mul_up(count_up(rounds), loss.largest_mean());
    let spread = deviation(mul_up(count_up(rounds), mul_up(loss.get(), loss.get())), slack);
    PrivacyLoss::at_most(add_up(spread, drift))
}

/// The total loss of rounds with different losses, fixed in advance: sqrt(2 ln(1/δ) Σ ε²) + Σ ε
/// tanh(ε/2), rounded up (Kairouz, Oh and Viswanath 2015, theorem 3.5, third expression).
///
/// For equal losses it equals [`sharp`].
pub fn heterogeneous(losses: &[PrivacyLoss], slack: Delta) -> PrivacyLoss {
    let sum = |of: fn(PrivacyLoss) -> f64| losses.iter().copied().map(of).fold(0.0, add_up);
    let drift = sum(PrivacyLoss::largest_mean);
    let squares = sum(|loss| mul_up(loss.get(), loss.get()));
    PrivacyLoss::at_most(add_up(deviation(squares, slack), drift))
}

/// sqrt(2 ln(1/δ) Σ ε²), rounded up.
fn deviation(sum_of_squares: f64, slack: Delta) -> f64 {
    sqrt_up(mul_up(mul_up(2.0, slack.log_reciprocal()), sum_of_squares))
}

/// A loss for which the proof of [`lecture`] does not hold.
#[derive(Clone, Copy, Error, PartialEq)]
#[error(
    "the lecture's lemma proves the form with 2 k epsilon^2 up to an epsilon of 1.2564 (where e^x \
     = 1 + 2x), not for {0}; use the sharp form"
)]
pub struct LectureError(f64);

crate::debug_says!(LectureError);
