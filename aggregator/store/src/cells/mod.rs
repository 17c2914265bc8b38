//! Store cells: the databases that share a store's uploads, and which of them an upload belongs to.
//!
//! The word "cell" alone means what reports are counted by, so this code says "store cell".

mod error;

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bandana_shared::identity::{Day, UploadId};
use sha2::{Digest as _, Sha256};

pub use error::CellsError;

/// Most store cells of a store.
pub const STORE_CELLS_MAX: usize = 64;

/// The prefix of the hash that selects a store cell. A change of the hash needs another prefix, and
/// generations that say which one they use.
pub(crate) const HASH_PREFIX: &str = "bandana store cell 1";

/// The number of a store cell: its place in the setting `cells`, from 1. It never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreCell(NonZeroU32);

impl StoreCell {
    /// The store cell with this number. None for 0.
    pub const fn new(number: u32) -> Option<Self> {
        match NonZeroU32::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// The store cell at this index of the setting `cells`.
    pub(crate) fn at(index: usize) -> Self {
        let number = u32::try_from(index).unwrap_or(u32::MAX).saturating_add(1);
        Self(NonZeroU32::new(number).unwrap_or(NonZeroU32::MAX))
    }

    /// Its index in the setting `cells`.
    pub fn index(self) -> usize {
        usize::try_from(self.0.get() - 1).unwrap_or(usize::MAX)
    }

    /// The number.
    pub fn get(self) -> u32 {
        self.0.get()
    }
}

impl fmt::Display for StoreCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The holder of an upload's id and counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The home database.
    Home,
    /// A store cell.
    Cell(StoreCell),
}

/// The store cells that share the ids of the days from one on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    /// The first day.
    pub from: Day,
    /// The store cells, in ascending order; at least one.
    pub cells: Vec<StoreCell>,
}

/// The generations of a store. Days before the first one are at home.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes {
    generations: Vec<Generation>,
    /// The last day for which these routes are final. None: the store has no cells.
    until: Option<Day>,
    /// The first day of a generation that the home has lost. From then on nobody knows where uploads
    /// belong.
    lost: Option<Day>,
}

impl Routes {
    /// The routes of these generations, ordered by day, that are final up to `until`.
    pub fn new(generations: Vec<Generation>, until: Option<Day>) -> Self {
        Self { generations, until, lost: None }
    }

    /// These routes at a home that has `generations` now. None: it has all that it had.
    pub fn at_home_with(&self, generations: &[Generation]) -> Option<Self> {
        let lost = self.generations.iter().find(|known| !generations.contains(known))?.from;
        Some(Self { lost: Some(lost), ..self.clone() })
    }

    /// The first day of a generation that the home has lost.
    pub fn lost(&self) -> Option<Day> {
        self.lost
    }

    /// The generations, ordered by day.
    pub fn generations(&self) -> &[Generation] {
        &self.generations
    }

    /// The last day for which the routes are final.
    pub fn until(&self) -> Option<Day> {
        self.until
    }

    /// The generation of a day. None: the uploads of the day are at home.
    pub fn generation(&self, day: Day) -> Option<&Generation> {
        self.generations.iter().rev().find(|generation| generation.from <= day)
    }

    /// The holder of an upload.
    pub fn holder(&self, day: Day, id: UploadId) -> Holder {
        let Some(generation) = self.generation(day) else { return Holder::Home };
        match generation.cells.get(share(id, generation.cells.len())) {
            Some(cell) => Holder::Cell(*cell),
            None => Holder::Home,
        }
    }
}

/// The routes of a running server, which change while it runs.
#[derive(Debug, Default)]
pub struct Routing(ArcSwap<Routes>);

impl Routing {
    /// The present routes.
    pub fn get(&self) -> Arc<Routes> {
        self.0.load_full()
    }

    /// Follows these routes from now on.
    pub fn set(&self, routes: Routes) {
        self.0.store(Arc::new(routes));
    }

