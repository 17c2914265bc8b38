//! The sensitivity of several counts together.

use std::collections::{BTreeMap, BTreeSet};

use super::selection::Selection;
use super::universe::Schema;

/// The predicates that hold, a bit for each.
type Holding = Vec<u64>;

/// Maximum number of steps, each over one word of bits or one condition. It depends on the question alone,
/// and is a part of a second.
const STEPS_MAX: usize = 1 << 24;

/// Maximum number of words of bits that are kept at a time: 16 MiB, and as much again for their places.
const WORDS_MAX: usize = 1 << 21;

/// What is left of the work and of the memory for a question.
struct Room {
    steps: usize,
    words: usize,
}

impl Room {
    fn step(&mut self, wanted: usize) -> Option<()> {
        self.steps = self.steps.checked_sub(wanted)?;
        Some(())
    }

    /// Adds to a set what is not there yet.
    fn keep(&mut self, set: &mut BTreeSet<Holding>, one: Holding) -> Option<()> {
        if !set.contains(&one) {
            self.words = self.words.checked_sub(one.len())?;
            set.insert(one);
        }
        Some(())
    }

    /// Gives back the memory of a set.
    fn drop(&mut self, set: &BTreeSet<Holding>) {
        self.words += set.iter().map(Vec::len).sum::<usize>();
    }
}

/// By how many counts a changed row moves all counts together, at most: the sum of the changes of all
/// counts, and also the square of their Euclidean distance, since each changes by at most 1.
///
/// A row with other values leaves the counts of the predicates that hold for it, and enters those of the
/// predicates that hold then. So this is the largest number of predicates that hold for one of two rows and
/// not for the other: 2 for any number of disjoint predicates, and at most the number of predicates. Only
/// the predicates and the declared values decide it, never the rows.
///
/// All combinations of values are looked at, where values that no predicate tells apart are one. If that
/// is too much work, some columns are taken for unknown, and it is twice the largest number of predicates
/// that can hold at once, or the number of predicates.
pub(super) fn of_counts(selections: &[Selection], schema: &Schema) -> u64 {
    let most = selections.len();
    let room = Room { steps: STEPS_MAX, words: WORDS_MAX };
    let bound = distance(selections, schema, room).unwrap_or(most);
    // One predicate that holds for every row would have no sensitivity.
    bound.clamp(1, most.max(1)) as u64
}

fn distance(selections: &[Selection], schema: &Schema, mut room: Room) -> Option<usize> {
    let words = selections.len().div_ceil(64);
    let mut columns = Vec::new();
    let mut is_exact = true;
    for (place, column) in schema.columns().iter().enumerate() {
        if selections.iter().any(|selection| selection.names(place)) {
            match classes(selections, (place, column.values()), &mut room) {
                Some(classes) => columns.push(classes),
                None => is_exact = false,
            }
        }
    }
    columns.sort_by_key(BTreeSet::len);
    let mut columns = columns.into_iter();
    let mut all = columns.next().unwrap_or_else(|| BTreeSet::from([full(selections.len())]));
    for classes in columns {
        let Some(both) = combined(&all, &classes, words, &mut room) else {
            is_exact = false;
            continue;
        };
        room.drop(&all);
        room.drop(&classes);
        all = both;
    }
    let pairs = all.len() * all.len() / 2;
    if is_exact && room.step(pairs * words).is_some() {
        let differing = |one: &Holding, other: &Holding| -> usize {
            one.iter().zip(other).map(|(one, other)| (one ^ other).count_ones() as usize).sum()
        };
        let of_one = |(place, one)| all.iter().take(place).map(move |other| differing(one, other));
        return all.iter().enumerate().flat_map(of_one).max().or(Some(0));
    }
    let held = |one: &Holding| one.iter().map(|word| word.count_ones() as usize).sum::<usize>();
    all.iter().map(held).max().map(|depth| 2 * depth)
}

