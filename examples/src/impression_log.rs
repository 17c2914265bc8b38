//! A log of impressions, whose rewards simulated users give.
//!
//! The n-th user comes where the n-th impression came: in its segment, at its time. If the user is
//! shown the arm that was logged, the reward is the logged one. For any other arm it is that of one of
//! the [`NEAREST`] impressions of this arm in the segment that came next to it, so that what moves with
//! time moves here too. That is what the arm would have given if, within a segment and at about one
//! time, the logged arms did not depend on who was there.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use bandana_lab::instance::{Instance, RewardDistribution, SimulatedArm};
use bandana_shared::cells::{CellsError, Segmentation, Segmentations};
use bandana_shared::limits::ARMS_MAX;
use rand::{Rng, RngExt as _};
use serde::Deserialize;

/// The number of impressions among which a reward is drawn that the log does not have.
pub const NEAREST: usize = 100;

/// The name of the property that divides users.
pub const SEGMENTATION: &str = "segment";

/// A log of impressions, in the order in which they came.
#[derive(Clone, Debug, PartialEq)]
pub struct ImpressionLog {
    arms: Vec<String>,
    /// The values of the property; a single empty one if the log has none.
    segments: Vec<String>,
    impressions: Vec<Impression>,
    /// For each segment and arm, the places of its impressions.
    places: Vec<Vec<Vec<usize>>>,
}

/// An impression.
#[derive(Clone, Debug, PartialEq)]
struct Impression {
    arm: usize,
    segment: usize,
    reward: f64,
    timestamp: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Row {
    arm: String,
    reward: f64,
    segment: Option<String>,
    timestamp: Option<String>,
}

impl ImpressionLog {
    /// Reads a CSV file with the columns `arm` (a label) and `reward` (0 to 1), and, if there are any,
    /// `segment` and `timestamp`.
    ///
    /// # Errors
    /// With the problem and its line.
    pub fn from_csv(path: &Path) -> anyhow::Result<Self> {
        let file =
            File::open(path).with_context(|| format!("can't read the log {}", path.display()))?;
        Self::read(file).with_context(|| format!("the log {}", path.display()))
    }

    /// Parses the content of such a file.
    ///
    /// # Errors
    /// As [`Self::from_csv`].
    pub fn read(csv: impl io::Read) -> anyhow::Result<Self> {
        let (mut arms, mut segments) = (Names::default(), Names::default());
        let mut impressions = Vec::new();
        let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(csv);
        for (row, line) in reader.deserialize().zip(2_u64..) {
            let row: Row = row.with_context(|| format!("line {line}"))?;
            ensure!(
                (0.0..=1.0).contains(&row.reward),
                "line {line}: the reward {} is not from 0 to 1; subtract the least reward that there \
                 can be, and divide by the width of the range",
                row.reward
            );
            let timestamp = row.timestamp.filter(|text| !text.is_empty());
            impressions.push(Impression {
                arm: arms.number(row.arm),
                segment: segments.number(row.segment.unwrap_or_default()),
                reward: row.reward,
                timestamp,
            });
        }
        let (arms, segments) = (arms.names, segments.names);
        ensure!(!impressions.is_empty(), "it has no impressions");
        ensure!(
            arms.len() <= ARMS_MAX,
            "it has {} arms, and an experiment has at most {ARMS_MAX}",
            arms.len()
        );
        let mut places = vec![vec![Vec::new(); arms.len()]; segments.len()];
        for (place, one) in impressions.iter().enumerate() {
            places[one.segment][one.arm].push(place);
        }
        let log = Self { arms, segments, impressions, places };
        log.check()?;
        Ok(log)
    }

    /// Checks that it tells of every arm in every segment.
    fn check(&self) -> anyhow::Result<()> {
        for (segment, arms) in self.segments.iter().zip(&self.places) {
            let missing = arms.iter().position(Vec::is_empty).map(|arm| &self.arms[arm]);
            if let Some(arm) = missing {
                bail!(
                    "no impression of arm {arm:?} has the segment {segment:?}, so it does not tell \
                     what the arm would have given there; leave the segment or the arm out"
                );
            }
        }
        self.segmentations().context("its segments")?;
        Ok(())
    }

    /// The number of impressions.
    pub fn len(&self) -> usize {
        self.impressions.len()
    }

    /// Whether there are none, which no log that was read has.
    pub fn is_empty(&self) -> bool {
        self.impressions.is_empty()
    }

    /// The arms with the rewards that the log has of them.
    pub fn instance(&self) -> Instance {
        let arm = |(arm, label): (usize, &String)| {
            let mine = self.impressions.iter().filter(|one| one.arm == arm);
            let mut counts: HashMap<u64, u64> = HashMap::new();
            for one in mine {
                *counts.entry(one.reward.to_bits()).or_default() += 1;
            }
            let mut counts: Vec<(f64, u64)> =
                counts.into_iter().map(|(bits, count)| (f64::from_bits(bits), count)).collect();
            counts.sort_by(|a, b| a.0.total_cmp(&b.0));
            SimulatedArm { label: label.clone(), rewards: RewardDistribution::Counted(counts) }
        };
        Instance { arms: self.arms.iter().enumerate().map(arm).collect() }
    }

