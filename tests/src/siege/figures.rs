//! Counts of what happened in a siege, and what was not as it should be.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

/// What is counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// What those do who behave.
    Honest,
    /// What attackers do.
    Attack,
    /// What happens to servers, databases and networks.
    Trouble,
    /// The most that was seen of something.
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

/// Counts of a round, or of several.
#[derive(Debug, Default)]
pub struct Figures {
    counts: Mutex<BTreeMap<(Group, String), u64>>,
    wrong: Mutex<Vec<String>>,
}

impl Figures {
    /// Counts so many more of something.
    pub fn add(&self, group: Group, name: impl Into<String>, more: u64) {
        *lock(&self.counts).entry((group, name.into())).or_default() += more;
    }

    /// Keeps the largest.
    pub fn at_most(&self, name: impl Into<String>, seen: u64) {
        let mut counts = lock(&self.counts);
        let most = counts.entry((Group::Most, name.into())).or_default();
        *most = seen.max(*most);
    }

    /// Something is not as it should be.
    pub fn wrong(&self, what: impl Into<String>) {
        lock(&self.wrong).push(what.into());
    }

    /// All that was not as it should be.
    pub fn all_wrong(&self) -> Vec<String> {
        lock(&self.wrong).clone()
    }

    /// How often something was counted.
    pub fn count(&self, group: Group, name: &str) -> u64 {
        lock(&self.counts).get(&(group, name.to_owned())).copied().unwrap_or(0)
    }

    /// All of a group together.
    pub fn sum(&self, group: Group) -> u64 {
        lock(&self.counts).iter().filter(|(key, _)| key.0 == group).map(|(_, count)| count).sum()
    }

    /// Takes the counts of another over.
    pub fn merge(&self, other: &Self) {
        for ((group, name), count) in &*lock(&other.counts) {
            match group {
                Group::Most => self.at_most(name, *count),
                _ => self.add(*group, name, *count),
            }
        }
        lock(&self.wrong).extend(other.all_wrong());
    }

    /// All of it for programs.
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
