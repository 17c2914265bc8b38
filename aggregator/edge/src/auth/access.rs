//! The access table: the required roles of every method of every service, and of every page.

use std::fmt::Write as _;

use http::Method;

use super::role::Role::{self, Analyst, Custodian, Experimenter, Relay, Viewer};
use super::role::Roles;

/// The callers that may use a method or a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// All callers, without a token.
    Everybody,
    /// Devices, on their port, where the gate asks for app keys.
    Devices,
    /// Callers with a token of any role.
    AnyRole,
    /// Callers with one of these roles, and administrators.
    Roles(&'static [Role]),
}

const VIEWERS: Access = Access::Roles(&[Viewer, Experimenter]);
const EXPERIMENTERS: Access = Access::Roles(&[Experimenter]);
const ANALYSTS: Access = Access::Roles(&[Analyst]);
const CUSTODIANS: Access = Access::Roles(&[Custodian]);
const RELAYS: Access = Access::Roles(&[Relay]);
const AROUND_DATA_SETS: Access = Access::Roles(&[Analyst, Custodian]);
const ADMINISTRATORS: Access = Access::Roles(&[]);
const AUDITORS: Access = Access::Roles(&[Viewer, Experimenter, Custodian]);

/// The access of every method by its path, and of the other content that pages show.
const METHODS: &[(&str, Access)] = &[
    ("/bandana.v1.Device/GetExperiment", Access::Devices),
    ("/bandana.v1.Device/SelectArm", Access::Devices),
    ("/bandana.v1.Device/SubmitUpload", Access::Devices),
    ("/bandana.v1.Device/SubmitUploads", Access::Devices),
    ("/bandana.v1.Gateway/GetGatewayKeys", Access::Devices),
    ("/bandana.v1.TransparencyLog/ListEpochs", Access::Devices),
    // Of relays; an aggregator has no such service.
    ("/bandana.v1.Shuffler/SubmitShuffled", Access::Devices),
    ("/bandana.v1.Trusted/GetTrustedExperiment", Access::Devices),
    ("/bandana.v1.Trusted/Recommend", Access::Devices),
    ("/bandana.v1.Trusted/Disclose", Access::Devices),
    ("/bandana.v1.Operator/CreateExperiment", EXPERIMENTERS),
    ("/bandana.v1.Operator/ListExperiments", VIEWERS),
    ("/bandana.v1.Operator/GetExperimentStatus", VIEWERS),
    ("/bandana.v1.Operator/StartExperiment", EXPERIMENTERS),
    ("/bandana.v1.Operator/PauseExperiment", EXPERIMENTERS),
    ("/bandana.v1.Operator/ResumeExperiment", EXPERIMENTERS),
    ("/bandana.v1.Operator/StopExperiment", EXPERIMENTERS),
    ("/bandana.v1.Operator/ArchiveExperiment", EXPERIMENTERS),
    ("/bandana.v1.Operator/UnarchiveExperiment", EXPERIMENTERS),
    ("/bandana.v1.Operator/DeleteExperiment", ADMINISTRATORS),
    ("/bandana.v1.Operator/AddArm", EXPERIMENTERS),
    ("/bandana.v1.Operator/RetireArm", EXPERIMENTERS),
    ("/bandana.v1.Operator/SetEnrolment", EXPERIMENTERS),
    ("/bandana.v1.Operator/SetRecord", EXPERIMENTERS),
    ("/bandana.v1.Operator/AddSignature", EXPERIMENTERS),
    ("/bandana.v1.Operator/GetEstimates", VIEWERS),
    ("/bandana.v1.Operator/WatchEstimates", VIEWERS),
    ("/bandana.v1.Operator/ListAuditEntries", AUDITORS),
    ("/bandana.v1.Operator/RefreshPolicy", EXPERIMENTERS),
    ("/bandana.v1.Operator/ExportTallies", VIEWERS),
    ("/bandana.v1.TrustedOperator/CreateTrustedExperiment", EXPERIMENTERS),
    ("/bandana.v1.TrustedOperator/ListTrustedExperiments", VIEWERS),
    ("/bandana.v1.TrustedOperator/GetTrustedStatus", VIEWERS),
    ("/bandana.v1.TrustedOperator/PauseTrustedExperiment", EXPERIMENTERS),
    ("/bandana.v1.TrustedOperator/ResumeTrustedExperiment", EXPERIMENTERS),
    ("/bandana.v1.TrustedOperator/StopTrustedExperiment", EXPERIMENTERS),
    ("/bandana.v1.TrustedOperator/ArchiveTrustedExperiment", EXPERIMENTERS),
    ("/bandana.v1.TrustedOperator/UnarchiveTrustedExperiment", EXPERIMENTERS),
    ("/bandana.v1.TrustedOperator/DeleteTrustedExperiment", ADMINISTRATORS),
    ("/bandana.v1.TrustedOperator/GetReleased", VIEWERS),
    ("/bandana.v1.Curator/RegisterDataSet", CUSTODIANS),
    ("/bandana.v1.Curator/WithdrawDataSet", CUSTODIANS),
    ("/bandana.v1.Curator/ListDataSets", AROUND_DATA_SETS),
    // Analysts see only their own debits.
    ("/bandana.v1.Curator/ListDebits", AROUND_DATA_SETS),
    ("/bandana.v1.Curator/Ask", ANALYSTS),
    ("/bandana.v1.Curator/OpenSession", CUSTODIANS),
    ("/bandana.v1.Curator/AskSession", ANALYSTS),
    ("/bandana.v1.Batches/GetShuffled", RELAYS),
    ("/bandana.v1.Batches/SubmitBatch", RELAYS),
    ("/grpc.health.v1.Health/Check", Access::Everybody),
    ("/grpc.health.v1.Health/Watch", Access::Everybody),
    ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Access::AnyRole),
    ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", Access::AnyRole),
    ("/metrics", VIEWERS),
];

