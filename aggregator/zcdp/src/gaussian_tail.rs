//! The tail of Gaussian vectors.

/// `f(d, x) = d + 2 sqrt(d ln(2/x)) + 2 ln(2/x)`: the square of the norm of a standard Gaussian
/// vector in d dimensions exceeds it with a probability below x (Laurent and Massart, "Adaptive
/// estimation of a quadratic functional by model selection", 2000, lemma 1).
pub(super) fn square_norm(dimension: usize, probability: f64) -> f64 {
    let (d, log) = (dimension as f64, libm::log(2.0 / probability));
    d + 2.0 * libm::sqrt(d * log) + 2.0 * log
}