    /// The holder that decides about an upload on the day `today`. None: another generation may begin
    /// on the upload's day, or has begun and was lost.
    pub fn holder(&self, day: Day, id: UploadId, today: Day) -> Option<Holder> {
        let routes = self.0.load();
        if routes.lost.is_some_and(|lost| day >= lost) {
            return None;
        }
        match routes.until {
            // The day has not come, which each holder says.
            Some(until) if day > until && today <= until => Some(routes.holder(until, id)),
            Some(until) if day > until => None,
            _ => Some(routes.holder(day, id)),
        }
    }
}

/// The share of an id when ids are split into this many shares: the first four bytes of a SHA-256,
/// as a fraction of 2^32.
pub(crate) fn share(id: UploadId, shares: usize) -> usize {
    let hash = Sha256::new().chain_update(HASH_PREFIX).chain_update(id.as_bytes()).finalize();
    let first = u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]);
    let shares = u64::try_from(shares).unwrap_or(u64::MAX);
    usize::try_from((u64::from(first) * shares) >> 32).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(numbers: &[u32]) -> Vec<StoreCell> {
        numbers.iter().filter_map(|number| StoreCell::new(*number)).collect()
    }

    /// The vectors of docs/formats.md: an id, and its share of 2, 3, 4, 8 and 64.
    #[test]
    fn the_hash_is_the_documented_one() {
        let counting: [u8; 16] = std::array::from_fn(|index| u8::try_from(index).unwrap());
        for (id, expected) in [
            ([0; 16], [1, 2, 3, 7, 63]),
            ([255; 16], [0, 1, 1, 3, 30]),
            (counting, [1, 2, 2, 5, 43]),
        ] {
            let found = [2, 3, 4, 8, 64].map(|shares| share(UploadId::new(id), shares));
            assert_eq!(found, expected, "{id:?}");
        }
    }

    #[test]
    fn shares_are_equal() {
        let mut counts = [0_i32; 8];
        for number in 0..80_000_u128 {
            counts[share(UploadId::new(number.to_be_bytes()), 8)] += 1;
        }
        // Four standard deviations of a binomial.
        assert!(counts.iter().all(|count| (count - 10_000).abs() < 4 * 94), "{counts:?}");
    }

    fn generation(from: u32, numbers: &[u32]) -> Generation {
        Generation { from: Day::new(from), cells: cells(numbers) }
    }

    #[test]
    fn from_a_generation_on_that_the_home_has_lost_nothing_is_routed() {
        let generations = vec![generation(0, &[1, 2]), generation(20, &[1, 2, 3])];
        let known = Routes::new(generations.clone(), Some(Day::new(21)));
        assert_eq!(known.at_home_with(&generations), None);
        let lost = known.at_home_with(&generations[..1]).unwrap();
        assert_eq!(lost.lost(), Some(Day::new(20)));
        assert!(lost.at_home_with(&generations).is_none(), "it may be found again");
        let (routing, id) = (Routing::default(), UploadId::new([7; 16]));
        routing.set(lost);
        let routed = |day| routing.holder(Day::new(day), id, Day::new(20)).is_some();
        assert_eq!([19, 20, 21, 22].map(routed), [true, false, false, false]);
    }

    #[test]
    fn each_day_stays_in_its_generation() {
        let routes = Routes::new(
            vec![generation(10, &[1, 2]), generation(20, &[1, 2, 3, 4]), generation(30, &[2])],
            None,
        );
        let ids = || (0..100_u128).map(|number| UploadId::new(number.to_be_bytes()));
        let holders = |day| {
            let mut holders: Vec<u32> = ids()
                .map(|id| match routes.holder(Day::new(day), id) {
                    Holder::Home => 0,
                    Holder::Cell(cell) => cell.get(),
                })
                .collect();
            holders.sort_unstable();
            holders.dedup();
            holders
        };
        assert_eq!(holders(9), [0]);
        assert_eq!(holders(10), [1, 2]);
        assert_eq!(holders(19), [1, 2]);
        assert_eq!(holders(20), [1, 2, 3, 4]);
        assert_eq!(holders(31), [2]);
    }
}