/// Every page with restricted access, and the method whose access it shares.
const PAGES: &[(&Method, &str, &str)] = &[
    (&Method::GET, "/metrics", "/metrics"),
    (&Method::GET, "/api/experiments", "/bandana.v1.Operator/ListExperiments"),
    (&Method::POST, "/api/experiments", "/bandana.v1.Operator/CreateExperiment"),
    (&Method::GET, "/api/experiments/{id}", "/bandana.v1.Operator/GetEstimates"),
    (&Method::GET, "/api/experiments/{id}/watch", "/bandana.v1.Operator/WatchEstimates"),
    (&Method::GET, "/api/experiments/{id}/tallies", "/bandana.v1.Operator/ExportTallies"),
    (&Method::POST, "/api/experiments/{id}/start", "/bandana.v1.Operator/StartExperiment"),
    (&Method::POST, "/api/experiments/{id}/pause", "/bandana.v1.Operator/PauseExperiment"),
    (&Method::POST, "/api/experiments/{id}/resume", "/bandana.v1.Operator/ResumeExperiment"),
    (&Method::POST, "/api/experiments/{id}/stop", "/bandana.v1.Operator/StopExperiment"),
    (&Method::POST, "/api/experiments/{id}/archive", "/bandana.v1.Operator/ArchiveExperiment"),
    (&Method::POST, "/api/experiments/{id}/unarchive", "/bandana.v1.Operator/UnarchiveExperiment"),
    (&Method::POST, "/api/experiments/{id}/delete", "/bandana.v1.Operator/DeleteExperiment"),
    (&Method::POST, "/api/experiments/{id}/record", "/bandana.v1.Operator/SetRecord"),
    (&Method::GET, "/api/experiments/{id}/over-time", "/bandana.v1.Operator/ExportTallies"),
    (&Method::GET, "/api/experiments/{id}/export", "/bandana.v1.Operator/ExportTallies"),
    (&Method::GET, "/api/data-sets", "/bandana.v1.Curator/ListDataSets"),
    (&Method::GET, "/api/plan", "/bandana.v1.Operator/ListExperiments"),
    (&Method::GET, "/api/audit", "/bandana.v1.Operator/ListAuditEntries"),
    (&Method::GET, "/api/trusted", "/bandana.v1.TrustedOperator/ListTrustedExperiments"),
    (&Method::POST, "/api/trusted", "/bandana.v1.TrustedOperator/CreateTrustedExperiment"),
    (&Method::GET, "/api/trusted/{id}", "/bandana.v1.TrustedOperator/GetReleased"),
    (
        &Method::POST,
        "/api/trusted/{id}/pause",
        "/bandana.v1.TrustedOperator/PauseTrustedExperiment",
    ),
    (
        &Method::POST,
        "/api/trusted/{id}/resume",
        "/bandana.v1.TrustedOperator/ResumeTrustedExperiment",
    ),
    (&Method::POST, "/api/trusted/{id}/stop", "/bandana.v1.TrustedOperator/StopTrustedExperiment"),
    (
        &Method::POST,
        "/api/trusted/{id}/archive",
        "/bandana.v1.TrustedOperator/ArchiveTrustedExperiment",
    ),
    (
        &Method::POST,
        "/api/trusted/{id}/unarchive",
        "/bandana.v1.TrustedOperator/UnarchiveTrustedExperiment",
    ),
    (
        &Method::POST,
        "/api/trusted/{id}/delete",
        "/bandana.v1.TrustedOperator/DeleteTrustedExperiment",
    ),
];