/// What holds of two columns together: each outcome once. `None`: too much work, or memory.
fn combined(
    some: &BTreeSet<Holding>,
    others: &BTreeSet<Holding>,
    words: usize,
    room: &mut Room,
) -> Option<BTreeSet<Holding>> {
    room.step(some.len() * others.len() * words)?;
    let mut all = BTreeSet::new();
    for one in some {
        for other in others {
            let both = one.iter().zip(other).map(|(one, other)| one & other).collect();
            if room.keep(&mut all, both).is_none() {
                room.drop(&all);
                return None;
            }
        }
    }
    Some(all)
}

/// What the conditions on a column say of each of its values: each outcome once. `None`: too much work.
fn classes(
    selections: &[Selection],
    (place, values): (usize, usize),
    room: &mut Room,
) -> Option<BTreeSet<Holding>> {
    // Where predicates begin or end to hold, and which: between two such values nothing changes.
    let mut changes = BTreeMap::from([(0, (0..selections.len()).collect::<BTreeSet<_>>())]);
    for (number, selection) in selections.iter().enumerate() {
        for (low, high) in selection.ranges(place) {
            room.step(1)?;
            for value in [low as usize, high as usize + 1] {
                changes.entry(value).or_default().insert(number);
            }
        }
    }
    let mut holding = full(selections.len());
    let mut classes = BTreeSet::new();
    for (value, changed) in changes.range(..values) {
        let code = u32::try_from(*value).ok()?;
        for &number in changed {
            let (selection, bit) = (selections.get(number)?, 1 << (number % 64));
            room.step(selection.ranges(place).count() + 1)?;
            let word = holding.get_mut(number / 64)?;
            *word = if selection.holds_of(place, code) { *word | bit } else { *word & !bit };
        }
        room.step(holding.len())?;
        if room.keep(&mut classes, holding.clone()).is_none() {
            room.drop(&classes);
            return None;
        }
    }
    Some(classes)
}

/// All of `number` predicates.
fn full(number: usize) -> Holding {
    let word = |word: usize| match number - 64 * word {
        64.. => u64::MAX,
        rest => (1 << rest) - 1,
    };
    (0..number.div_ceil(64)).map(word).collect()
}

#[cfg(test)]
mod tests {
    use rand::RngExt as _;
    use rand_chacha::ChaCha20Rng;
    use rand_chacha::rand_core::SeedableRng as _;

    use super::*;

    fn parsed(predicates: &[&str], schema: &Schema) -> Vec<Selection> {
        predicates.iter().map(|text| Selection::parse(text, schema).unwrap()).collect()
    }

    #[test]
    fn disjoint_predicates_cost_as_two() {
        let schema = Schema::parse(&["age:18..99", "city:Bonn|Ulm|Kiel", "ill:no|yes"]).unwrap();
        let of = |predicates: &[&str]| of_counts(&parsed(predicates, &schema), &schema);
        let bins = ["age=18..29", "age=30..39", "age=40..49", "age=50..59", "age=60..99"];
        assert_eq!(of(&bins), 2);
        assert_eq!(of(&bins[..1]), 1);
        assert_eq!(of(&["*"]), 1);
        // Nested: a row of 20 is in all, one of 70 in none.
        assert_eq!(of(&["age=18..29", "age=18..39", "age=18..49"]), 3);
        // A table of two columns, written as predicates.
        let table: Vec<String> = bins
            .iter()
            .flat_map(|age| ["Bonn", "Ulm", "Kiel"].map(|city| format!("{age},city={city}")))
            .collect();
        let table: Vec<&str> = table.iter().map(String::as_str).collect();
        assert_eq!(of(&table), 2);
        // Bins, and the sum of them all, which a row never leaves.
        assert_eq!(of(&[&bins[..], &["*"]].concat()), 2);
        assert_eq!(of(&[&bins[..], &["ill=yes"]].concat()), 3);
        assert_eq!(of(&["ill=yes", "city=Bonn", "age=18"]), 3);
    }

