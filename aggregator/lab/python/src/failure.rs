//! Errors on their way back to Python, and the flag that ends a study for one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use pyo3::PyErr;
use pyo3::exceptions::{PyOSError, PyValueError};

/// An error of the laboratory as a `ValueError` with its message.
pub(crate) fn value_error(error: impl Into<anyhow::Error>) -> PyErr {
    PyValueError::new_err(format!("{:#}", error.into()))
}

/// An error about a file as an `OSError` with its message, if the file can't be read or written; any
/// other as a `ValueError`.
pub(crate) fn file_error(error: anyhow::Error) -> PyErr {
    if error.is::<std::io::Error>() {
        return PyOSError::new_err(format!("{error:#}"));
    }
    value_error(error)
}

/// The first exception that Python code raised during a study.
///
/// A learner's choice and a bandit's reward have no place for an error. They note it here, which
/// ends the study, and the study raises it with its traceback.
#[derive(Debug, Default)]
pub(crate) struct Failure {
    stop: AtomicBool,
    exception: Mutex<Option<PyErr>>,
}

impl Failure {
    /// The flag that ends the study.
    pub(crate) fn stop(&self) -> &AtomicBool {
        &self.stop
    }

    /// Whether the study is to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Notes an exception, unless there is one, and ends the study.
    pub(crate) fn note(&self, exception: PyErr) {
        self.exception.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(exception);
        self.stop.store(true, Ordering::Relaxed);
    }

    /// The exception, if one was noted.
    pub(crate) fn take(&self) -> Option<PyErr> {
        self.exception.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
