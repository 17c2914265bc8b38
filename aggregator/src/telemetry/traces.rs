//! Traces for a collector of OpenTelemetry.
//!
//! Of the log's spans and lines those of this project are sent, whatever the filter of
//! the log says: they have no addresses and nothing of what devices send.

use std::sync::OnceLock;

use http::HeaderMap;
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::{TraceContextExt as _, TracerProvider as _};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tracing::{Span, Subscriber};
use tracing_opentelemetry::{OpenTelemetryLayer, OpenTelemetrySpanExt as _};
use tracing_subscriber::registry::LookupSpan;

use super::log::LoggingError;

/// What sends traces. Dropping it sends those that are still here.
#[derive(Debug)]
pub(super) struct Traces(SdkTracerProvider);

impl Drop for Traces {
    fn drop(&mut self) {
        if let Err(error) = self.0.shutdown() {
            tracing::warn!(%error, "the last traces were not sent");
        }
    }
}

/// A layer that sends traces to the collector at `endpoint`. Must be called in the
/// runtime that is to send them.
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
    Ok((layer, Traces(provider)))
}

/// Makes the span a part of the trace that these headers name (`traceparent`, W3C). Not
/// for devices: what they send could tag them.
pub(super) fn follow(span: &Span, headers: &HeaderMap) {
    static PROPAGATOR: OnceLock<TraceContextPropagator> = OnceLock::new();
    let context = PROPAGATOR.get_or_init(TraceContextPropagator::new).extract(&Headers(headers));
    if context.span().span_context().is_valid() {
        // Without traces there is nothing to be a part of.
        span.set_parent(context).ok();
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
