//! A set of 128-bit keys that are uniform, in ascending order with gaps between.
//!
//! Linear probing in which a key's home grows with the key: all keys stand in order, so a probe ends
//! at the first larger key, and growing copies from front to back. Between 7/9 and 7/8 of the places
//! are in use, where a table that doubles has as few as 7/16.

/// The place of no key. The key zero is kept apart.
const VACANT: u128 = 0;

/// The number of homes in the first table.
const HOMES_MIN: usize = 16;

/// Keys are merged with those of a table, rather than added one by one, if they are this share of
/// them or more.
const MERGED_SHARE: usize = 32;

/// The number of places beyond the last home for which there is room: keys at the end that are
/// displaced seldom need more.
const BEYOND: usize = 64;

/// A set of uniform keys.
#[derive(Debug, Default)]
pub(super) struct IdTable {
    /// The places. Beyond the last home are some more, for keys whose homes are taken.
    places: Vec<u128>,
    /// The number of homes.
    homes: usize,
    len: usize,
    has_zero: bool,
}

impl IdTable {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The first place that a key may have: that share of the homes which is the key's of all keys.
    #[expect(clippy::cast_possible_truncation, reason = "the place is below the number of homes")]
    fn home(&self, key: u128) -> usize {
        (((key >> 64) * self.homes as u128) >> 64) as usize
    }

    /// The place of a key, or that of the first larger one or vacancy, before which it belongs.
    fn find(&self, key: u128) -> usize {
        let home = self.home(key);
        let before = self.places[home..].iter().take_while(|at| **at != VACANT && **at < key);
        home + before.count()
    }

    pub(super) fn contains(&self, key: u128) -> bool {
        if key == VACANT {
            return self.has_zero;
        }
        self.homes > 0 && self.places.get(self.find(key)) == Some(&key)
    }

    /// Adds a key; `false` when it was there already.
    pub(super) fn insert(&mut self, key: u128) -> bool {
        if key == VACANT {
            let is_new = !std::mem::replace(&mut self.has_zero, true);
            self.len += usize::from(is_new);
            return is_new;
        }
        if self.len >= self.homes / 8 * 7 {
            self.grow();
        }
        let place = self.find(key);
        if self.places.get(place) == Some(&key) {
            return false;
        }
        let taken = self.places[place..].iter().take_while(|at| **at != VACANT).count();
        let vacancy = place + taken;
        if vacancy == self.places.len() {
            if vacancy == self.places.capacity() {
                self.places.reserve_exact(BEYOND);
            }
            self.places.push(VACANT);
        }
        self.places.copy_within(place..vacancy, place + 1);
        self.places[place] = key;
        self.len += 1;
        true
    }

    /// Adds keys in ascending order. Many are merged with those that are there, in one pass.
    pub(super) fn insert_ascending(&mut self, mut keys: &[u128]) {
        while let [VACANT, rest @ ..] = keys {
            self.insert(VACANT);
            keys = rest;
        }
        if keys.len() < self.len / MERGED_SHARE {
            for key in keys {
                self.insert(*key);
            }
            return;
        }
        let most = self.len + keys.len();
        let homes =
            if most > self.homes / 8 * 7 { (most + most / 4).max(HOMES_MIN) } else { self.homes };
        let before = std::mem::take(&mut self.places);
        let mut known = before.into_iter().filter(|key| *key != VACANT).peekable();
        let mut new = keys.iter().copied().peekable();
        self.arrange(homes, || {
            let next = match (known.peek(), new.peek()) {
                (Some(known), Some(new)) => *known.min(new),
                (known, new) => *known.or(new)?,
            };
            while known.next_if_eq(&next).is_some() || new.next_if_eq(&next).is_some() {}
            Some(next)
        });
    }

    /// Makes an eighth more homes.
    fn grow(&mut self) {
        let homes = (self.homes + self.homes / 8).max(HOMES_MIN);
        let before = std::mem::take(&mut self.places);
        let mut keys = before.into_iter().filter(|key| *key != VACANT);
        self.arrange(homes, || keys.next());
    }

    /// Makes places for this number of homes, and puts these ascending keys there.
    fn arrange(&mut self, homes: usize, mut next: impl FnMut() -> Option<u128>) {
        self.homes = homes.next_multiple_of(8);
        self.places = Vec::with_capacity(self.homes + BEYOND);
        self.len = usize::from(self.has_zero);
        while let Some(key) = next() {
            let home = self.home(key).max(self.places.len());
            self.places.resize(home, VACANT);
            self.places.push(key);
            self.len += 1;
        }
        self.places.resize(self.homes.max(self.places.len()), VACANT);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Keys of which many have the same home, the least and the largest among them.
    fn key() -> impl Strategy<Value = u128> {
        prop_oneof![
            any::<u128>(),
            0..4_u128,
            (0..4_u128).prop_map(|below| u128::MAX - below),
            (0..64_u128).prop_map(|low| (1 << 127) | low),
            (0..64_u128).prop_map(|high| high << 120),
        ]
    }

    proptest! {
        #[test]
        fn a_table_agrees_with_a_plain_set(keys in prop::collection::vec(key(), 0..600)) {
            let (mut table, mut plain) = (IdTable::default(), BTreeSet::new());
            for key in &keys {
                prop_assert_eq!(table.contains(*key), plain.contains(key));
                prop_assert_eq!(table.insert(*key), plain.insert(*key));
                prop_assert!(table.contains(*key));
            }
            prop_assert_eq!(table.len(), plain.len());
            for key in keys.iter().flat_map(|key| [key.wrapping_sub(1), key.wrapping_add(1)]) {
                prop_assert_eq!(table.contains(key), plain.contains(&key));
            }
            let in_order = table.places.iter().filter(|key| **key != VACANT);
            prop_assert!(in_order.eq(plain.iter().filter(|key| **key != VACANT)));
        }
    }

    proptest! {
        #[test]
        fn keys_are_added_together_as_one_by_one(
            parts in prop::collection::vec(prop::collection::btree_set(key(), 0..200), 0..6),
        ) {
            let (mut together, mut single) = (IdTable::default(), IdTable::default());
            for part in parts {
                let mut part: Vec<u128> = part.into_iter().collect();
                for key in &part {
                    single.insert(*key);
                }
                // Some twice.
                part.extend(part.first().copied());
                part.sort_unstable();
                together.insert_ascending(&part);
                prop_assert_eq!(together.len(), single.len());
                prop_assert!(part.iter().all(|key| together.contains(*key)));
            }
            let keys = |table: &IdTable| -> Vec<u128> {
                table.places.iter().copied().filter(|key| *key != VACANT).collect()
            };
            prop_assert_eq!(keys(&together), keys(&single));
        }
    }

    #[test]
    fn a_large_table_takes_less_than_24_bytes_for_a_key() {
        // Weyl's sequence: as even as keys can be.
        let key = |n: u128| n.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835) | 1;
        let mut table = IdTable::default();
        for n in 1..200_000 {
            table.insert(key(n));
            if n > 1_000 {
                let bytes = table.places.capacity() * size_of::<u128>();
                assert!(bytes <= 24 * table.len(), "{bytes} bytes for {n} keys");
            }
        }
    }
}
