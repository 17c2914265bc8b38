//! Verification: the findings of a check of a store.

use std::fmt;

use bandana_shared::alphabet::Symbol;
use bandana_shared::identity::Day;
use bandana_shared::participation::Layer;
use bandana_shared::tally::Tally;

use super::ExperimentState;
use super::layers::overlaps;

/// Most findings that are kept; further ones are only counted.
const FINDINGS_MAX: usize = 1000;

/// The result of checking a store: checks made and findings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verification {
    /// The schema version.
    pub schema_version: i64,
    /// The oldest day whose uploads are taken, if it could be read.
    pub oldest: Option<Day>,
    /// The checks, in the order in which they were made.
    pub checks: Vec<Check>,
    /// The findings, in the order of the checks.
    pub findings: Vec<Finding>,
    /// The number of findings beyond the kept ones.
    pub findings_left_out: u64,
    /// What is stored as it was written, and should not have been.
    pub warnings: Vec<String>,
}

/// One kind of check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    /// The kind of thing examined.
    pub name: &'static str,
    /// The number of things examined.
    pub examined: u64,
    /// The number of findings.
    pub findings: u64,
}

/// A discrepancy in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A tally differs from the one that the uploads give.
    Difference {
        /// The experiment's id, or another name if the id is unknown.
        experiment: String,
        /// The day.
        day: Day,
        /// The arm.
        arm: u32,
        /// The stored tally.
        found: Box<Tally>,
        /// The tally that the uploads add up to.
        expected: Box<Tally>,
    },
    /// Any other discrepancy, in words.
    Other(String),
}

/// The counts of symbols beyond 1, if there are any.
fn beyond(tally: &Tally) -> String {
    let count = |(symbol, count): (Symbol, u64)| format!(", {count} of symbol {}", symbol.get());
    tally.beyond_bits().map(count).collect()
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Difference { experiment, day, arm, found, expected } => write!(
                f,
                "experiment {experiment}, day {day}, arm {arm}: the tally has {} reports with {} \
                 ones{}, its uploads have {} with {}{}",
                found.reports(),
                found.ones(),
                beyond(found),
                expected.reports(),
                expected.ones(),
                beyond(expected)
            ),
            Self::Other(what) => f.write_str(what),
        }
    }
}

impl Verification {
    pub(super) fn new(schema_version: i64) -> Self {
        Self {
            schema_version,
            oldest: None,
            checks: Vec::new(),
            findings: Vec::new(),
            findings_left_out: 0,
            warnings: Vec::new(),
        }
    }

    /// Whether there are no findings.
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }

    /// Begins a check; later findings belong to it.
    pub(super) fn begin(&mut self, name: &'static str) {
        self.checks.push(Check { name, examined: 0, findings: 0 });
    }

    pub(super) fn examined(&mut self, more: u64) {
        if let Some(check) = self.checks.last_mut() {
            check.examined += more;
        }
    }

    pub(super) fn found(&mut self, finding: Finding) {
        if let Some(check) = self.checks.last_mut() {
            check.findings += 1;
        }
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        } else {
            self.findings_left_out += 1;
        }
    }

    /// Warns of experiments whose layer is to keep them apart, and does not.
    pub(super) fn compare_layers(&mut self, open: &[(String, ExperimentState, Layer)]) {
        let parts = open.iter().map(|(id, state, part)| (id, *state, part));
        for [(one, part), (other, other_part)] in overlaps(parts) {
            self.warnings.push(format!(
                "experiments {one}, of {part}, and {other}, of {other_part}, can be given to the \
                 same installation: stop one of them"
            ));
        }
    }

    /// Adds the verification of a part of the store, whose findings begin with `part`.
    pub(super) fn include(&mut self, part: &str, other: Self) {
        for check in other.checks {
            match self.checks.iter_mut().find(|known| known.name == check.name) {
                Some(known) => {
                    known.examined += check.examined;
                    known.findings += check.findings;
                }
                None => self.checks.push(check),
            }
        }
        self.findings_left_out += other.findings_left_out;
        for finding in other.findings {
            if self.findings.len() < FINDINGS_MAX {
                self.findings.push(Finding::Other(format!("{part}{finding}")));
            } else {
                self.findings_left_out += 1;
            }
        }
        self.warnings.extend(other.warnings.iter().map(|warning| format!("{part}{warning}")));
    }

    pub(super) fn say(&mut self, what: impl Into<String>) {
        self.found(Finding::Other(what.into()));
    }
}
