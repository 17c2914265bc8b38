//! Counts of events in a siege, and its failures.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

/// A group of counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Events of well-behaved callers.
    Honest,
    /// Attacks.
    Attack,
    /// Trouble for servers, databases and networks.
    Trouble,
    /// Maxima.
    Most,
}

impl Group {
    fn name(self) -> &'static str {
        match self {
            Self::Honest => "honest",
            Self::Attack => "attacks",
            Self::Trouble => "trouble",
            Self::Most => "most",
        }
    }
}

/// Counts of one or several rounds.
#[derive(Debug, Default)]
pub struct Figures {
    counts: Mutex<BTreeMap<(Group, String), u64>>,
    wrong: Mutex<Vec<String>>,
}

impl Figures {
    /// Adds to a count.
    pub fn add(&self, group: Group, name: impl Into<String>, more: u64) {
        *lock(&self.counts).entry((group, name.into())).or_default() += more;
    }

    /// Updates a maximum.
    pub fn at_most(&self, name: impl Into<String>, seen: u64) {
        let mut counts = lock(&self.counts);
        let most = counts.entry((Group::Most, name.into())).or_default();
        *most = seen.max(*most);
    }

    /// Records a failure.
    pub fn wrong(&self, what: impl Into<String>) {
        lock(&self.wrong).push(what.into());
    }

    /// All recorded failures.
    pub fn all_wrong(&self) -> Vec<String> {
        lock(&self.wrong).clone()
    }

    /// The value of a count.
    pub fn count(&self, group: Group, name: &str) -> u64 {
        lock(&self.counts).get(&(group, name.to_owned())).copied().unwrap_or(0)
    }

    /// The sum of a group.
    pub fn sum(&self, group: Group) -> u64 {
        lock(&self.counts).iter().filter(|(key, _)| key.0 == group).map(|(_, count)| count).sum()
    }

    /// Adds the counts of another object.
    pub fn merge(&self, other: &Self) {
        for ((group, name), count) in &*lock(&other.counts) {
            match group {
                Group::Most => self.at_most(name, *count),
                _ => self.add(*group, name, *count),
            }
        }
        lock(&self.wrong).extend(other.all_wrong());
    }

    /// All counts as JSON.
    pub fn json(&self) -> Value {
        let mut groups: BTreeMap<&str, BTreeMap<String, u64>> = BTreeMap::new();
        for ((group, name), count) in &*lock(&self.counts) {
            groups.entry(group.name()).or_default().insert(name.clone(), *count);
        }
        json!({ "counts": groups, "wrong": self.all_wrong() })
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = None;
        for ((group, name), count) in &*lock(&self.counts) {
            if before != Some(*group) {
                writeln!(f, "{}", group.name())?;
                before = Some(*group);
            }
            writeln!(f, "  {name:<44} {count:>12}")?;
        }
        for what in &*lock(&self.wrong) {
            writeln!(f, "WRONG: {what}")?;
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
