//! Programs that serve until SIGTERM or SIGINT.

use std::pin::Pin;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

use crate::telemetry::{LogFormat, Logging, TelemetrySettings};

/// Comes with the first signal.
pub type Signalled = Pin<Box<dyn Future<Output = ()>>>;

/// What a program tells that has no settings for it: a log of text.
pub const TEXT: TelemetrySettings =
    TelemetrySettings { format: LogFormat::Text, filter: None, otlp_endpoint: None };

/// Has a program serve, on a runtime and with a log. `serve` is awaited in the runtime, so that it can
/// make connections.
///
/// # Errors
/// Those of `serve`, and of the system.
pub fn until_signal(
    telemetry: &TelemetrySettings,
    serve: impl AsyncFnOnce(Signalled) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let logging = {
        // The trace exporter runs in this runtime.
        let _entered = runtime.enter();
        Logging::start(telemetry)?
    };
    let outcome = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).context("can't wait for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("can't wait for SIGINT")?;
        let signalled = Box::pin(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        });
        serve(signalled).await
    });
    logging.end();
    // Connections that remain open after the deadline are dropped.
    runtime.shutdown_background();
    outcome
}
