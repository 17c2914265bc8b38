//! The Gaussian mechanism.

use thiserror::Error;

use crate::accounting::concentrated::Rho;
use crate::accounting::loss::PrivacyLoss;
use crate::accounting::order::Order;
use crate::accounting::rounding::{div_up, mul_up};

/// Noise from N(0, σ²) on each coordinate of a value that one person changes
/// by at most its sensitivity Δ, in Euclidean distance.
///
/// ```
/// use bandana_shared::accounting::{gaussian::GaussianMechanism, renyi::Order};
/// let mechanism = GaussianMechanism::new(2.0, 4.0)?;
/// assert_eq!(mechanism.rho().get(), 0.125);
/// assert_eq!(mechanism.renyi(Order::new(8.0)?).get(), 1.0);
/// assert!(GaussianMechanism::new(1.0, 0.0).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Privacy
/// The bounds hold for exact real noise; a sampler of floating-point numbers doesn't draw such
/// noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GaussianMechanism {
    sensitivity: f64,
    deviation: f64,
}

impl GaussianMechanism {
    /// Noise of standard deviation `deviation` for a value of this
    /// `sensitivity`, both in the unit of the value.
    ///
    /// # Errors
    /// [`GaussianError::Sensitivity`] when it is negative or not finite,
    /// [`GaussianError::Deviation`] when it is not positive and finite.
    pub fn new(sensitivity: f64, deviation: f64) -> Result<Self, GaussianError> {
        if !(sensitivity >= 0.0 && sensitivity.is_finite()) {
            return Err(GaussianError::Sensitivity { sensitivity });
        }
        if !(deviation > 0.0 && deviation.is_finite()) {
            return Err(GaussianError::Deviation { deviation });
        }
        Ok(Self { sensitivity, deviation })
    }

    /// The zero-concentrated privacy, rounded up: ρ = Δ²/(2 σ²) (Bun and Steinke 2016, proposition
    /// 1.6). No smaller ρ holds.
    pub fn rho(self) -> Rho {
        Rho::half_square(div_up(self.sensitivity, self.deviation))
    }

    /// The Rényi divergence of one order, rounded up: α Δ²/(2 σ²) (Mironov, "Rényi differential
    /// privacy", 2017, proposition 7).
    pub fn renyi(self, order: Order) -> PrivacyLoss {
        PrivacyLoss::at_most(mul_up(order.get(), self.rho().get()))
    }
}

/// Invalid parameters of a Gaussian mechanism.
#[derive(Clone, Copy, Error, PartialEq)]
#[non_exhaustive]
pub enum GaussianError {
    /// A sensitivity out of range.
    #[error("sensitivity {sensitivity} is not a finite number of at least 0")]
    Sensitivity {
        /// The given sensitivity.
        sensitivity: f64,
    },
    /// A standard deviation out of range.
    #[error("standard deviation {deviation} is not a finite number above 0")]
    Deviation {
        /// The given standard deviation.
        deviation: f64,
    },
}

crate::debug_says!(GaussianError);
