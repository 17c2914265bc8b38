//! The exact set of counted uploads, in memory.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::{panic, thread};

use bandana_edge::random;
use bandana_shared::identity::{Day, UploadId};

use super::id_table::IdTable;
use crate::StoreError;

/// The number of shards of a day's set. A full shard is copied when it grows, and one of ten
/// million ids takes less than a millisecond.
const SHARDS: usize = 256;

/// Keys gathered per day and shard while a store is loaded: 32 KiB of them.
const LOAD_BATCH: usize = 2048;

/// Batches that may wait while a store is loaded: at most 4 MiB.
const BATCHES_AHEAD: usize = 128;

/// The ids of the committed uploads of every day in the replay window.
///
/// Exact, not probabilistic: a false "seen before" would lose a report. Takes 18 to 21 bytes of
/// memory for an id. Ids are scrambled by random keys of the process, since clients pick them.
#[derive(Debug)]
pub struct SeenIds {
    days: BTreeMap<Day, DayIds>,
    scrambler: Scrambler,
    ids: usize,
}

/// A permutation of ids by secret keys, after which nobody can pick ids with neighbouring places:
/// three rounds of Feistel's, with folded products as functions of rounds.
#[derive(Clone, Copy, Debug)]
struct Scrambler {
    rounds: [(u64, u64); 3],
}

impl Scrambler {
    fn random() -> Self {
        // Without randomness the set is as exact, and slow for ids that were picked to make it so.
        let word = || random::word().unwrap_or(0x9e37_79b9_7f4a_7c15);
        Self { rounds: std::array::from_fn(|_| (word(), word() | 1)) }
    }

    #[expect(clippy::cast_possible_truncation, reason = "the halves of a number")]
    fn key(self, id: &[u8; 16]) -> u128 {
        let id = u128::from_ne_bytes(*id);
        let (mut high, mut low) = ((id >> 64) as u64, id as u64);
        for (key, factor) in self.rounds {
            let product = u128::from(low ^ key) * u128::from(factor);
            (high, low) = (low, high ^ (product as u64) ^ ((product >> 64) as u64));
        }
        (u128::from(low) << 64) | u128::from(high)
    }
}

#[derive(Debug)]
struct DayIds {
    shards: Vec<IdTable>,
}

/// Keys of one shard of a day.
type Batch = (Day, usize, Vec<u128>);

impl SeenIds {
    /// An empty set.
    pub fn new() -> Self {
        Self { days: BTreeMap::new(), scrambler: Scrambler::random(), ids: 0 }
    }

    /// The ids of groups that `visit` reads. One thread reads them and another one adds them.
    ///
    /// # Errors
    /// As `visit`.
    pub(crate) fn gather(
        visit: impl FnOnce(&mut dyn FnMut(Day, &[[u8; 16]])) -> Result<(), StoreError>,
    ) -> Result<Self, StoreError> {
        let mut seen = Self::new();
        let scrambler = seen.scrambler;
        let (read, batches) = mpsc::sync_channel::<Batch>(BATCHES_AHEAD);
        thread::scope(|scope| {
            let adding = scope.spawn(|| {
                for (day, shard, keys) in batches {
                    seen.insert_batch(day, shard, keys);
                }
            });
            let reading = read_batches(visit, scrambler, &read);
            drop(read);
            adding.join().unwrap_or_else(|panic| panic::resume_unwind(panic));
            reading
        })?;
        Ok(seen)
    }

    fn insert_batch(&mut self, day: Day, shard: usize, mut keys: Vec<u128>) {
        let shard = &mut self.days.entry(day).or_insert_with(DayIds::new).shards[shard];
        let before = shard.len();
        keys.sort_unstable();
        shard.insert_ascending(&keys);
        self.ids += shard.len() - before;
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
        let key = self.scrambler.key(id.as_bytes());
        let day = self.days.entry(day).or_insert_with(DayIds::new);
        let is_new = day.shards[shard_of(key)].insert(key);
        self.ids += usize::from(is_new);
        is_new
    }

    /// Whether an id was added under this day.
    pub fn contains(&self, day: Day, id: UploadId) -> bool {
        let key = self.scrambler.key(id.as_bytes());
        self.days.get(&day).is_some_and(|ids| ids.shards[shard_of(key)].contains(key))
    }

