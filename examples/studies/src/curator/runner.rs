//! Execution of many trials on several threads.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use bandana_lab::on_threads;
use bandana_lab::outcome::{Summary, paired_ratio};
use bandana_zcdp::Protection;

use super::algorithm::Algorithm;
use super::outcome::{CuratorOutcome, Row};
use super::trial::{self, Course};

/// Settings of a study.
#[derive(Clone, Debug)]
pub struct CuratorStudy {
    /// The algorithms with their values of ρ; ratios are to the first algorithm of the same setting
    /// at the same ρ.
    pub algorithms: Vec<(Algorithm, Vec<f64>)>,
    /// Settings of each trial.
    pub course: Course,
    /// Number of trials of each algorithm at each ρ, and of each algorithm without privacy.
    pub trials: usize,
    /// The seed of all randomness.
    pub seed: u64,
    /// Number of threads.
    pub threads: usize,
}

/// An algorithm at one ρ, or without privacy.
#[derive(Clone, Copy, Debug)]
struct Entry {
    algorithm: Algorithm,
    rho: Option<f64>,
    protection: Protection,
}

/// The finished trials of an entry: number, and regrets at the checkpoints.
type Finished = Vec<(usize, Vec<f64>)>;

impl CuratorStudy {
    /// Total number of trials.
    pub fn trial_count(&self) -> usize {
        self.algorithms.iter().map(|(_, rhos)| (rhos.len() + 1) * self.trials).sum()
    }

    fn entries(&self) -> anyhow::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for (algorithm, rhos) in &self.algorithms {
            let algorithm = *algorithm;
            entries.push(Entry { algorithm, rho: None, protection: Protection::None });
            for rho in rhos {
                let protection = Protection::concentrated(*rho)?;
                entries.push(Entry { algorithm, rho: Some(*rho), protection });
            }
        }
        Ok(entries)
    }

    /// Runs the study. `progress` is called with the number of finished trials. Once `stop` is set,
    /// trials under way are abandoned, and the outcome covers the finished ones.
    ///
    /// # Errors
    /// For settings that an algorithm refuses.
    pub fn run(
        &self,
        stop: &AtomicBool,
        progress: impl Fn(usize) + Sync,
    ) -> anyhow::Result<CuratorOutcome> {
        let entries = self.entries()?;
        let finished: Vec<Mutex<Finished>> = entries.iter().map(|_| Mutex::default()).collect();
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let work = || -> anyhow::Result<()> {
            while let Some(job) = Some(next.fetch_add(1, Ordering::Relaxed))
                .filter(|job| *job < entries.len() * self.trials)
            {
                let (number, place) = (job / entries.len(), job % entries.len());
                let seed = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number as u64;
                let Entry { algorithm, protection, .. } = entries[place];
                let regrets = trial::run(algorithm, protection, &self.course, seed, stop)?;
                let Some(regrets) = regrets else { return Ok(()) };
                let mut finished = finished[place].lock().unwrap_or_else(PoisonError::into_inner);
                finished.push((number, regrets));
                progress(done.fetch_add(1, Ordering::Relaxed) + 1);
            }
            Ok(())
        };
        on_threads(self.threads, work)?;
        let finished = finished.into_iter().map(|cell| {
            let mut trials = cell.into_inner().unwrap_or_else(PoisonError::into_inner);
            trials.sort_by_key(|(number, _)| *number);
            trials
        });
        Ok(CuratorOutcome {
            seed: self.seed,
            beta: self.course.exploration,
            interrupted: stop.load(Ordering::Relaxed),
            rows: self.rows(&entries, &finished.collect::<Vec<_>>()),
        })
    }

    fn rows(&self, entries: &[Entry], finished: &[Finished]) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut open = 0;
        for (place, entry) in entries.iter().enumerate() {
            let Some(rho) = entry.rho else {
                open = place;
                continue;
            };
            let family = |entry: &Entry| std::mem::discriminant(&entry.algorithm.setting());
            let same = |other: &Entry| other.rho == Some(rho) && family(other) == family(entry);
            let first = entries.iter().position(same).unwrap_or(place);
            for (at, horizon) in self.course.checkpoints.iter().enumerate() {
                let pairs = pairs(&finished[place], &finished[open], at);
                if pairs.is_empty() {
                    continue;
                }
                let (own, bare): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
                let prices: Vec<f64> = own.iter().zip(&bare).map(|(a, b)| a - b).collect();
                let (summary, price) = (Summary::of(&own), Summary::of(&prices));
                let (mine, base): (Vec<f64>, Vec<f64>) =
                    self::pairs(&finished[place], &finished[first], at).into_iter().unzip();
                let ratio = paired_ratio(&mine, &base);
                rows.push(Row {
                    algorithm: entry.algorithm.name(),
                    rho,
                    horizon: *horizon,
                    trials: own.len(),
                    mean_regret: summary.mean,
                    ci95: summary.ci95,
                    nonprivate_regret: Summary::of(&bare).mean,
                    price_of_privacy: price.mean,
                    price_ci95: price.ci95,
                    ratio: ratio.map(|(ratio, _)| ratio),
                    ratio_ci95: ratio.map(|(_, half)| half),
                });
            }
        }
        rows
    }
}

