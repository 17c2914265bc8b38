//! The log, and the export of traces.

use std::io::IsTerminal as _;
use std::str::FromStr;

use thiserror::Error;
use tracing::{Level, Metadata};
use tracing_subscriber::filter::{EnvFilter, FilterExt as _, FilterFn};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, Registry};

/// The prefix of this project's module names.
const OURS: &str = "bandana";

/// The default filter.
const DEFAULT_FILTER: &str = "info";

/// Settings of the log and of traces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TelemetrySettings {
    /// The form of a line.
    pub format: LogFormat,
    /// The filter, in the syntax of `tracing_subscriber::EnvFilter`. None: the variable `RUST_LOG`,
    /// or else the level info and above.
    pub filter: Option<String>,
    /// The destination of traces: the URL of a collector that speaks OTLP over gRPC.
    pub otlp_endpoint: Option<String>,
}

impl TelemetrySettings {
    /// Whether this program can send traces.
    pub const CAN_TRACE: bool = cfg!(feature = "opentelemetry");
}

/// The form of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Plain text.
    #[default]
    Text,
    /// A JSON object.
    Json,
}

impl LogFormat {
    /// The names of all formats.
    pub const NAMES: &[&str] = &["text", "json"];
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(format!("expected one of {}", Self::NAMES.join(", "))),
        }
    }
}

/// Checks that a filter is valid.
///
/// # Errors
/// A description of the problem.
pub fn check_filter(filter: &str) -> Result<(), String> {
    // A word that is no level is taken for a module's name, so a typo would silence the log.
    let names_level = |part: &str| {
        part.contains('=') || part.trim().parse::<Level>().is_ok() || part.trim() == "off"
    };
    if !filter.split(',').any(names_level) {
        return Err("no level is named".to_owned());
    }
    EnvFilter::builder().parse(filter).map(drop).map_err(|error| error.to_string())
}

/// The log after setup. Dropping it sends pending traces.
#[derive(Debug)]
pub struct Logging {
    #[cfg(feature = "opentelemetry")]
    _traces: Option<super::traces::Traces>,
}

impl Logging {
    /// Sets the log up, on standard error. A subscriber that the program has already installed
    /// remains.
    ///
    /// # Errors
    /// [`LoggingError`] for an invalid filter, or when traces can't be exported.
    pub fn start(settings: &TelemetrySettings) -> Result<Self, LoggingError> {
        let filter = match &settings.filter {
            Some(filter) => EnvFilter::builder()
                .parse(filter)
                .map_err(|error| LoggingError::Filter(error.to_string()))?,
            None => filter_of_environment(),
        };
        let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
        let lines = match settings.format {
            LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
            LogFormat::Json => lines.json().flatten_event(true).with_span_list(false).boxed(),
        };
        let lines = lines.with_filter(filter.and(harmless()));
        let subscriber = Registry::default().with(lines);
        #[cfg(feature = "opentelemetry")]
        {
            let Some(endpoint) = &settings.otlp_endpoint else {
                subscriber.try_init().ok();
                return Ok(Self { _traces: None });
            };
            let (layer, traces) = super::traces::open(endpoint)?;
            subscriber
                .with(layer.with_filter(FilterFn::new(is_ours as fn(&Metadata<'_>) -> bool)))
                .try_init()
                .ok();
            Ok(Self { _traces: Some(traces) })
        }
        #[cfg(not(feature = "opentelemetry"))]
        {
            if settings.otlp_endpoint.is_some() {
                return Err(LoggingError::NoTraces);
            }
            subscriber.try_init().ok();
            Ok(Self {})
        }
    }
}

impl Logging {
    /// Sends pending traces. The runtime must still be running.
    pub fn end(self) {
        let Self { .. } = self;
    }
}

/// The filter from `RUST_LOG`. Invalid parts are ignored: it may have been set for another program.
fn filter_of_environment() -> EnvFilter {
    let said = std::env::var(EnvFilter::DEFAULT_ENV).ok().filter(|said| !said.is_empty());
    EnvFilter::builder().parse_lossy(said.as_deref().unwrap_or(DEFAULT_FILTER))
}

fn is_ours(metadata: &Metadata<'_>) -> bool {
    metadata.target().starts_with(OURS)
}

/// Filter against sensitive lines of libraries. Below the level info these may contain addresses,
/// headers and frames, so they are never written. All lines of the HTTP/2 library report behaviour
/// of callers, who could flood the log.
fn harmless() -> FilterFn {
    let is_harmless = |metadata: &Metadata<'_>| {
        let of_callers = metadata.target().starts_with("h2::");
        is_ours(metadata) || (*metadata.level() <= Level::INFO && !of_callers)
    };
    // Without the hint, lines that the other filter excludes would still be evaluated.
    FilterFn::new(is_harmless as fn(&Metadata<'_>) -> bool).with_max_level_hint(Level::TRACE)
}

/// The reason why the log can't be set up.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoggingError {
    /// The filter is invalid.
    #[error("the log can't be filtered: {0}; use a level such as info, or module=level")]
    Filter(String),
    /// This program is built without the export of traces.
    #[error(
        "this program can't send traces; build it with `--features opentelemetry`, or leave \
         telemetry.otlp_endpoint out"
    )]
    NoTraces,
    /// The collector's URL is invalid.
    #[error("traces can't be sent to the collector: {0}")]
    Traces(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_checked() {
        for good in
            ["info", "debug", "off", "warn,bandana_aggregator=debug", "bandana_aggregator=info"]
        {
            assert_eq!(check_filter(good), Ok(()), "{good}");
        }
        for bad in ["", "inof", "bandana_aggregator=loud", "info,=,"] {
            assert!(check_filter(bad).is_err(), "{bad}");
        }
    }
}
