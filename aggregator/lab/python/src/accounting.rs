//! Privacy accounting for Python: the functions of `bandana_shared::accounting` on plain numbers.
//!
//! Losses are in nats; each result is a bound, rounded up.

use bandana_shared::accounting::concentrated::Rho;
use bandana_shared::accounting::delta::Delta;
use bandana_shared::accounting::gaussian::GaussianMechanism;
use bandana_shared::accounting::guarantee::Guarantee;
use bandana_shared::accounting::heterogeneous as mixed;
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::accounting::optimal::OptimalComposition;
use bandana_shared::accounting::planner::Accountant;
use bandana_shared::accounting::shuffling::{Shuffling, largest_local_loss};
use bandana_shared::accounting::{advanced as advanced_composition, basic as basic_composition};
use bandana_shared::channel::Floor;
use bandana_shared::epsilon::Epsilon;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::failure::value_error;

fn loss(nats: f64) -> PyResult<PrivacyLoss> {
    PrivacyLoss::new(nats).map_err(value_error)
}

fn delta_of(probability: f64) -> PyResult<Delta> {
    Delta::new(probability).map_err(value_error)
}

fn epsilon_of(nats: f64) -> PyResult<Epsilon> {
    Epsilon::new(nats).map_err(value_error)
}

fn rho_of(rho: f64) -> PyResult<Rho> {
    Rho::new(rho).map_err(value_error)
}

fn accountant_of(name: &str) -> PyResult<Accountant> {
    match name {
        "basic" => Ok(Accountant::Basic),
        "advanced" => Ok(Accountant::Advanced),
        "optimal" => Ok(Accountant::Optimal),
        _ => Err(PyValueError::new_err(format!(
            "there is no accountant {name:?}: basic, advanced or optimal"
        ))),
    }
}

/// The loss of `rounds` mechanisms of loss `epsilon` each: their sum.
#[pyfunction]
pub(crate) fn basic(epsilon: f64, rounds: u64) -> PyResult<f64> {
    Ok(basic_composition::repeat(loss(epsilon)?, rounds).get())
}

/// The loss of `rounds` mechanisms of loss `epsilon` each, but for a probability `delta`, by the
/// advanced composition theorem (Kairouz, Oh and Viswanath 2015, theorem 3.4, third expression).
#[pyfunction]
pub(crate) fn advanced(epsilon: f64, rounds: u64, delta: f64) -> PyResult<f64> {
    Ok(advanced_composition::sharp(loss(epsilon)?, rounds, delta_of(delta)?).get())
}

/// The least loss of `rounds` mechanisms of loss `epsilon` each, but for a probability `delta`: exact
/// for randomized response (Kairouz, Oh and Viswanath 2015, theorem 3.3).
#[pyfunction]
pub(crate) fn optimal(epsilon: f64, rounds: u64, delta: f64) -> PyResult<f64> {
    let composed = OptimalComposition::new(epsilon_of(epsilon)?, rounds).map_err(value_error)?;
    Ok(composed.loss(delta_of(delta)?).get())
}

/// The least delta with which `rounds` mechanisms of loss `epsilon` each lose `total` together.
#[pyfunction]
pub(crate) fn optimal_delta(epsilon: f64, rounds: u64, total: f64) -> PyResult<f64> {
    let composed = OptimalComposition::new(epsilon_of(epsilon)?, rounds).map_err(value_error)?;
    Ok(composed.delta(loss(total)?).get())
}

/// The loss of mechanisms with these losses, fixed in advance, but for a probability `delta`: the
/// least of several valid bounds.
#[pyfunction]
pub(crate) fn heterogeneous(epsilons: Vec<f64>, delta: f64) -> PyResult<f64> {
    let losses: Vec<PrivacyLoss> = epsilons.into_iter().map(loss).collect::<PyResult<_>>()?;
    Ok(mixed::compose(&losses, delta_of(delta)?).get())
}

/// The least rho of zero-concentrated privacy (zCDP) that a mechanism of loss `epsilon` has.
#[pyfunction]
pub(crate) fn rho_of_pure(epsilon: f64) -> PyResult<f64> {
    Ok(Rho::of_pure(loss(epsilon)?).get())
}

/// The rho of Gaussian noise of this standard deviation on a number of this sensitivity.
#[pyfunction]
pub(crate) fn gaussian_rho(sensitivity: f64, deviation: f64) -> PyResult<f64> {
    Ok(GaussianMechanism::new(sensitivity, deviation).map_err(value_error)?.rho().get())
}

/// The loss of a mechanism with `rho`-zCDP, but for a probability `delta` (Canonne, Kamath and
/// Steinke 2020, corollary 13).
#[pyfunction]
pub(crate) fn zcdp(rho: f64, delta: f64) -> PyResult<f64> {
    Ok(rho_of(rho)?.loss(delta_of(delta)?).get())
}

/// The delta with which a mechanism with `rho`-zCDP loses `epsilon`.
#[pyfunction]
pub(crate) fn zcdp_delta(rho: f64, epsilon: f64) -> PyResult<f64> {
    Ok(rho_of(rho)?.delta(loss(epsilon)?).get())
}

/// The central loss of a private bit of local loss `epsilon` that is seen only shuffled among
/// `reports` honest ones, but for a probability `delta`.
#[pyfunction]
pub(crate) fn shuffled(epsilon: f64, reports: u32, delta: f64) -> PyResult<f64> {
    let floor = Floor::for_epsilon(epsilon_of(epsilon)?);
    Ok(Shuffling::new(floor, reports).map_err(value_error)?.loss(delta_of(delta)?).get())
}

/// The largest local loss of a bit with which it has, shuffled among `reports` honest ones, the
/// central loss `epsilon` with `delta`; `None` if there is none.
#[pyfunction]
pub(crate) fn largest_local_epsilon(
    epsilon: f64,
    reports: u32,
    delta: f64,
) -> PyResult<Option<f64>> {
    let central = Guarantee::new(loss(epsilon)?, delta_of(delta)?);
    let local = largest_local_loss(reports, central).map_err(value_error)?;
    Ok(local.map(Epsilon::get))
}

/// The largest number of reports of loss `epsilon` that fit into a loss of `budget` with `delta`, by
/// the `"basic"`, `"advanced"` or `"optimal"` accountant.
#[pyfunction]
#[pyo3(signature = (epsilon, budget, delta=0.0, accountant="optimal"))]
pub(crate) fn report_number(
    epsilon: f64,
    budget: f64,
    delta: f64,
    accountant: &str,
) -> PyResult<u64> {
    let budget = Guarantee::new(loss(budget)?, delta_of(delta)?);
    Ok(accountant_of(accountant)?.reports(epsilon_of(epsilon)?, budget))
}

/// The largest loss of a report with which `reports` of them fit into a loss of `budget` with
/// `delta`; `None` if the least one does not.
#[pyfunction]
#[pyo3(signature = (reports, budget, delta=0.0, accountant="optimal"))]
pub(crate) fn report_epsilon(
    reports: u64,
    budget: f64,
    delta: f64,
    accountant: &str,
) -> PyResult<Option<f64>> {
    let budget = Guarantee::new(loss(budget)?, delta_of(delta)?);
    Ok(accountant_of(accountant)?.largest_loss(reports, budget).map(Epsilon::get))
}
