//! Findings of `bandana verify`, as text and as JSON.

use std::fmt::Write as _;

use bandana_store::{Finding, Verification};
use serde::Serialize;

use crate::views::date::date_of;
use crate::views::table::{Side, Table, visible};

/// Help text on the fields.
pub(super) const FIELDS: &str = "\
Fields with --json:
  store, sound, schema_version
  oldest_day: a date by UTC, or null
  checks: of each check
    name, examined, findings
  findings: of each finding
    message
    kind: tally or other
    A finding about a tally also has
      experiment_id, day, arm
      reports, ones: as they are stored
      expected_reports, expected_ones: as the uploads have it
  findings_left_out
  warnings: what was stored intact but should not have been: experiments whose layers overlap
Later versions may add fields. No field changes its meaning.

Exit codes: 0 the store is in order, 6 it is damaged, 7 there is none, 5 its database can't be
reached, 1 it can't be read, 2 wrong command line.";

#[derive(Debug, Serialize)]
pub(super) struct VerificationView {
    store: String,
    sound: bool,
    schema_version: i64,
    oldest_day: Option<String>,
    checks: Vec<CheckView>,
    findings: Vec<FindingView>,
    findings_left_out: u64,
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct CheckView {
    name: &'static str,
    examined: u64,
    findings: u64,
}

#[derive(Debug, Serialize)]
struct FindingView {
    message: String,
    #[serde(flatten)]
    kind: Kind,
}

#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Kind {
    Tally(Difference),
    Other,
}

#[derive(Debug, Serialize)]
struct Difference {
    experiment_id: String,
    day: String,
    arm: u32,
    reports: u64,
    ones: u64,
    expected_reports: u64,
    expected_ones: u64,
}

impl FindingView {
    fn new(finding: &Finding) -> Self {
        let kind = match finding {
            Finding::Difference { experiment, day, arm, found, expected } => {
                Kind::Tally(Difference {
                    experiment_id: experiment.clone(),
                    day: date_of(*day),
                    arm: *arm,
                    reports: found.reports(),
                    ones: found.ones(),
                    expected_reports: expected.reports(),
                    expected_ones: expected.ones(),
                })
            }
            Finding::Other(_) => Kind::Other,
        };
        Self { message: finding.to_string(), kind }
    }
}

impl VerificationView {
    pub(super) fn new(store: String, verification: &Verification) -> Self {
        let checks = verification.checks.iter().map(|check| CheckView {
            name: check.name,
            examined: check.examined,
            findings: check.findings,
        });
        Self {
            store,
            sound: verification.is_sound(),
            schema_version: verification.schema_version,
            oldest_day: verification.oldest.map(date_of),
            checks: checks.collect(),
            findings: verification.findings.iter().map(FindingView::new).collect(),
            findings_left_out: verification.findings_left_out,
            warnings: verification.warnings.clone(),
        }
    }

    /// The number of defects, in words.
    pub(super) fn count(&self) -> String {
        match self.findings.len() as u64 + self.findings_left_out {
            1 => "1 finding".to_owned(),
            findings => format!("{findings} findings"),
        }
    }

    /// As text, fitted to a terminal of `columns` if there is one.
    pub(super) fn describe(&self, columns: Option<usize>) -> String {
        let mut text = format!("{}: ", self.store);
        text.push_str(if self.sound { "in order" } else { "DAMAGED" });
        let window = self.oldest_day.as_deref().unwrap_or("nobody knows when");
        // Writing to a string does not fail.
        writeln!(text, ", schema version {}, replay window from {window}", self.schema_version)
            .ok();
        let mut table = Table::new([
            ("checked", Side::Left),
            ("examined", Side::Right),
            ("wrong", Side::Right),
        ]);
        for CheckView { name, examined, findings } in &self.checks {
            table.push([(*name).to_owned(), examined.to_string(), findings.to_string()]);
        }
        text.push_str(&table.render(columns));
        text.push_str(&self.differences(columns));
        let others = self.findings.iter().filter(|f| matches!(f.kind, Kind::Other));
        let mut others = others.peekable();
        if others.peek().is_some() {
            text.push('\n');
        }
        for FindingView { message, .. } in others {
            writeln!(text, "- {}", visible(message)).ok();
        }
        if self.findings_left_out > 0 {
            writeln!(text, "and {} more", self.findings_left_out).ok();
        }
        for warning in &self.warnings {
            writeln!(text, "\nwarning: {}", visible(warning)).ok();
        }
        text
    }

    fn differences(&self, columns: Option<usize>) -> String {
        let mut table = Table::new([
            ("experiment", Side::Left),
            ("day", Side::Left),
            ("arm", Side::Right),
            ("reports", Side::Right),
            ("by uploads", Side::Right),
            ("differs by", Side::Right),
            ("ones", Side::Right),
            ("by uploads", Side::Right),
            ("differs by", Side::Right),
        ]);
        let mut is_empty = true;
        for finding in &self.findings {
            let Kind::Tally(tally) = &finding.kind else { continue };
            is_empty = false;
            table.push([
                visible(&tally.experiment_id),
                tally.day.clone(),
                tally.arm.to_string(),
                tally.reports.to_string(),
                tally.expected_reports.to_string(),
                difference(tally.reports, tally.expected_reports),
                tally.ones.to_string(),
                tally.expected_ones.to_string(),
                difference(tally.ones, tally.expected_ones),
            ]);
        }
        if is_empty { String::new() } else { format!("\n{}", table.render(columns)) }
    }
}

fn difference(found: u64, expected: u64) -> String {
    let sign = if found > expected { "+" } else { "-" };
    match found.abs_diff(expected) {
        0 => "0".to_owned(),
        by => format!("{sign}{by}"),
    }
}
