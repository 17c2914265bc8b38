//! The random numbers of a trial, lent to Python code for one call.

use std::sync::{Mutex, PoisonError};

use bandana_lab::Random as Generator;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use rand::RngExt as _;
use rand_distr::{Beta, StandardNormal};

/// The random numbers of a trial, lent for one call: a study's seed fixes them.
///
/// A generator of numpy gets its seed by `numpy.random.default_rng(rng.integers(2**63))`.
#[pyclass(frozen, module = "bandana_lab")]
#[derive(Debug)]
pub(crate) struct Random(Mutex<Option<Generator>>);

impl Random {
    /// Calls Python code with these random numbers, which go on where it left them.
    pub(crate) fn lend<'py, R>(
        py: Python<'py>,
        rng: &mut Generator,
        call: impl FnOnce(&Bound<'py, Self>) -> PyResult<R>,
    ) -> PyResult<R> {
        let lent = Bound::new(py, Self(Mutex::new(Some(rng.clone()))))?;
        let result = call(&lent);
        let returned = lent.get().0.lock().unwrap_or_else(PoisonError::into_inner).take();
        *rng = returned.unwrap_or_else(|| rng.clone());
        result
    }

    /// Draws, unless the call is over.
    pub(crate) fn draw<T>(&self, draw: impl FnOnce(&mut Generator) -> T) -> PyResult<T> {
        let mut lent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lent.as_mut().map(draw).ok_or_else(|| {
            PyRuntimeError::new_err(
                "these random numbers were lent for a call that is over; use those of this call",
            )
        })
    }
}

#[pymethods]
impl Random {
    /// A number from 0 to 1, without 1.
    fn random(&self) -> PyResult<f64> {
        self.draw(Generator::random)
    }

    /// A whole number from 0 to `high`, without `high`.
    fn integers(&self, high: u64) -> PyResult<u64> {
        if high == 0 {
            return Err(PyValueError::new_err(
                "there is no whole number below 0; give a larger one",
            ));
        }
        self.draw(|rng| rng.random_range(0..high))
    }

    /// A number of the normal distribution with this mean and standard deviation.
    #[pyo3(signature = (mean=0.0, deviation=1.0))]
    fn normal(&self, mean: f64, deviation: f64) -> PyResult<f64> {
        self.draw(|rng| mean + deviation * rng.sample::<f64, _>(StandardNormal))
    }

    /// A number of the beta distribution, both parameters positive.
    fn beta(&self, a: f64, b: f64) -> PyResult<f64> {
        let beta = Beta::new(a, b).map_err(|_| {
            PyValueError::new_err(format!("there is no beta({a}, {b}); both must be positive"))
        })?;
        self.draw(|rng| rng.sample(beta))
    }
}