/// The regrets at a checkpoint, of the trials that both entries have finished.
fn pairs(one: &Finished, other: &Finished, checkpoint: usize) -> Vec<(f64, f64)> {
    let pair = |(number, regrets): &(usize, Vec<f64>)| {
        let place = other.binary_search_by_key(number, |(number, _)| *number).ok()?;
        Some((regrets[checkpoint], other[place].1[checkpoint]))
    };
    one.iter().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;
    use crate::program::Outcome as _;

    fn study(rhos: &[f64], horizon: u64, trials: usize) -> CuratorStudy {
        let algorithms = Algorithm::value_variants().iter().map(|a| (*a, rhos.to_vec()));
        CuratorStudy {
            algorithms: algorithms.collect(),
            course: Course {
                means: vec![0.75, 0.625, 0.5, 0.375, 0.25],
                exploration: 1.0,
                actions: 10,
                dimension: 3,
                checkpoints: vec![horizon / 10, horizon],
            },
            trials,
            seed: 1,
            threads: 2,
        }
    }

    #[test]
    fn a_seed_fixes_the_result_whatever_the_threads() {
        let two = study(&[0.5], 2_000, 2);
        let one = CuratorStudy { threads: 1, ..two.clone() };
        let stop = AtomicBool::new(false);
        let json = |study: &CuratorStudy| {
            serde_json::to_string(&study.run(&stop, |_| {}).unwrap()).unwrap()
        };
        assert_eq!(json(&two), json(&one));
        assert_ne!(json(&two), json(&CuratorStudy { seed: 2, ..one }));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("curator.svg");
        two.run(&stop, |_| {}).unwrap().draw(&path.to_str().unwrap().parse().unwrap()).unwrap();
        let picture = std::fs::read_to_string(&path).unwrap();
        assert!(picture.contains("no privacy") && picture.contains("lazy-release: regret"));
    }

    #[test]
    fn more_privacy_costs_more_and_much_rho_costs_nothing() {
        let mut study = study(&[0.01, 1e6], 100_000, 32);
        let cheap = [Algorithm::AdacUcb, Algorithm::AdacUcbRemembering, Algorithm::AdacGope];
        study.algorithms.retain(|(algorithm, _)| cheap.contains(algorithm));
        let outcome = study.run(&AtomicBool::new(false), |_| {}).unwrap();
        for rows in outcome.rows.chunks(4) {
            let (dear, free) = (&rows[1], &rows[3]);
            assert!(dear.horizon == 100_000 && free.horizon == 100_000);
            assert!(dear.price_of_privacy > 2.0 * dear.price_ci95, "{dear:?}");
            assert!(free.price_of_privacy.abs() <= 0.1 * free.nonprivate_regret + free.price_ci95);
            // With the same rewards, runs that differ in a noise of next to nothing are all alike.
            assert!(free.price_ci95 < 0.5 * free.ci95, "{free:?}");
        }
        study.algorithms = vec![(Algorithm::AdacUcb, vec![0.0])];
        let refused = study.run(&AtomicBool::new(false), |_| {}).unwrap_err();
        assert!(refused.to_string().starts_with("rho is 0"), "{refused}");
    }
}
