//! The table of a comparison.

use std::fmt::Write as _;

use serde::Serialize;

use super::calls::Measured;
use super::{Kind, Plan};

/// What was measured of one kind of call, a figure for each round.
#[derive(Clone, Debug)]
pub struct Row {
    kind: Kind,
    rounds: Vec<Measured>,
}

impl Row {
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, rounds: Vec::new() }
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) fn add(&mut self, measured: Measured) {
        self.rounds.push(measured);
    }
}

/// The result as stable JSON: these fields, and no others.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    connections: usize,
    in_flight: usize,
    seconds: f64,
    rounds: usize,
    calls: Vec<Line>,
}

/// The figures of one kind of call: the median of the rounds, the least and the largest.
#[derive(Clone, Debug, Serialize)]
struct Line {
    call: &'static str,
    calls_per_second: [f64; 3],
    calls_per_processor_second: [f64; 3],
    /// Calls in a second of the server's processor, over those of the reference in the same round.
    ratio: [f64; 3],
    p50_ms: [f64; 3],
    p99_ms: [f64; 3],
}

impl Comparison {
    pub(super) fn new(plan: Plan, rows: &[Row]) -> Self {
        let reference: Vec<f64> = rows.first().map_or_else(Vec::new, |row| {
            row.rounds.iter().map(Measured::calls_per_processor_second).collect()
        });
        let line = |row: &Row| {
            let of = |figure: &dyn Fn(&Measured) -> f64| spread(row.rounds.iter().map(figure));
            let ratios = row.rounds.iter().zip(&reference);
            let ratios = ratios.map(|(one, base)| one.calls_per_processor_second() / base);
            Line {
                call: row.kind.name(),
                calls_per_second: of(&Measured::calls_per_second),
                calls_per_processor_second: of(&Measured::calls_per_processor_second),
                ratio: spread(ratios),
                p50_ms: of(&|one| one.quantile_ms(0.5)),
                p99_ms: of(&|one| one.quantile_ms(0.99)),
            }
        };
        Self {
            connections: plan.connections,
            in_flight: plan.in_flight,
            seconds: plan.time.as_secs_f64(),
            rounds: plan.rounds,
            calls: rows.iter().map(line).collect(),
        }
    }

    /// The result as a text table.
    pub fn table(&self) -> String {
        let mut text = format!(
            "{} calls under way on {} connections, {} rounds of {} s for each: median (least to largest)\n\
             {:<28}{:>32}{:>26}{:>10}{:>10}\n",
            self.in_flight,
            self.connections,
            self.rounds,
            self.seconds,
            "call",
            "a second of the processor",
            "over the reference",
            "p50 ms",
            "p99 ms"
        );
        for line in &self.calls {
            let [rate, least, largest] = line.calls_per_processor_second;
            let rates = format!("{rate:.0} ({least:.0} to {largest:.0})");
            let [ratio, least, largest] = line.ratio;
            let ratios = format!("{ratio:.2} ({least:.2} to {largest:.2})");
            let (call, [p50, p99]) = (line.call, [line.p50_ms[0], line.p99_ms[0]]);
            // Writing to a string does not fail.
            writeln!(text, "{call:<28}{rates:>32}{ratios:>26}{p50:>10.2}{p99:>10.2}").ok();
        }
        text
    }
}

/// The median, the least and the largest.
fn spread(figures: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    let [Some(least), Some(largest)] = [figures.first(), figures.last()] else { return [0.0; 3] };
    let (low, high) = ((figures.len() - 1) / 2, figures.len() / 2);
    [f64::midpoint(figures[low], figures[high]), *least, *largest]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hdrhistogram::Histogram;

    use super::*;

    #[test]
    fn ratios_are_taken_within_a_round() {
        let measured = |processor: u64| {
            let mut latencies = Histogram::new(3).unwrap();
            latencies.record_n(1000, 100).unwrap();
            let time = Duration::from_secs(1);
            Measured {
                calls: 100,
                time,
                processor_time: Duration::from_millis(processor),
                latencies,
            }
        };
        // The machine is twice as slow in the second round.
        let (mut bare, mut upload) = (Row::new(Kind::Bare), Row::new(Kind::Upload));
        for slower in [1, 2, 1] {
            bare.add(measured(100 * slower));
            upload.add(measured(200 * slower));
        }
        let plan = Plan { connections: 1, in_flight: 1, time: Duration::from_secs(1), rounds: 3 };
        let comparison = Comparison::new(plan, &[bare, upload]);
        let table = comparison.table();
        for told in ["500 (250 to 500)", "0.50 (0.50 to 0.50)"] {
            assert!(table.contains(told), "{table}");
        }
    }
}
