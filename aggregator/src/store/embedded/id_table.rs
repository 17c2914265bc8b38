//! A set of 128-bit keys that are uniform, in ascending order with gaps between.
//!
//! Linear probing in which a key's home grows with the key: all keys stand in order, so a probe ends
//! at the first larger key, and growing copies from front to back. Between 7/9 and 7/8 of the places
//! are in use, where a table that doubles has as few as 7/16.

/// The place of no key. The key zero is kept apart.
const VACANT: u128 = 0;

/// The number of places in the first table.
const PLACES_MIN: usize = 16;

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
            self.places.reserve_exact(PLACES_MIN);
            self.places.push(VACANT);
        }
        self.places.copy_within(place..vacancy, place + 1);
        self.places[place] = key;
        self.len += 1;
        true
    }

    /// Makes an eighth more places.
    fn grow(&mut self) {
        let homes = (self.homes + self.homes / 8).max(PLACES_MIN).next_multiple_of(8);
        let places = Vec::with_capacity(homes + PLACES_MIN);
        let before = std::mem::replace(&mut self.places, places);
        self.homes = homes;
        for key in before.into_iter().filter(|key| *key != VACANT) {
            let home = self.home(key).max(self.places.len());
            self.places.resize(home, VACANT);
            self.places.push(key);
        }
        self.places.resize(homes.max(self.places.len()), VACANT);
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
