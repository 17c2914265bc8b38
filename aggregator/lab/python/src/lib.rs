//! The native module of the Python package `bandana-lab`: the laboratory's types and its runner.
//!
//! Python's half, beside it in `python/bandana_lab`, has what needs no Rust: a study's settings, its
//! result and the picture. The stub `_native.pyi` repeats every signature here, and a test compares.

use pyo3::prelude::*;

mod accounting;
mod bandit;
mod channel;
mod failure;
mod instance;
mod learner;
mod random;
mod result;
mod standard;
mod study;

/// The native half of the package `bandana_lab`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::accounting::{
        advanced, basic, gaussian_rho, heterogeneous, largest_local_epsilon, optimal,
        optimal_delta, report_epsilon, report_number, rho_of_pure, shuffled, zcdp, zcdp_delta,
    };
    #[pymodule_export]
    use super::channel::Channel;
    #[pymodule_export]
    use super::instance::Instance;
    #[pymodule_export]
    use super::learner::Setting;
    #[pymodule_export]
    use super::random::Random;
    #[pymodule_export]
    use super::result::LearnerResult;
    #[pymodule_export]
    use super::standard::{StandardLearner, learners};
    #[pymodule_export]
    use super::study::run_study;
}
