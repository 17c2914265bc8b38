//! Metrics of connections.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Counts the connections of one service.
#[derive(Clone, Debug, Default)]
pub struct ConnectionMetrics {
    pub(crate) open: Gauge,
    pub(crate) refused: Counter,
    pub(crate) handshakes_failed: Counter,
    pub(crate) not_taken: Counter,
    pub(crate) displaced: Counter,
}

type ByService<M> = Family<[(&'static str, &'static str); 1], M>;

/// Registers the metrics of both services and returns them: for devices, for operators.
pub fn register(registry: &mut Registry) -> (ConnectionMetrics, ConnectionMetrics) {
    let open: ByService<Gauge> = Family::default();
    let refused: ByService<Counter> = Family::default();
    let handshakes_failed: ByService<Counter> = Family::default();
    registry.register("connections", "Open connections", open.clone());
    registry.register(
        "connections_refused",
        "Connections that found no place, since as many as there may be were open",
        refused.clone(),
    );
    registry.register(
        "handshakes_failed",
        "Connections that ended before they had said what they want: TLS failed, or it took too long",
        handshakes_failed.clone(),
    );
    let not_taken: ByService<Counter> = Family::default();
    registry.register(
        "connections_not_taking",
        "Connections that were closed because an answer was not taken in time",
        not_taken.clone(),
    );
    let displaced: ByService<Counter> = Family::default();
    registry.register(
        "connections_displaced",
        "Connections that did nothing, and were closed since others needed their places",
        displaced.clone(),
    );
    let of = |service| ConnectionMetrics {
        open: open.get_or_create_owned(&[("service", service)]),
        refused: refused.get_or_create_owned(&[("service", service)]),
        handshakes_failed: handshakes_failed.get_or_create_owned(&[("service", service)]),
        not_taken: not_taken.get_or_create_owned(&[("service", service)]),
        displaced: displaced.get_or_create_owned(&[("service", service)]),
    };
    (of("device"), of("operator"))
}
