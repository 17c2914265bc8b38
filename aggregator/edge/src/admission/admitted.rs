//! Admission: the result of the gate's checks of a call, for the service behind the gate.

use std::sync::Arc;
use std::time::Duration;

use tonic::{Extensions, Status};

use super::permit::CallPermit;
use crate::auth::AppShare;
use crate::auth::{App, unknown_app};
use crate::pushback::exhausted;
use crate::rate::{Kind, Limiters};

/// An admitted call. It keeps its place among all calls until the last clone is dropped.
#[derive(Clone, Debug, Default)]
pub struct Admission {
    pub(super) app: Option<App>,
    pub(super) connection: Option<Arc<Limiters>>,
    /// None: calls are not counted.
    pub(super) _place: Option<Arc<CallPermit>>,
}

impl Admission {
    /// The admission of a request, as set by the gate. Without a gate, every request passes.
    pub fn of(extensions: &Extensions) -> Self {
        extensions.get().cloned().unwrap_or_default()
    }

    /// The share of the call's app, from its key.
    pub fn app_share(&self) -> Option<AppShare> {
        self.app.as_ref().map(App::id_share)
    }

    /// Admits one upload.
    ///
    /// # Errors
    /// The status for a caller whose connection or app exceeds its rate.
    pub fn pass(&self) -> Result<(), Status> {
        self.check(Kind::Upload).map_err(|wait| {
            exhausted(
                "more uploads come than the server takes; send the same bytes again later",
                wait,
            )
        })
    }

    /// Admits one query.
    pub(super) fn ask(&self) -> Result<(), Status> {
        self.check(Kind::Question).map_err(|wait| {
            exhausted("more calls come than the server answers; call again later", wait)
        })
    }

    /// Waits until one upload may pass.
    pub async fn passed(&self) {
        // In this order, so that waiting for the app does not use up the connection's rate.
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

    /// Returns the caller's status when its app key is revoked.
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
