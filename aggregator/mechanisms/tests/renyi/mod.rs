//! Rényi divergences of distributions over few outcomes.

/// The least ρ that these two distributions allow: the largest divergence over its order.
pub(crate) fn rho(p: &[f64], q: &[f64]) -> f64 {
    let orders = (-60..=60).map(|step| 1.0 + (f64::from(step) / 8.0).exp());
    let divergence = |order: f64| {
        let losses = p.iter().zip(q).map(|(p, q)| (order - 1.0) * (p / q).ln());
        let largest = losses.clone().fold(f64::NEG_INFINITY, f64::max);
        let terms = p.iter().zip(losses).map(|(p, loss)| p * (loss - largest).exp());
        (largest + terms.sum::<f64>().ln()) / (order - 1.0)
    };
    orders.map(|order| divergence(order) / order).fold(0.0, f64::max)
}