    /// The property that divides the users, if the log has one with several values.
    ///
    /// # Errors
    /// [`CellsError`] for too many values, or values that can't be shown.
    pub fn segmentations(&self) -> Result<Segmentations, CellsError> {
        if self.segments.len() == 1 {
            return Ok(Segmentations::NONE);
        }
        Segmentation::new(SEGMENTATION, self.segments.iter().cloned()).map(Into::into)
    }

    /// The impression where a user comes; after the last one it begins again.
    fn impression(&self, user: u64) -> usize {
        usize::try_from(user % self.impressions.len() as u64).unwrap_or(0)
    }

    /// The number of segments.
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// The segment of a user.
    pub fn segment(&self, user: u64) -> usize {
        self.impressions[self.impression(user)].segment
    }

    /// The value of a segment.
    pub fn value(&self, segment: usize) -> &str {
        &self.segments[segment]
    }

    /// The time at which a user comes, if the log has it.
    pub fn timestamp(&self, user: u64) -> Option<&str> {
        self.impressions[self.impression(user)].timestamp.as_deref()
    }

    /// The reward that a user gives an arm.
    pub fn reward(&self, user: u64, arm: usize, rng: &mut impl Rng) -> f64 {
        let place = self.impression(user);
        let own = &self.impressions[place];
        if own.arm == arm {
            return own.reward;
        }
        let others = &self.places[own.segment][arm];
        let next = others.partition_point(|other| *other < place);
        let first = next.saturating_sub(NEAREST / 2).min(others.len().saturating_sub(NEAREST));
        let nearest = &others[first..others.len().min(first + NEAREST)];
        self.impressions[nearest[rng.random_range(0..nearest.len())]].reward
    }

    /// The mean reward of each arm in a segment.
    pub fn means(&self, segment: usize) -> Vec<f64> {
        let mean = |places: &Vec<usize>| {
            let sum: f64 = places.iter().map(|place| self.impressions[*place].reward).sum();
            sum / places.len() as f64
        };
        self.places[segment].iter().map(mean).collect()
    }

    /// The mean reward of all impressions.
    pub fn mean(&self) -> f64 {
        let sum: f64 = self.impressions.iter().map(|one| one.reward).sum();
        sum / self.impressions.len() as f64
    }
}

/// Names by the order in which they came.
#[derive(Default)]
struct Names {
    names: Vec<String>,
    numbers: HashMap<String, usize>,
}

impl Names {
    fn number(&mut self, name: String) -> usize {
        let next = self.names.len();
        let number = *self.numbers.entry(name.clone()).or_insert(next);
        if number == next {
            self.names.push(name);
        }
        number
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha20Rng;

    use super::*;

    fn log(csv: &str) -> anyhow::Result<ImpressionLog> {
        ImpressionLog::read(csv.as_bytes())
    }

    #[test]
    fn a_log_has_arms_segments_and_times() {
        let rows = "timestamp,segment,reward,arm\n\
                    Monday,ios,1,blue\nMonday,ios,0, green\nTuesday,web,0.5,green\n,web,0,blue\n";
        let log = log(rows).unwrap();
        assert_eq!(log.instance().means(), [0.5, 0.25]);
        assert_eq!(log.segmentations().unwrap().all()[0].values(), ["ios", "web"]);
        assert_eq!([0, 1, 2, 3, 4].map(|user| log.segment(user)), [0, 0, 1, 1, 0]);
        assert_eq!(log.timestamp(2), Some("Tuesday"));
        assert_eq!(log.timestamp(3), None);
        assert_eq!(log.means(1), [0.0, 0.5]);
        assert!((log.mean() - 0.375).abs() < 1e-12);
    }

    #[test]
    fn rewards_are_the_logged_ones_or_of_the_nearest_impressions_of_the_arm() {
        // Blue gives 0 for a thousand impressions, and 1 for the next thousand.
        let rows = (0..2000).map(|n| format!("{},{}\n", ["blue", "green"][n % 2], n / 1000));
        let log = log(&("arm,reward\n".to_owned() + &rows.collect::<String>())).unwrap();
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let mut of_blue = |users: std::ops::Range<u64>| {
            let count = users.end - users.start;
            let sum: f64 = users.map(|user| log.reward(user, 0, &mut rng)).sum();
            sum / count as f64
        };
        assert!(of_blue(0..900) < 1e-12);
        assert!(of_blue(1100..2000) > 1.0 - 1e-12);
        assert!((0.3..0.7).contains(&of_blue(900..1100)));
    }

    #[test]
    fn what_a_log_does_not_tell_is_refused() {
        for (rows, complaint) in [
            ("arm,reward\na,2\n", "line 2: the reward 2 is not from 0 to 1"),
            ("arm,reward\n", "no impressions"),
            ("arm\na\n", "line 2"),
            (
                "arm,reward,segment\na,1,x\nb,1,y\nb,0,x\n",
                "no impression of arm \"a\" has the segment",
            ),
        ] {
            let error = format!("{:#}", log(rows).unwrap_err());
            assert!(error.contains(complaint), "{error}");
        }
    }
}
