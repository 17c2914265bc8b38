//! The client from outside: the device core, the handle of apps, and its documentation.

// The compiler names what else has a trait of the same name, gRPC crates among it; and some of the
// programs disclose rewards.
#[cfg(feature = "trusted")]
mod device;
mod documented;
mod embedding;
#[cfg(feature = "trusted")]
mod intended;
