//! The exact set of counted uploads, in memory.

use std::collections::BTreeMap;
use std::hash::BuildHasher as _;

use bandana_shared::identity::{Day, UploadId};
use foldhash::quality::RandomState;
use hashbrown::HashTable;

use super::SqliteStore;
use crate::store::StoreError;

/// The number of shards of a day's set. A full hash table doubles its size, and one shard of ten
/// million ids moves in about a millisecond.
const SHARDS: usize = 256;

/// Ids gathered per shard while a store is loaded: 64 KiB of them.
const LOAD_BATCH: usize = 2048;

/// An id with its hash.
type Hashed = (u64, UploadId);

/// The ids of the committed uploads of every day in the replay window.
///
/// Exact, not probabilistic: a false "seen before" would lose a report. Takes
/// 18 to 40 bytes of memory for an id. Keyed with a random number per process,
/// since clients pick the ids.
#[derive(Debug, Default)]
pub struct SeenIds {
    days: BTreeMap<Day, DayIds>,
    hasher: RandomState,
    ids: usize,
}

#[derive(Debug)]
struct DayIds {
    shards: Vec<HashTable<UploadId>>,
}

impl SeenIds {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// The ids of every upload in the store's replay window.
    ///
    /// # Errors
    /// [`StoreError`] when the store can't be read.
    pub fn load(store: &SqliteStore) -> Result<Self, StoreError> {
        let mut seen = Self::new();
        // One shard at a time fits the processor's cache; all of them do not.
        let mut shards = vec![Vec::new(); SHARDS];
        let mut day = Day::new(0);
        store.visit_ids(|group_day, ids| {
            if group_day != day {
                seen.insert_batches(day, &mut shards);
                day = group_day;
            }
            for id in ids {
                let hash = seen.hasher.hash_one(id);
                let batch: &mut Vec<Hashed> = &mut shards[index(hash)];
                batch.push((hash, UploadId::new(*id)));
                if batch.len() == LOAD_BATCH {
                    seen.insert_batch(day, batch);
                }
            }
        })?;
        seen.insert_batches(day, &mut shards);
        Ok(seen)
    }

    fn insert_batches(&mut self, day: Day, batches: &mut [Vec<Hashed>]) {
        for batch in batches {
            self.insert_batch(day, batch);
        }
    }

    /// Adds the ids of one shard, and empties `batch`.
    fn insert_batch(&mut self, day: Day, batch: &mut Vec<Hashed>) {
        for (hash, id) in batch.drain(..) {
            self.insert_hashed(day, hash, id);
        }
    }

    /// The newest day with ids.
    pub fn newest_day(&self) -> Option<Day> {
        let with_ids = |(day, ids): (&Day, &DayIds)| (ids.len() > 0).then_some(*day);
        self.days.iter().rev().find_map(with_ids)
    }

    /// The number of ids of all days.
    pub fn len(&self) -> usize {
        self.ids
    }

    /// Whether there are no ids.
    pub fn is_empty(&self) -> bool {
        self.ids == 0
    }

    /// Adds an id; `false` when it was there already.
    pub fn insert(&mut self, day: Day, id: UploadId) -> bool {
        self.insert_hashed(day, self.hasher.hash_one(id.as_bytes()), id)
    }

    fn insert_hashed(&mut self, day: Day, hash: u64, id: UploadId) -> bool {
        let shard = self.days.entry(day).or_insert_with(DayIds::new).shard(hash);
        if shard.find(hash, |known| *known == id).is_some() {
            return false;
        }
        let hasher = &self.hasher;
        shard.insert_unique(hash, id, |id| hasher.hash_one(id.as_bytes()));
        self.ids += 1;
        true
    }

    /// Whether an id was added under this day.
    pub fn contains(&self, day: Day, id: UploadId) -> bool {
        let hash = self.hasher.hash_one(id.as_bytes());
        let known =
            |ids: &DayIds| ids.shards[index(hash)].find(hash, |known| *known == id).is_some();
        self.days.get(&day).is_some_and(known)
    }

    /// Forgets every day before `oldest`.
    pub fn forget_before(&mut self, oldest: Day) {
        let kept = self.days.split_off(&oldest);
        let dropped = std::mem::replace(&mut self.days, kept);
        self.ids -= dropped.values().map(DayIds::len).sum::<usize>();
    }
}

/// The shard of a hash. The table itself uses the lowest and the highest bits.
fn index(hash: u64) -> usize {
    usize::from(hash.to_le_bytes()[5])
}

impl DayIds {
    fn new() -> Self {
        Self { shards: vec![HashTable::new(); SHARDS] }
    }

    fn shard(&mut self, hash: u64) -> &mut HashTable<UploadId> {
        &mut self.shards[index(hash)]
    }

    fn len(&self) -> usize {
        self.shards.iter().map(HashTable::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_counts_once_a_day() {
        let mut seen = SeenIds::new();
        let id = UploadId::new([7; 16]);
        assert!(seen.insert(Day::new(3), id));
        assert!(!seen.insert(Day::new(3), id));
        assert!(seen.insert(Day::new(4), id));
        assert_eq!(seen.len(), 2);
        seen.forget_before(Day::new(4));
        assert!(!seen.contains(Day::new(3), id) && seen.contains(Day::new(4), id));
        assert_eq!(seen.len(), 1);
    }

    #[test]
    fn many_ids_agree_with_a_plain_set() {
        let mut seen = SeenIds::new();
        let id = |n: u32| UploadId::new(u128::from(n).to_be_bytes());
        let day = Day::new(1);
        for n in (0..20_000).step_by(2) {
            assert!(seen.insert(day, id(n)));
        }
        assert_eq!(seen.len(), 10_000);
        assert!((0..20_000).all(|n| seen.contains(day, id(n)) == (n % 2 == 0)));
    }
}
