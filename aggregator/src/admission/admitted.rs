//! Admission: the gate's findings about a call, for the service behind it.

use std::sync::Arc;
use std::time::Duration;

use tonic::{Extensions, Status};

use super::permit::CallPermit;
use crate::auth::AppShare;
use crate::auth::{App, unknown_app};
use crate::pushback::exhausted;
use crate::rate::{Kind, Limiters};

/// A call that was let in. It has its place among all calls until the last clone is
/// dropped.
#[derive(Clone, Debug, Default)]
pub struct Admission {
    pub(super) app: Option<App>,
    pub(super) connection: Option<Arc<Limiters>>,
    /// None: nobody counts the calls.
    pub(super) _place: Option<Arc<CallPermit>>,
}

impl Admission {
    /// That of a request, as the gate noted it. Without a gate everything passes.
    pub fn of(extensions: &Extensions) -> Self {
        extensions.get().cloned().unwrap_or_default()
    }

    /// The app that the call comes from, by its key.
    pub fn app_share(&self) -> Option<AppShare> {
        self.app.as_ref().map(App::id_share)
    }

    /// Lets one upload pass.
    ///
    /// # Errors
    /// What the caller hears when its connection or its app is over its rate.
    pub fn pass(&self) -> Result<(), Status> {
        self.check(Kind::Upload).map_err(|wait| {
            exhausted("more uploads than the server takes; send the same bytes again later", wait)
        })
    }

    /// Lets one question pass.
    pub(super) fn ask(&self) -> Result<(), Status> {
        self.check(Kind::Question)
            .map_err(|wait| exhausted("more calls than the server answers; call again later", wait))
    }

    /// Waits until one upload may pass.
    pub async fn passed(&self) {
        // One after the other: waiting for the app must not use up the connection's rate.
        while let Err(wait) = self.check_connection(Kind::Upload) {
            tokio::time::sleep(wait).await;
        }
        while let Err(wait) = self.check_app(Kind::Upload) {
            tokio::time::sleep(wait).await;
        }
    }

    fn check(&self, kind: Kind) -> Result<(), Duration> {
        self.check_connection(kind)?;
        self.check_app(kind)
    }

    fn check_connection(&self, kind: Kind) -> Result<(), Duration> {
        self.connection.as_ref().map_or(Ok(()), |limiters| limiters.pass(kind))
    }

    fn check_app(&self, kind: Kind) -> Result<(), Duration> {
        self.app.as_ref().map_or(Ok(()), |app| app.pass(kind))
    }

    /// Returns what the caller hears when its app key is revoked.
    pub async fn revoked(self) -> Status {
        match self.app {
            Some(app) => {
                app.revoked().await;
                unknown_app()
            }
            None => std::future::pending().await,
        }
    }
}
