//! Results of a load test.

use std::time::Duration;

use anyhow::ensure;
use serde::Serialize;

use super::{Latencies, Load};

/// The processor time that a load has cost; None: unknown, or there is no such process.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessorTimes {
    /// The servers.
    pub servers: Option<Duration>,
    /// The relay.
    pub relay: Option<Duration>,
    /// The database, where it is on this host.
    pub database: Option<Duration>,
}

impl ProcessorTimes {
    /// The time since `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        let of = |after: Option<Duration>, before: Option<Duration>| {
            after.zip(before).map(|(after, before)| after.saturating_sub(before))
        };
        Self {
            servers: of(self.servers, before.servers),
            relay: of(self.relay, before.relay),
            database: of(self.database, before.database),
        }
    }
}

/// The result in stable JSON form: these fields, and no others.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figures {
    /// Number of uploads sent.
    pub uploads: u64,
    /// Number of reports in acknowledged uploads.
    pub reports: u64,
    /// Number of uploads that the server acknowledged.
    pub acknowledged: u64,
    /// Number of uploads with a final refusal.
    pub refused: u64,
    /// Time from the first call to the last answer.
    pub seconds: f64,
    /// Acknowledged uploads per second.
    pub uploads_per_second: f64,
    /// Reports in acknowledged uploads per second.
    pub reports_per_second: f64,
    /// Median latency of acknowledgements.
    pub p50_ms: f64,
    /// 99th percentile of the latency.
    pub p99_ms: f64,
    /// 99.9th percentile of the latency.
    pub p999_ms: f64,
    /// Processor time of the servers; None if unknown.
    pub server_cpu_seconds: Option<f64>,
    /// Acknowledged uploads per second of processor time.
    pub uploads_per_cpu_second: Option<f64>,
    /// Processor time of the relay; None: there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relay_cpu_seconds: Option<f64>,
    /// Processor time of the database; None: there is none, or not on this host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database_cpu_seconds: Option<f64>,
    /// Acknowledged uploads per second of processor time of servers and database together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uploads_per_cpu_second_together: Option<f64>,
    /// The disk's sync rate without a server.
    pub fsync_per_second: f64,
}

impl Figures {
    /// The results of a load whose uploads have `reports` reports each.
    pub fn new(
        load: &Load,
        reports: u64,
        took: Duration,
        latencies: &Latencies,
        used: ProcessorTimes,
        fsync_per_second: f64,
    ) -> Self {
        let acknowledged = load.acknowledged();
        let seconds = took.as_secs_f64();
        let per = |seconds: f64| {
            if seconds > 0.0 { acknowledged as f64 / seconds } else { 0.0 }
        };
        let quantile = |share: f64| latencies.value_at_quantile(share) as f64 / 1e3;
        let ProcessorTimes { servers, relay, database } = used;
        let together = servers.zip(database).map(|(servers, database)| servers + database);
        let server_cpu_seconds = servers.map(|cpu| cpu.as_secs_f64());
        Self {
            uploads: load.made(),
            reports: acknowledged * reports,
            acknowledged,
            refused: load.refused(),
            seconds,
            uploads_per_second: per(seconds),
            reports_per_second: per(seconds) * reports as f64,
            p50_ms: quantile(0.5),
            p99_ms: quantile(0.99),
            p999_ms: quantile(0.999),
            server_cpu_seconds,
            uploads_per_cpu_second: server_cpu_seconds.map(per),
            relay_cpu_seconds: relay.map(|cpu| cpu.as_secs_f64()),
            database_cpu_seconds: database.map(|cpu| cpu.as_secs_f64()),
            uploads_per_cpu_second_together: together.map(|cpu| per(cpu.as_secs_f64())),
            fsync_per_second,
        }
    }

    /// Checks the servers' count: at least the acknowledged uploads, and at most those sent.
    ///
    /// # Errors
    /// When the count is out of these bounds, or nothing was acknowledged.
    pub fn check(&self, counted: u64, reports_per_upload: u64) -> anyhow::Result<()> {
        let (acknowledged, sent) = (self.reports, self.uploads * reports_per_upload);
        ensure!(
            counted >= acknowledged,
            "{acknowledged} reports were acknowledged and only {counted} are counted"
        );
        ensure!(counted <= sent, "{sent} reports were sent and {counted} are counted");
        ensure!(acknowledged > 0, "no upload was acknowledged");
        Ok(())
    }

    /// The results as a text table.
    pub fn table(&self) -> String {
        let unknown = || "unknown".to_owned();
        let cpu = self.server_cpu_seconds.map_or_else(unknown, |seconds| format!("{seconds:.2} s"));
        let per_cpu = self.uploads_per_cpu_second.map_or_else(unknown, |rate| {
            let reports = self.reports_per_second / self.uploads_per_second.max(1e-9) * rate;
            format!("{rate:.0} uploads, {reports:.0} reports")
        });
        let relay = self.relay_cpu_seconds.map_or_else(String::new, |seconds| {
            let rate = self.acknowledged as f64 / seconds.max(1e-9);
            format!("relay's processor     {seconds:.2} s, {rate:.0} uploads a second of it\n")
        });
        let database = self.database_cpu_seconds.zip(self.uploads_per_cpu_second_together);
        let database = database.map_or_else(String::new, |(seconds, rate)| {
            format!(
                "database's processor  {seconds:.2} s\n\
                 a second of both      {rate:.0} uploads\n"
            )
        });
        format!(
            "{} uploads sent in {:.2} s: {} acknowledged, {} refused\n\
             a second              {:.0} uploads, {:.0} reports\n\
             until acknowledged    {:.2} ms median, {:.2} ms p99, {:.2} ms p99.9\n\
             server's processor    {cpu}\n\
             a second of that      {per_cpu}\n\
             {relay}{database}\
             the disk alone        {:.0} appends with fdatasync a second\n",
            self.uploads,
            self.seconds,
            self.acknowledged,
            self.refused,
            self.uploads_per_second,
            self.reports_per_second,
            self.p50_ms,
            self.p99_ms,
            self.p999_ms,
            self.fsync_per_second
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_acknowledged_must_be_counted_and_no_more_than_was_sent() {
        let figures = Figures {
            uploads: 12,
            reports: 100,
            acknowledged: 10,
            refused: 0,
            seconds: 1.0,
            uploads_per_second: 10.0,
            reports_per_second: 100.0,
            p50_ms: 1.0,
            p99_ms: 1.0,
            p999_ms: 1.0,
            server_cpu_seconds: None,
            uploads_per_cpu_second: None,
            relay_cpu_seconds: None,
            database_cpu_seconds: None,
            uploads_per_cpu_second_together: None,
            fsync_per_second: 1.0,
        };
        for (counted, complaint) in
            [(99, "only 99 are counted"), (100, ""), (120, ""), (121, "121 are counted")]
        {
            let told = figures.check(counted, 10).err().map(|error| error.to_string());
            let told = told.unwrap_or_default();
            assert!(told.contains(complaint) && told.is_empty() == complaint.is_empty(), "{told}");
        }
        let nothing = Figures { reports: 0, acknowledged: 0, ..figures };
        assert!(nothing.check(0, 10).is_err());
    }
}
