//! Tests whether the time from reward to bit depends on the reward. The method is that of Reparaz,
//! Balasch and Verbauwhede, "Dude, is my code constant time?" (DATE 2017): two classes of rewards
//! in random order, the times of each call, and Welch's t-test between the classes, also on the
//! shorter times alone, which interruptions affect least.
//!
//! `cargo bench -p bandana-client --bench timing`, and again with `--profile
//! embedded`: optimised for size, code that was free of branches may have some.
//!
//! A |t| above 4.5 is evidence of a difference; above 10 it is nearly certain. If there is a
//! difference, |t| grows with the number of measurements, so run again, and longer, if a value is
//! suspicious. Two controls show the power of the test: it must catch a privatizer that skips work
//! for low rewards, and must not report one whose classes are the same.
//!
//! All rows use the smallest epsilon, where the bits of both classes are fair coins. The time of a
//! bit may depend on the bit, which is sent anyway.

#![expect(clippy::print_stdout, reason = "a program for people")]

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::{Ordering, fence};
use std::time::Instant;

use bandana_client::{BulkNoise, NoiseSource as _, Privatizer, Reward};
use bandana_shared::alphabet::Alphabet;
use bandana_shared::curve::{Curvature, Level, Mechanism};
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::ExperimentId;
use bandana_shared::rewards::{OutOfRange, RewardKind, RewardRange, Rewards};
use bandana_shared::specification::{Arm, ReleaseTiming, Specification};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

/// Measurements of one row. `cargo test` also runs benchmarks, to check that they work.
const MEASUREMENTS: usize = 1_000_000;
const MEASUREMENTS_OF_A_TEST: usize = 1_000;

/// Calls in one measurement: enough for the clock's resolution, and a divisor of the number of
/// words of a noise key and of a block of its generator.
const CALLS: usize = 32;

/// The |t| that the paper takes as evidence, and the one that its program takes as certain.
const EVIDENT: f64 = 4.5;
const CERTAIN: f64 = 10.0;

/// Index of the crop that leaves out the longest 1%.
const MOST: usize = 66;