    #[test]
    fn it_is_what_all_pairs_of_rows_show() {
        let schema = Schema::parse(&["a:0..4", "b:x|y|z", "c:0..1"]).unwrap();
        let universe = schema.universe::<&str>(&[]).unwrap();
        let mut rng = ChaCha20Rng::seed_from_u64(42);
        for _ in 0..300 {
            let condition = |rng: &mut ChaCha20Rng| match rng.random_range(0..4) {
                0 => {
                    let low = rng.random_range(0..5);
                    format!("a={low}..{}", rng.random_range(low..5))
                }
                1 => format!("b={}", ["x", "y", "z", "x|z"][rng.random_range(0..4)]),
                2 => format!("c={}", rng.random_range(0..2)),
                _ => format!("a={}|{}", rng.random_range(0..5), rng.random_range(0..5)),
            };
            let texts: Vec<String> = (0..rng.random_range(1..7))
                .map(|_| format!("{},{}", condition(&mut rng), condition(&mut rng)))
                .collect();
            let sets: Vec<_> = texts.iter().map(|text| universe.select(text).unwrap()).collect();
            let differing = |one: usize, other: usize| {
                sets.iter().filter(|set| set.contains(one) != set.contains(other)).count()
            };
            let cells = 0..universe.cells();
            let pairs = cells.clone().flat_map(|one| cells.clone().map(move |two| (one, two)));
            let most = pairs.map(|(one, two)| differing(one, two)).max().unwrap_or(0);
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let selections = parsed(&texts, &schema);
            assert_eq!(of_counts(&selections, &schema), most.max(1) as u64, "{texts:?}");
            // With less work it may be more, never less.
            for (steps, words) in
                [(0, 99), (10, 99), (40, 99), (100, 99), (300, 99), (999, 5), (999, 9)]
            {
                let bound = distance(&selections, &schema, Room { steps, words });
                assert!(bound.is_none_or(|bound| bound >= most), "{texts:?}: {bound:?}");
            }
        }
    }

    #[test]
    fn many_predicates_are_no_long_work() {
        let schema = Schema::parse(&["a:0..65535", "b:0..65535"]).unwrap();
        let single: Vec<String> = (0..10_000).map(|i| format!("a={i}")).collect();
        let single: Vec<&str> = single.iter().map(String::as_str).collect();
        assert_eq!(of_counts(&parsed(&single, &schema), &schema), 2);
        // The bits of two columns of 5,000 values each would be 25 million combinations.
        let other: Vec<String> = (0..5000).map(|i| format!("b={i}")).collect();
        let both: Vec<&str> =
            single[..5000].iter().copied().chain(other.iter().map(String::as_str)).collect();
        let bound = of_counts(&parsed(&both, &schema), &schema);
        assert!((4..=10_000).contains(&bound), "{bound}");
    }

    #[test]
    fn predicates_that_tell_all_values_apart_take_little_memory() {
        // Each of 60 predicates has half of the values of both columns: a bit of a number of 8,000.
        let schema = Schema::parse(&["a:0..7999", "b:0..7999"]).unwrap();
        let half = |bit: u32| {
            let has = |value: &u32| value.wrapping_mul(2_654_435_761) >> (31 - bit % 30) & 1 == 1;
            (0..8000).filter(has).map(|value| value.to_string()).collect::<Vec<_>>().join("|")
        };
        let texts: Vec<String> = (0..60).map(|bit| format!("a={0},b={0}", half(bit))).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let selections = parsed(&texts, &schema);
        let mut room = Room { steps: usize::MAX, words: WORDS_MAX };
        let classes = classes(&selections, (0, 8000), &mut room).unwrap();
        assert!(classes.len() > 7000);
        assert!(combined(&classes, &classes, 1, &mut room).is_none(), "64 million of them");
        assert_eq!(room.words, WORDS_MAX - classes.len(), "all is given back");
        assert!(of_counts(&selections, &schema) <= 60);
    }
}
