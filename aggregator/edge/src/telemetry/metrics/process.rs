//! Metrics of the process, as reported by the operating system.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// Collector of process metrics under Prometheus's standard names. Empty where there is no `/proc`.
#[derive(Debug)]
pub struct Process;

/// Resource usage as reported by the operating system.
#[derive(Clone, Copy, Debug)]
struct Usage {
    start_seconds: f64,
    cpu_seconds: f64,
    resident_bytes: f64,
    open_descriptors: f64,
    descriptors_max: Option<f64>,
    threads: f64,
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(usage) = usage() else { return Ok(()) };
        let cpu = "Time of the processor, of the user and of the system";
        encoder
            .encode_descriptor("process_cpu_seconds", cpu, None, MetricType::Counter)?
            .encode_counter::<NoLabelSet, _, f64>(&usage.cpu_seconds, None)?;
        let gauges = [
            (
                "process_start_time_seconds",
                "Start, since 1970-01-01 (UTC)",
                Some(usage.start_seconds),
            ),
            ("process_resident_memory_bytes", "Memory in use", Some(usage.resident_bytes)),
            ("process_open_fds", "Open descriptors", Some(usage.open_descriptors)),
            ("process_max_fds", "Descriptors that may be open", usage.descriptors_max),
            ("process_threads", "Threads", Some(usage.threads)),
        ];
        for (name, help, value) in gauges {
            let mut gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            if let Some(value) = value {
                gauge.encode_gauge(&value)?;
            }
        }
        Ok(())
    }
}

#[cfg(target_os = "linux")]
fn usage() -> Option<Usage> {
    use procfs::process::{LimitValue, Process};

    let process = Process::myself().ok()?;
    let stat = process.stat().ok()?;
    let ticks = procfs::ticks_per_second() as f64;
    let limit = process.limits().ok()?.max_open_files.soft_limit;
    Some(Usage {
        start_seconds: procfs::boot_time_secs().ok()? as f64 + stat.starttime as f64 / ticks,
        cpu_seconds: (stat.utime + stat.stime) as f64 / ticks,
        resident_bytes: (stat.rss * procfs::page_size()) as f64,
        open_descriptors: process.fd_count().ok()? as f64,
        descriptors_max: match limit {
            LimitValue::Value(limit) => Some(limit as f64),
            LimitValue::Unlimited => None,
        },
        threads: stat.num_threads as f64,
    })
}

#[cfg(not(target_os = "linux"))]
fn usage() -> Option<Usage> {
    None
}
