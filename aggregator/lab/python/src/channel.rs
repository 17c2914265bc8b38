//! Channels for Python: from rewards to signals, and from their means back.

use bandana_lab::{Channel as _, Privacy, StandardChannel, generator, reports};
use bandana_shared::alphabet::Alphabet;
use bandana_shared::channel;
use bandana_shared::curve::{Curvature, Curve, Level, Mechanism};
use bandana_shared::epsilon::Epsilon;
use numpy::ndarray::{Array, ArrayD};
use numpy::{AllowTypeChange, PyArrayDyn, PyArrayLikeDyn, ToPyArray as _};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::failure::value_error;

/// The names of mechanisms, those of devices first.
const NAMES: &str = "linear, quadratic, exponential, rr, k-level, laplace or none";

/// Purpose of a generator of noise: arms, whose rewards have the generators before, are fewer.
const NOISE: u64 = 1 << 32;

/// Numbers of any shape, or what numpy makes an array of.
type Numbers<'py> = PyArrayLikeDyn<'py, f64, AllowTypeChange>;

/// The kind of a channel.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// That of devices.
    Reports(Privacy),
    /// Laplace noise for this ε.
    Laplace(Epsilon),
    /// The rewards themselves.
    Open,
}

/// The map from a reward in 0..1 to the signal that a learner receives.
///
/// `mechanism` is `"linear"`, `"quadratic"` (with its `curvature`, -1 to 1), `"exponential"`, `"rr"`
/// (randomized response, for rewards of 0 or 1) or `"k-level"` (with its number of `levels`, 2 to 16),
/// computed as a device computes them, in the same integers; or for comparison `"laplace"`, and `"none"`
/// for the rewards themselves. `epsilon` is the privacy loss bound of one report in nats.
#[pyclass(frozen, module = "bandana_lab")]
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

impl Channel {
    pub(crate) fn of(privacy: Privacy) -> Self {
        let name = match privacy.mechanism {
            Mechanism::Kary(_) => "k-level",
            other => other.name(),
        };
        Self { name: name.to_owned(), kind: Kind::Reports(privacy) }
    }

    /// The channel of the laboratory.
    fn standard(&self) -> StandardChannel {
        match self.kind {
            Kind::Reports(Privacy { mechanism, epsilon }) => {
                StandardChannel::of(mechanism, epsilon)
            }
            Kind::Laplace(epsilon) => StandardChannel::Laplace(1.0 / epsilon.get()),
            Kind::Open => StandardChannel::Reward,
        }
    }

    /// The channel of devices.
    fn reports(&self) -> Option<channel::Channel> {
        match self.kind {
            Kind::Reports(Privacy { mechanism, epsilon }) => Some(reports(mechanism, epsilon)),
            Kind::Laplace(_) | Kind::Open => None,
        }
    }
}

/// What a channel is made of again: mechanism, ε, curvature and levels.
type Kept = (String, Option<f64>, Option<f64>, Option<u32>);

/// Applies a function to each number, in the order of the indices.
fn map(numbers: &Numbers<'_>, of: impl FnMut(f64) -> PyResult<f64>) -> PyResult<ArrayD<f64>> {
    let view = numbers.as_array();
    let mapped: Vec<f64> = view.iter().copied().map(of).collect::<PyResult<_>>()?;
    Array::from_shape_vec(view.raw_dim(), mapped).map_err(value_error)
}

/// A reward, if it is one.
fn checked(reward: f64) -> PyResult<f64> {
    if (0.0..=1.0).contains(&reward) {
        Ok(reward)
    } else {
        Err(PyValueError::new_err("a reward that is not a number from 0 to 1; scale the rewards"))
    }
}

#[pymethods]
impl Channel {
    #[new]
    #[pyo3(signature = (mechanism="linear", epsilon=None, *, curvature=None, levels=None))]
    fn new(
        mechanism: &str,
        epsilon: Option<f64>,
        curvature: Option<f64>,
        levels: Option<u32>,
    ) -> PyResult<Self> {
        let wrong = |what: String| Err(PyValueError::new_err(what));
        if curvature.is_some() != (mechanism == "quadratic") {
            return wrong("a curvature is for the quadratic mechanism, which needs one".to_owned());
        }
        if levels.is_some() != (mechanism == "k-level") {
            return wrong("levels are for the k-level mechanism, which needs them".to_owned());
        }
        if epsilon.is_some() == (mechanism == "none") {
            return wrong("every mechanism but none needs an epsilon".to_owned());
        }
        let epsilon = || Epsilon::new(epsilon.unwrap_or(f64::NAN)).map_err(value_error);
        let curve = match mechanism {
            "linear" => Mechanism::Linear,
            "quadratic" => Mechanism::Quadratic(
                Curvature::new(curvature.unwrap_or(f64::NAN)).map_err(value_error)?,
            ),
            "exponential" => Mechanism::Exponential,
            "rr" => Mechanism::RandomizedResponse,
            "k-level" => Mechanism::Kary(Alphabet::new(levels.unwrap_or(0)).map_err(value_error)?),
            "laplace" => {
                let kind = Kind::Laplace(epsilon()?);
                return Ok(Self { name: mechanism.to_owned(), kind });
            }
            "none" => return Ok(Self { name: mechanism.to_owned(), kind: Kind::Open }),
            _ => return wrong(format!("there is no mechanism {mechanism:?}: {NAMES}")),
        };
        Ok(Self::of(Privacy { mechanism: curve, epsilon: epsilon()? }))
    }