/// Fractions of the shortest times that are tested separately, as many as in the paper's program.
const CROPS: usize = 100;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<ExitCode> {
    let measured = std::env::args().any(|argument| argument == "--bench");
    let measurements = if measured { MEASUREMENTS } else { MEASUREMENTS_OF_A_TEST };
    if !measured {
        println!("a trial run: the figures mean nothing\n");
    }
    println!("{measurements} measurements a row; |t| above {EVIDENT} is evidence of a leak\n");
    println!("{:48} {:>9} {:>11} {:>8}", "", "ns a call", "difference", "max |t|");
    let bounded = Rewards::bounded(RewardRange::UNIT);
    let clamped = Rewards::new(RewardKind::Bounded, RewardRange::UNIT, OutOfRange::Clamp, 0.0)?;
    for (name, mechanism, rewards, high) in [
        ("linear", Mechanism::Linear, bounded, 1.0),
        ("linear, clamped", Mechanism::Linear, clamped, 5.0),
        ("quadratic", Mechanism::Quadratic(Curvature::new(-1.0)?), bounded, 1.0),
        ("exponential", Mechanism::Exponential, bounded, 1.0),
        ("randomized response", Mechanism::RandomizedResponse, Rewards::binary(), 1.0),
        ("6 levels", Mechanism::Kary(Alphabet::new(6)?), bounded, 1.0),
    ] {
        let privatizer = privatizer(mechanism, rewards)?;
        let random = match rewards.kind() {
            RewardKind::Binary => Class::RANDOM_BINARY,
            RewardKind::Bounded | RewardKind::Categorical => Class::RANDOM,
        };
        for (classes, [first, second]) in [
            ("low or high", [Class::fixed(0.0), Class::fixed(high)]),
            ("low or random", [Class::fixed(0.0), random]),
            ("high or random", [Class::fixed(high), random]),
        ] {
            let work = |rewards: &[_], noise: &mut _| privatize(&privatizer, rewards, noise);
            let timing = measure(measurements, [first, second], work)?;
            timing.print(&format!("{name}: {classes}"));
        }
    }
    let linear = privatizer(Mechanism::Linear, bounded)?;
    let work = |rewards: &[_], noise: &mut _| privatize(&linear, rewards, noise);
    let without = measure(measurements, [Class::RANDOM, Class::RANDOM], work)?;
    without.print("control without a leak: random or random");
    let with = measure(measurements, [Class::fixed(0.0), Class::fixed(1.0)], leak)?;
    with.print("control with a leak: low or high");
    if measured && with.t_max < CERTAIN {
        println!("\nthe leak was not seen: the figures above mean nothing on this machine");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

fn privatizer(mechanism: Mechanism, rewards: Rewards) -> Outcome<Privatizer> {
    let (id, epsilon) = (ExperimentId::new("timing")?, Epsilon::new(2_f64.powi(-20))?);
    let arms = vec![Arm::new("only")?];
    let timing = ReleaseTiming::IMMEDIATE;
    let specification = Specification::first(id, epsilon, rewards, mechanism, arms, timing)?;
    Ok(Privatizer::new(&specification))
}

/// The privatization of each reward, as in the product.
#[inline(never)]
fn privatize(privatizer: &Privatizer, rewards: &[(Reward, f64)], noise: &mut BulkNoise) -> u32 {
    let bit = |(reward, _): &(Reward, f64)| privatizer.privatize(black_box(reward), noise);
    rewards.iter().map(bit).map(|bit| bit.map_or(0, |bit| u32::from(bit.get().get()))).sum()
}

/// A control that leaks: it curves only the rewards above the middle.
#[inline(never)]
fn leak(rewards: &[(Reward, f64)], noise: &mut BulkNoise) -> u32 {
    let bit = |(_, number): &(Reward, f64)| {
        let level = Level::from_unit(*black_box(number)).map_or(0, Level::get);
        let curved = if level >> 52 > 0 { black_box(level) / black_box(3) * 3 } else { level };
        noise.word().map_or(0, |word| u32::from(word >> 11 < curved))
    };
    rewards.iter().map(bit).sum()
}

/// The source of the rewards of one class: a sum, so that the work before the clock starts is the
/// same for all classes.
#[derive(Clone, Copy)]
struct Class {
    fixed: f64,
    share_of_random: f64,
    share_of_binary: f64,
}

impl Class {
    /// Random, from 0 to 1.
    const RANDOM: Self = Self { fixed: 0.0, share_of_random: 1.0, share_of_binary: 0.0 };

    /// Random, 0 or 1.
    const RANDOM_BINARY: Self = Self { fixed: 0.0, share_of_random: 0.0, share_of_binary: 1.0 };

    fn fixed(reward: f64) -> Self {
        Self { fixed: reward, share_of_random: 0.0, share_of_binary: 0.0 }
    }

    fn reward(self, random: &mut ChaCha8Rng) -> f64 {
        let word = random.next_u64();
        let drawn = (word >> 11) as f64 / (1_u64 << 53) as f64;
        self.fixed + self.share_of_random * drawn + self.share_of_binary * (word & 1) as f64
    }
}

struct Timing {
    ns: f64,
    /// Extra time of the second class, without the longest 1% of all.
    difference: f64,
    t_max: f64,
}

impl Timing {
    fn print(&self, name: &str) {
        let verdict = match self.t_max {
            t if t >= CERTAIN => "leaks",
            t if t >= EVIDENT => "suspicious",
            _ => "",
        };
        let Self { ns, difference, t_max } = self;
        println!("{name:48} {ns:9.1} {difference:11.3} {t_max:8.2}  {verdict}");
    }
}

/// Times `work` on rewards of either class, at random.
fn measure(
    measurements: usize,
    classes: [Class; 2],
    work: impl Fn(&[(Reward, f64)], &mut BulkNoise) -> u32,
) -> Outcome<Timing> {
    let mut random = ChaCha8Rng::seed_from_u64(17);
    let mut noise = BulkNoise::new()?;
    // Both classes are written to the same memory, by the same steps.
    let mut rewards = Vec::with_capacity(CALLS);
    let mut time = |random: &mut ChaCha8Rng| -> Outcome<(usize, f64)> {
        let class = usize::from(random.next_u32() >> 31 == 1);
        let chosen = black_box(classes)[class];
        rewards.clear();
        for _ in 0..CALLS {
            let reward = chosen.reward(random);
            rewards.push((Reward::new(reward)?, reward));
        }
        // Earlier work must not be finished on this clock.
        fence(Ordering::SeqCst);
        let start = now();
        black_box(work(black_box(&rewards), &mut noise));
        Ok((class, start.elapsed().as_secs_f64() * 1e9 / CALLS as f64))
    };
    // The first tenth warms up, and sets the limits of short times.
    let mut first = Vec::new();
    for _ in 0..measurements / 10 {
        first.push(time(&mut random)?.1);
    }
    first.sort_by(f64::total_cmp);
    let limits: Vec<f64> = (1..=CROPS).map(|crop| percentile(&first, share_of(crop))).collect();
    let mut tests = vec![[Moments::default(); 2]; CROPS + 1];
    for _ in 0..measurements {
        let (class, ns) = time(&mut random)?;
        tests[CROPS][class].add(ns);
        for (test, _) in tests.iter_mut().zip(&limits).filter(|(_, limit)| ns <= **limit) {
            test[class].add(ns);
        }
    }
    let t_max = tests.iter().map(|[a, b]| welch(a, b).abs()).fold(0.0, f64::max);
    let [short, long] = &tests[MOST];
    Ok(Timing { ns: percentile(&first, 0.5), difference: long.mean - short.mean, t_max })
}

/// As in the paper's program, half of the crops keep less than the shortest 97%.
fn share_of(crop: usize) -> f64 {
    1.0 - 0.5_f64.powf(10.0 * crop as f64 / CROPS as f64)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a length, rounded down"
)]
fn percentile(sorted: &[f64], share: f64) -> f64 {
    sorted[(sorted.len() as f64 * share) as usize]
}

#[expect(clippy::disallowed_methods, reason = "real time is what this measures")]
fn now() -> Instant {
    Instant::now()
}

/// Number, mean and sum of squared deviations, updated by Welford's method.
#[derive(Clone, Copy, Default)]
struct Moments {
    count: f64,
    mean: f64,
    deviations: f64,
}

impl Moments {
    fn add(&mut self, value: f64) {
        self.count += 1.0;
        let distance = value - self.mean;
        self.mean += distance / self.count;
        self.deviations += distance * (value - self.mean);
    }

    /// Squared standard error of the mean.
    fn error(&self) -> f64 {
        self.deviations / (self.count - 1.0) / self.count
    }
}

/// Welch's t. Zero if there is too little to compare, or no variance.
fn welch(a: &Moments, b: &Moments) -> f64 {
    let error = (a.error() + b.error()).sqrt();
    if a.count > 1.0 && b.count > 1.0 && error > 0.0 { (a.mean - b.mean) / error } else { 0.0 }
}
