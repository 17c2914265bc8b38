//! Shares of the id table, which stop one app key from taking all the room.
//!
//! Half of the room is divided evenly: each key can always fill its own share, and no other key
//! can. The other half is open to all keys. So one key takes at most half of the room and its own
//! share, or all of the room if there is no other key.
//!
//! Counts are in memory and begin with the process. Ids from before belong to no key. Ids of a
//! revoked key count as another key's until their days are dropped.

use std::collections::BTreeMap;

use bandana_shared::identity::Day;

use bandana_edge::auth::{AppShare, TokenName};

/// The remembered ids of each day by app key.
#[derive(Debug, Default)]
pub struct IdShares {
    days: BTreeMap<Day, BTreeMap<TokenName, usize>>,
    totals: BTreeMap<TokenName, usize>,
}

impl IdShares {
    /// Adds ids of a day that came with a key.
    pub fn add(&mut self, day: Day, key: &TokenName, ids: usize) {
        *self.days.entry(day).or_default().entry(key.clone()).or_default() += ids;
        *self.totals.entry(key.clone()).or_default() += ids;
    }

    /// Forgets every day before `oldest`.
    pub fn forget_before(&mut self, oldest: Day) {
        let kept = self.days.split_off(&oldest);
        for (key, ids) in std::mem::replace(&mut self.days, kept).into_values().flatten() {
            if let Some(total) = self.totals.get_mut(&key) {
                *total = total.saturating_sub(ids);
            }
        }
        self.totals.retain(|_, total| *total > 0);
    }

    /// Whether there is room for one more id with this key. `ids` are remembered in all; `of_group`
    /// are those per key that are not counted here yet.
    pub fn has_room(
        &self,
        app: &AppShare,
        (ids, ids_max): (usize, usize),
        of_group: &BTreeMap<TokenName, usize>,
    ) -> bool {
        let others = app.keys.saturating_sub(1);
        let part = ids_max / 2 / app.keys.max(1);
        // The usual case.
        if ids.saturating_add(part.saturating_mul(others)) < ids_max {
            return true;
        }
        let count = |key: &TokenName| {
            let counted = self.totals.get(key).copied().unwrap_or(0);
            counted + of_group.get(key).copied().unwrap_or(0)
        };
        if count(&app.key) < part {
            return ids < ids_max;
        }
        let new = of_group.keys().filter(|key| !self.totals.contains_key(*key));
        let known = self.totals.keys().chain(new).filter(|key| **key != app.key);
        // The keys with the fewest ids: the others may include revoked keys.
        let mut taken: Vec<usize> = known.map(|key| count(key).min(part)).collect();
        taken.sort_unstable();
        let taken = taken.into_iter().take(others).sum();
        let kept = part.saturating_mul(others).saturating_sub(taken);
        ids.saturating_add(kept) < ids_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app(key: &str, keys: usize) -> AppShare {
        AppShare { key: TokenName::new(key).unwrap(), keys }
    }

    /// Fills the room with ids of one key, and returns their number.
    fn fill(shares: &mut IdShares, ids: &mut usize, app: &AppShare) -> usize {
        let mut taken = 0;
        while shares.has_room(app, (*ids, 100), &BTreeMap::new()) {
            shares.add(Day::new(1), &app.key, 1);
            (*ids, taken) = (*ids + 1, taken + 1);
        }
        taken
    }

    #[test]
    fn one_key_leaves_room_for_the_others_and_all_fill_it_together() {
        let (mut shares, mut ids) = (IdShares::default(), 0);
        assert_eq!(fill(&mut shares, &mut ids, &app("greedy", 5)), 60);
        for other in ["a", "b", "c", "d"] {
            assert_eq!(fill(&mut shares, &mut ids, &app(other, 5)), 10, "{other}");
        }
        assert_eq!(ids, 100);
        assert_eq!(fill(&mut shares, &mut ids, &app("greedy", 5)), 0);
        shares.forget_before(Day::new(2));
        let mut ids = 0;
        assert_eq!(fill(&mut shares, &mut ids, &app("alone", 1)), 100);
    }

    #[test]
    fn what_a_group_adds_counts_at_once_and_what_is_nobodys_is_room_that_is_taken() {
        let shares = IdShares::default();
        let (greedy, other) = (app("greedy", 2), app("other", 2));
        let of_group = BTreeMap::from([(greedy.key.clone(), 75)]);
        assert!(!shares.has_room(&greedy, (75, 100), &of_group));
        assert!(shares.has_room(&other, (75, 100), &of_group));
        // An id from before the start.
        assert!(!shares.has_room(&other, (100, 100), &BTreeMap::new()));
        assert!(shares.has_room(&other, (99, 100), &BTreeMap::new()));
    }
}