    /// What pickle writes: how to make the same channel elsewhere.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Kept)> {
        let (epsilon, curvature, levels) = match slf.get().kind {
            Kind::Reports(Privacy { mechanism, epsilon }) => (
                Some(epsilon.get()),
                match mechanism {
                    Mechanism::Quadratic(curvature) => Some(curvature.get()),
                    _ => None,
                },
                match mechanism {
                    Mechanism::Kary(alphabet) => Some(alphabet.len().into()),
                    _ => None,
                },
            ),
            Kind::Laplace(epsilon) => (Some(epsilon.get()), None, None),
            Kind::Open => (None, None, None),
        };
        let kept = (slf.get().name.clone(), epsilon, curvature, levels);
        Ok((slf.get_type().getattr("_of")?, kept))
    }

    #[staticmethod]
    #[pyo3(name = "_of")]
    fn of_kept(
        mechanism: &str,
        epsilon: Option<f64>,
        curvature: Option<f64>,
        levels: Option<u32>,
    ) -> PyResult<Self> {
        Self::new(mechanism, epsilon, curvature, levels)
    }

    /// The name of the mechanism.
    #[getter]
    fn mechanism(&self) -> &str {
        &self.name
    }

    /// The privacy loss bound of one report in nats; `None` without privacy.
    #[getter]
    fn epsilon(&self) -> Option<f64> {
        match self.kind {
            Kind::Reports(Privacy { epsilon, .. }) | Kind::Laplace(epsilon) => Some(epsilon.get()),
            Kind::Open => None,
        }
    }

    /// The integer that privacy rests on: of the 2**64 words at least so many lead to each symbol,
    /// whatever the reward. `None` for `"laplace"` and `"none"`.
    #[getter]
    fn floor(&self) -> Option<u64> {
        self.reports().map(channel::Channel::floor)
    }

    /// The smallest epsilon that the floor certifies, in nats, rounded up.
    #[getter]
    fn certified_epsilon(&self) -> Option<f64> {
        self.reports().map(channel::Channel::certified_epsilon)
    }

    /// The factor by which the channel scales a difference between two mean rewards.
    #[getter]
    fn contrast(&self) -> f64 {
        self.reports().map_or(1.0, channel::Channel::contrast)
    }

    /// The signals for rewards: 0 or 1 for bits, between them for levels. The same seed has the
    /// same noise.
    #[pyo3(signature = (rewards, seed=1))]
    #[expect(clippy::needless_pass_by_value, reason = "as PyO3 hands it over")]
    fn send<'py>(
        &self,
        py: Python<'py>,
        rewards: Numbers<'py>,
        seed: u64,
    ) -> PyResult<Bound<'py, PyArrayDyn<f64>>> {
        let (channel, mut rng) = (self.standard(), generator(seed, NOISE));
        let signals = map(&rewards, |reward| Ok(channel.send(checked(reward)?, &mut rng)))?;
        Ok(signals.to_pyarray(py))
    }

    /// The mean of the signals for each reward: of bits, the probability of a 1.
    #[expect(clippy::needless_pass_by_value, reason = "as PyO3 hands it over")]
    fn mean_signal<'py>(
        &self,
        py: Python<'py>,
        rewards: Numbers<'py>,
    ) -> PyResult<Bound<'py, PyArrayDyn<f64>>> {
        let means = map(&rewards, |reward| {
            let reward = checked(reward)?;
            let Kind::Reports(Privacy { mechanism, epsilon }) = self.kind else {
                return Ok(reward);
            };
            let channel = reports(mechanism, epsilon);
            let level = Level::from_unit(reward).map_err(value_error)?;
            let curved = Curve::new(mechanism, epsilon).apply(level).to_unit();
            Ok(channel.lowest_private_mean() + channel.contrast() * curved)
        })?;
        Ok(means.to_pyarray(py))
    }

    /// The mean rewards, after the mechanism's curve, that these means of signals are expected for: an
    /// unbiased estimate, which may lie outside 0..1.
    #[expect(clippy::needless_pass_by_value, reason = "as PyO3 hands it over")]
    fn debias<'py>(
        &self,
        py: Python<'py>,
        mean_signals: Numbers<'py>,
    ) -> PyResult<Bound<'py, PyArrayDyn<f64>>> {
        let channel = self.reports();
        let means = map(&mean_signals, |mean| {
            Ok(channel.map_or(mean, |channel| {
                (mean - channel.lowest_private_mean()) / channel.contrast()
            }))
        })?;
        Ok(means.to_pyarray(py))
    }

    fn __repr__(&self) -> String {
        let epsilon =
            self.epsilon().map_or(String::new(), |epsilon| format!(", epsilon={epsilon}"));
        let more = match self.kind {
            Kind::Reports(Privacy { mechanism: Mechanism::Quadratic(k), .. }) => {
                format!(", curvature={}", k.get())
            }
            Kind::Reports(Privacy { mechanism: Mechanism::Kary(alphabet), .. }) => {
                format!(", levels={}", alphabet.len())
            }
            _ => String::new(),
        };
        format!("Channel({:?}{epsilon}{more})", self.name)
    }
}
