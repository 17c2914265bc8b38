//! Verification: the findings of a check of a store.

use std::fmt;

use bandana_shared::alphabet::Symbol;
use bandana_shared::identity::Day;
use bandana_shared::tally::Tally;

/// Findings that are kept; further ones are counted.
const FINDINGS_MAX: usize = 1000;

/// What was looked at in a store, and what of it is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verification {
    /// Version of the tables.
    pub schema_version: i64,
    /// The oldest day whose uploads are taken, if it could be read.
    pub oldest: Option<Day>,
    /// What was looked at, in this order.
    pub checks: Vec<Check>,
    /// What is wrong, in the order of the checks.
    pub findings: Vec<Finding>,
    /// Findings beyond those.
    pub findings_left_out: u64,
}

/// One kind of thing that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    /// What.
    pub name: &'static str,
    /// How many of them.
    pub examined: u64,
    /// How much is wrong with them.
    pub findings: u64,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A tally is not what it follows from.
    Difference {
        /// Id of the experiment, or what is known of it.
        experiment: String,
        /// The day.
        day: Day,
        /// The arm.
        arm: u32,
        /// What is stored.
        found: Box<Tally>,
        /// What the uploads add up to.
        expected: Box<Tally>,
    },
    /// Anything else, in words.
    Other(String),
}

/// The symbols beyond 1, if there are any.
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
        }
    }

    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }

    /// What is found from here on belongs to this check.
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

    pub(super) fn say(&mut self, what: impl Into<String>) {
        self.found(Finding::Other(what.into()));
    }
}
