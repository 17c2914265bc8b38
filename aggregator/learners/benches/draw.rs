//! Costs of choosing an arm: from weights, by exact Thompson sampling, and of
//! the weights themselves. Draws use ChaCha8 unless their name says otherwise.
#![allow(missing_docs, reason = "criterion's macros generate undocumented functions")]

use std::error::Error;
use std::hint::black_box;

use bandana_learners::{Evidence, Learner, LearnerInput, ThompsonSampler};
use bandana_shared::channel::Floor;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::tally::Tally;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Beta, Distribution};

/// Numbers of arms: that of the papers' simulations, and one near the limit.
const ARMS: [usize; 2] = [20, 1_000];

/// Arms with about 50 reports each and private means from 0.3 to 0.7.
fn early(arms: usize) -> Vec<Tally> {
    let tally = |arm: usize| {
        let reports = 40 + (arm as u64 * 7) % 21;
        let rate = 0.3 + 0.4 * ((arm * 37) % 100) as f64 / 100.0;
        (0..reports).map(|report| Tally::of_bit((report as f64) < rate * reports as f64)).sum()
    };
    (0..arms).map(tally).collect()
}

/// The reference: a new Beta distribution for every arm and draw.
fn fresh_betas(tallies: &[Tally], rng: &mut ChaCha8Rng) -> Option<usize> {
    let mut best = (None, -1.0);
    for (arm, tally) in tallies.iter().enumerate() {
        let beta = Beta::new(1.0 + tally.ones() as f64, 1.0 + tally.zeros() as f64).ok()?;
        let sample = beta.sample(rng);
        if sample > best.1 {
            best = (Some(arm), sample);
        }
    }
    best.0
}

fn draws(criterion: &mut Criterion) -> Result<(), Box<dyn Error>> {
    let mut group = criterion.benchmark_group("draw");
    for arms in ARMS {
        let tallies = early(arms);
        let weights = Learner::LdpTs.weights(&input(&tallies)?)?;
        let evidence: Vec<Evidence> = tallies.iter().copied().map(Evidence::from).collect();
        let sampler = ThompsonSampler::new(&evidence)?;
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        group.bench_function(BenchmarkId::new("weights", arms), |bencher| {
            bencher.iter(|| weights.draw(rng.next_u32()));
        });
        group.bench_function(BenchmarkId::new("thompson", arms), |bencher| {
            bencher.iter(|| sampler.draw(&mut rng));
        });
        let mut xoshiro = Xoshiro256PlusPlus::seed_from_u64(7);
        group.bench_function(BenchmarkId::new("thompson-xoshiro256++", arms), |bencher| {
            bencher.iter(|| sampler.draw(&mut xoshiro));
        });
        group.bench_function(BenchmarkId::new("fresh-betas", arms), |bencher| {
            bencher.iter(|| fresh_betas(black_box(&tallies), &mut rng));
        });
    }
    group.finish();
    Ok(())
}

/// The learner's input for these tallies at epsilon 1, with all arms active.
fn input(tallies: &[Tally]) -> Result<LearnerInput, Box<dyn Error>> {
    let floor = Floor::for_epsilon(Epsilon::new(1.0)?);
    Ok(LearnerInput::new(tallies, &vec![true; tallies.len()], floor))
}

fn weights(criterion: &mut Criterion) -> Result<(), Box<dyn Error>> {
    let mut group = criterion.benchmark_group("weights");
    for arms in ARMS {
        for (name, tallies) in [("early", early(arms)), ("empty", vec![Tally::EMPTY; arms])] {
            let input = input(&tallies)?;
            for learner in [Learner::LdpTs, Learner::TruncatedTs, Learner::RandAdaKl] {
                let id = BenchmarkId::new(format!("{}/{name}", learner.name()), arms);
                group.bench_function(id, |bencher| {
                    bencher.iter(|| learner.weights(black_box(&input)));
                });
            }
        }
    }
    group.finish();
    Ok(())
}

fn all(criterion: &mut Criterion) {
    let outcome = draws(criterion).and_then(|()| weights(criterion));
    outcome.unwrap_or_else(|error| unreachable!("the bench's own arms: {error}"));
}

criterion_group!(benches, all);
criterion_main!(benches);
