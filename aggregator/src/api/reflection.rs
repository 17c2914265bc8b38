//! gRPC reflection, which describes the services to tools.

use tonic::service::Routes;
use tonic_reflection::server::{Builder, Error};

use bandana_edge::admission::OPERATOR_REQUEST_BYTES_MAX;
use bandana_edge::auth::{Authorization, OperatorGate};

/// Adds the reflection service, for callers with a token.
///
/// # Errors
/// An error when the descriptors in this program are damaged.
pub fn with_reflection(routes: Routes, authorization: &Authorization) -> Result<Routes, Error> {
    let builder = || {
        Builder::configure()
            .register_encoded_file_descriptor_set(bandana_shared::wire::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    // Tools older than 2024 know `v1alpha` only.
    let (current, older) = (builder().build_v1()?, builder().build_v1alpha()?);
    let current = current.max_decoding_message_size(OPERATOR_REQUEST_BYTES_MAX);
    let older = older.max_decoding_message_size(OPERATOR_REQUEST_BYTES_MAX);
    Ok(routes
        .add_service(OperatorGate::new(authorization, current))
        .add_service(OperatorGate::new(authorization, older)))
}
