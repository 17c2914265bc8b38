//! The gRPC methods that may be called.

use std::collections::HashMap;
use std::sync::LazyLock;

use prost::Message as _;
use prost_types::FileDescriptorSet;

/// The methods of every service on any port, from the descriptors: none is omitted, and callers
/// can't add any.
pub static METHODS: LazyLock<Methods> = LazyLock::new(Methods::described);

/// The descriptors of the services.
const DESCRIPTORS: [&[u8]; 4] = [
    bandana_shared::wire::FILE_DESCRIPTOR_SET,
    tonic_health::pb::FILE_DESCRIPTOR_SET,
    tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
    tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
];

/// The name of a method.
#[derive(Debug)]
pub(crate) struct MethodName {
    /// The service, with its package.
    pub(crate) service: String,
    /// The method's name in the service.
    pub(crate) method: String,
    /// Service and method, as the log shows them.
    pub(crate) path: String,
    /// Whether the method streams its answers.
    pub(crate) is_streamed: bool,
}

/// The index of a method in [`METHODS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MethodIndex(usize);

impl MethodIndex {
    pub(crate) fn get(self) -> usize {
        self.0
    }
}

/// The methods, by index and by path.
#[derive(Debug)]
pub struct Methods {
    names: Vec<MethodName>,
    places: HashMap<String, MethodIndex, foldhash::fast::RandomState>,
}

impl Methods {
    fn described() -> Self {
        let sets = DESCRIPTORS.iter().filter_map(|bytes| FileDescriptorSet::decode(*bytes).ok());
        let mut names = Vec::new();
        for file in sets.flat_map(|set| set.file) {
            for service in &file.service {
                let service_name = format!("{}.{}", file.package(), service.name());
                names.extend(service.method.iter().map(|method| MethodName {
                    service: service_name.clone(),
                    method: method.name().to_owned(),
                    path: format!("{service_name}/{}", method.name()),
                    is_streamed: method.server_streaming(),
                }));
            }
        }
        let places = names
            .iter()
            .zip(0..)
            .map(|(name, place)| (format!("/{}", name.path), MethodIndex(place)));
        let places = places.collect();
        let other = || "other".to_owned();
        names.push(MethodName {
            service: other(),
            method: other(),
            path: other(),
            is_streamed: false,
        });
        Self { names, places }
    }

    /// The method at this path of a URL.
    pub(crate) fn find(&self, path: &str) -> Option<MethodIndex> {
        self.places.get(path).copied()
    }

    /// The placeholder for all unknown methods.
    pub(crate) fn other(&self) -> MethodIndex {
        MethodIndex(self.names.len() - 1)
    }

    pub(crate) fn name(&self, index: MethodIndex) -> &MethodName {
        &self.names[index.0]
    }

    /// The names of the services.
    pub fn services(&self) -> impl Iterator<Item = &str> {
        let names = self.names.split_last().map_or(&[][..], |(_, names)| names);
        names.chunk_by(|one, next| one.service == next.service).map(|methods| &*methods[0].service)
    }

    /// All methods, [`Self::other`] last.
    pub(crate) fn all(&self) -> impl Iterator<Item = &MethodName> {
        self.names.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_of_all_services_are_known_and_no_others() {
        for path in [
            "/bandana.v1.Device/SubmitUpload",
            "/bandana.v1.Operator/WatchEstimates",
            "/grpc.health.v1.Health/Check",
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        ] {
            let index = METHODS.find(path).unwrap();
            assert_eq!(format!("/{}", METHODS.name(index).path), path);
        }
        let services: Vec<_> = METHODS.services().collect();
        assert_eq!(services.iter().filter(|name| **name == "bandana.v1.Trusted").count(), 1);
        assert!(services.len() >= 8 && !services.contains(&"other"), "{services:?}");
        let is_streamed = |path| METHODS.name(METHODS.find(path).unwrap()).is_streamed;
        assert!(is_streamed("/bandana.v1.Device/SubmitUploads"));
        assert!(!is_streamed("/bandana.v1.Device/SubmitUpload"));
        assert_eq!(METHODS.find("/bandana.v1.Device/Other"), None);
        assert_eq!(METHODS.name(METHODS.other()).path, "other");
    }
}
