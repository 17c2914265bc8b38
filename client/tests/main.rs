//! The client from outside: the device core, the handle of apps, and its documentation.

mod device;
mod documented;
mod embedding;
#[cfg(feature = "trusted")]
mod intended;