impl Access {
    /// The access of the method at this path. None: no one, since the method is not in the table.
    pub(crate) fn of_method(path: &str) -> Option<Self> {
        METHODS.iter().find(|(known, _)| *known == path).map(|(_, access)| *access)
    }

    /// The access of the page at this path. None: no one, since the page is not in the table.
    pub fn of_page(method: &Method, path: &str) -> Option<Self> {
        let method = if method == Method::HEAD { &Method::GET } else { method };
        let is_this = |(of, route, _): &&(&Method, &str, &str)| *of == method && fits(route, path);
        PAGES.iter().find(is_this).and_then(|(_, _, path)| Self::of_method(path))
    }

    /// Whether a token with these roles is admitted.
    pub(super) fn allows(self, roles: Roles) -> bool {
        match self {
            Self::Everybody | Self::AnyRole => true,
            Self::Devices => false,
            Self::Roles(needed) => {
                roles.have(Role::Administrator) || needed.iter().any(|role| roles.have(*role))
            }
        }
    }

    /// The admitted roles in words, such as "viewer, experimenter or administrator".
    pub(super) fn roles(self) -> String {
        let Self::Roles(needed) = self else { return String::new() };
        let mut text = String::new();
        for (place, role) in needed.iter().enumerate() {
            // Writing to a string does not fail.
            write!(text, "{}{}", if place > 0 { ", " } else { "" }, role.name()).ok();
        }
        if !text.is_empty() {
            text.push_str(" or ");
        }
        text + Role::Administrator.name()
    }
}

/// Whether a path matches a route, in which `{id}` stands for any text without a slash.
fn fits(route: &str, path: &str) -> bool {
    let (mut route, mut path) = (route.split('/'), path.split('/'));
    loop {
        match (route.next(), path.next()) {
            (None, None) => return true,
            (Some("{id}"), Some(id)) if !id.is_empty() => {}
            (Some(one), Some(other)) if one == other => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::methods::METHODS as DESCRIBED;

    #[test]
    fn every_method_of_every_service_is_in_the_table_once_and_no_other() {
        let mut described: Vec<String> =
            DESCRIBED.all().map(|name| format!("/{}", name.path)).collect();
        assert_eq!(described.pop().as_deref(), Some("/other"));
        described.push("/metrics".to_owned());
        for path in &described {
            assert!(Access::of_method(path).is_some(), "{path} is in no role");
        }
        for (path, _) in METHODS {
            let is_this = |other: &&(&str, Access)| other.0 == *path;
            assert!(described.iter().any(|known| known == path), "there is no {path}");
            assert_eq!(METHODS.iter().filter(is_this).count(), 1, "{path}");
        }
        assert_eq!(Access::of_method("/bandana.v1.Operator/Other"), None);
    }

    #[test]
    fn devices_are_served_on_their_port_alone() {
        for (path, access) in METHODS {
            let of_devices = [
                "/bandana.v1.Device/",
                "/bandana.v1.Gateway/",
                "/bandana.v1.Shuffler/",
                "/bandana.v1.TransparencyLog/",
                "/bandana.v1.Trusted/",
            ];
            let is_of_devices = of_devices.iter().any(|service| path.starts_with(service));
            assert_eq!(is_of_devices, *access == Access::Devices, "{path}");
            assert!(*access != Access::Devices || !access.allows(Roles::ALL));
            let is_probe = path.starts_with("/grpc.health.v1.");
            assert_eq!(is_probe, *access == Access::Everybody, "{path}");
        }
    }

    #[test]
    fn every_page_has_the_access_of_a_method_that_there_is() {
        for (method, route, path) in PAGES {
            let access = Access::of_page(method, &route.replace("{id}", "checkout"));
            assert_eq!(access, Access::of_method(path), "{route}");
            assert!(matches!(access, Some(Access::Roles(_))), "{route}");
        }
        assert_eq!(Access::of_page(&Method::HEAD, "/metrics"), Some(VIEWERS));
        assert_eq!(Access::of_page(&Method::POST, "/metrics"), None);
        for other in ["/api/other", "/api/experiments/", "/api/experiments/x/", "/api/audit/x"] {
            assert_eq!(Access::of_page(&Method::GET, other), None, "{other}");
        }
    }

    #[test]
    fn who_may_is_said_in_words() {
        assert_eq!(VIEWERS.roles(), "viewer, experimenter or administrator");
        assert_eq!(Access::Roles(&[]).roles(), "administrator");
    }
}
