//! Export of traces to an OpenTelemetry collector.
//!
//! Of the log's spans and lines only those of this project are sent, regardless of the log's
//! filter: they contain no addresses and nothing that devices send.

use std::sync::atomic::{AtomicBool, Ordering};

use http::HeaderMap;
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::{Status as TraceStatus, TraceContextExt as _, TracerProvider as _};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tonic::Code;
use tracing::{Span, Subscriber};
use tracing_opentelemetry::{OpenTelemetryLayer, OpenTelemetrySpanExt as _};
use tracing_subscriber::registry::LookupSpan;

use super::log::LoggingError;
use super::metrics::code_name;

/// The exporter of traces. Dropping it sends pending traces.
#[derive(Debug)]
pub(super) struct Traces(SdkTracerProvider);

impl Drop for Traces {
    fn drop(&mut self) {
        if let Err(error) = self.0.shutdown() {
            tracing::warn!(%error, "the last traces were not sent");
        }
    }
}

/// The layer that sends traces to the collector at `endpoint`. Must be called in the runtime that
/// is to send them.
pub(super) fn open<S>(
    endpoint: &str,
) -> Result<(OpenTelemetryLayer<S, SdkTracer>, Traces), LoggingError>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
{
    let exporter = SpanExporter::builder().with_tonic().with_endpoint(endpoint).build();
    let exporter = exporter.map_err(|error| LoggingError::Traces(error.to_string()))?;
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(Resource::builder().with_service_name("bandana").build())
        .build();
    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("bandana"))
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_target(false);
    ARE_SENT.store(true, Ordering::Relaxed);
    Ok((layer, Traces(provider)))
}

/// Whether traces are sent.
static ARE_SENT: AtomicBool = AtomicBool::new(false);

/// Names the span of a call in its trace, and joins the trace that these headers name
/// (`traceparent`, W3C). `None` for devices: their headers could tag them.
pub(super) fn begin(span: &Span, name: &'static str, headers: Option<&HeaderMap>) {
    if !ARE_SENT.load(Ordering::Relaxed) {
        return;
    }
    span.record("otel.name", name);
    let Some(headers) = headers else { return };
    let context = TraceContextPropagator::new().extract(&Headers(headers));
    if context.span().span_context().is_valid() {
        // An unsampled span belongs to no trace.
        span.set_parent(context).ok();
    }
}

/// Records the status of a finished call in its trace.
pub(super) fn end(span: &Span, code: Code) {
    if !ARE_SENT.load(Ordering::Relaxed) {
        return;
    }
    span.set_attribute("rpc.grpc.status_code", i64::from(i32::from(code)));
    if matches!(code, Code::Unknown | Code::Internal | Code::Unavailable | Code::DataLoss) {
        span.set_status(TraceStatus::error(code_name(code)));
    }
}

struct Headers<'h>(&'h HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(http::HeaderName::as_str).collect()
    }
}