    /// Forgets every day before `oldest`.
    pub fn forget_before(&mut self, oldest: Day) {
        let kept = self.days.split_off(&oldest);
        let dropped = std::mem::replace(&mut self.days, kept);
        self.ids -= dropped.values().map(DayIds::len).sum::<usize>();
    }
}

impl Default for SeenIds {
    fn default() -> Self {
        Self::new()
    }
}

/// Hands over the keys of a store's ids, in batches of one shard: one shard at a time fits the
/// processor's cache, all of them do not.
fn read_batches(
    visit: impl FnOnce(&mut dyn FnMut(Day, &[[u8; 16]])) -> Result<(), StoreError>,
    scrambler: Scrambler,
    read: &mpsc::SyncSender<Batch>,
) -> Result<(), StoreError> {
    // Of each day, since the rows of one group are of several days.
    let mut days: BTreeMap<Day, Vec<Vec<u128>>> = BTreeMap::new();
    // The receiver is there until the sender is gone.
    let hand_over = |day, shard, keys| drop(read.send((day, shard, keys)));
    visit(&mut |day, ids| {
        let shards = days.entry(day).or_insert_with(|| vec![Vec::new(); SHARDS]);
        for id in ids {
            let key = scrambler.key(id);
            let shard = shard_of(key);
            shards[shard].push(key);
            if shards[shard].len() == LOAD_BATCH {
                let keys = std::mem::replace(&mut shards[shard], Vec::with_capacity(LOAD_BATCH));
                hand_over(day, shard, keys);
            }
        }
    })?;
    for (day, shards) in days {
        for (shard, keys) in (0..).zip(shards) {
            hand_over(day, shard, keys);
        }
    }
    Ok(())
}

/// The shard of a key. Its table goes by the highest bits.
fn shard_of(key: u128) -> usize {
    usize::from(key.to_le_bytes()[0])
}

impl DayIds {
    fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| IdTable::default()).collect() }
    }

    fn len(&self) -> usize {
        self.shards.iter().map(IdTable::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GroupRow, SqliteStore};

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

    #[test]
    fn a_store_is_loaded_whole_whatever_the_sizes_of_its_groups() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let mut store = SqliteStore::open(folder.path())?;
        let today = store.oldest_day()?;
        let id =
            |n: u32| UploadId::new(u128::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
        // Groups of one to three days.
        let (mut n, mut all) = (0, BTreeMap::<Day, Vec<UploadId>>::new());
        for (group, size) in [1, 5000, 700, 30_000, 9000, 1, 4000, 12].into_iter().enumerate() {
            let row = |back: u32| {
                let day = Day::new(today.get() + back);
                let mut ids: Vec<_> = (n..n + size).map(id).collect();
                ids.sort_unstable();
                // Ids of one day are not those of another, though they are the same.
                GroupRow { day, ids, deltas: Vec::new() }
            };
            let rows: Vec<GroupRow> = (0..=u32::try_from(group)? % 3).map(row).collect();
            for row in &rows {
                all.entry(row.day).or_default().extend(&row.ids);
            }
            store.commit_group(&rows)?;
            n += size;
        }
        let seen = store.seen_ids()?;
        assert_eq!(seen.len(), all.values().map(Vec::len).sum::<usize>());
        for (day, ids) in &all {
            assert!(ids.iter().all(|id| seen.contains(*day, *id)), "{day}");
        }
        assert!(!seen.contains(today, id(n)) && !seen.contains(Day::new(today.get() + 3), id(0)));
        Ok(())
    }

    #[test]
    fn scrambling_loses_no_id_and_spreads_those_that_were_picked() {
        let scrambler = Scrambler::random();
        // Counters in either half and in both, as an attacker would pick them.
        let picked = (0..4096_u128).flat_map(|n| [n, n << 64, n << 116, n << 40 | n << 104]);
        let picked: std::collections::BTreeSet<u128> = picked.collect();
        let keys = picked.iter().map(|id| scrambler.key(&id.to_ne_bytes()));
        let keys: std::collections::BTreeSet<u128> = keys.collect();
        assert_eq!(keys.len(), picked.len());
        // Of so many uniform keys 64 are expected in each of 256 parts, and 2 to 160 in every one
        // with a probability above 1 - 1e-12.
        for part in [|key: &u128| shard_of(*key), |key: &u128| (key >> 120) as usize] {
            let mut counts = [0; 256];
            for key in &keys {
                counts[part(key)] += 1;
            }
            assert!(counts.iter().all(|count| (2..=160).contains(count)), "{counts:?}");
        }
    }
}
