//! Costs of a report: time from reward to bit, from reward to the bytes of an
//! upload, time of packing and tallying, and bytes on the wire.
//!
//! Goals are printed beside the figures. None is asserted.

use std::convert::Infallible;
use std::hint::black_box;

use bandana_shared::channel::Floor;
use bandana_shared::curve::{Curvature, Curve, Mechanism};
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::{CellIndex, Day, Digest, UploadId};
use bandana_shared::rewards::RewardRange;
use bandana_shared::upload::{PackedReports, Upload};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha20Rng;

/// Rewards in one round of the bulk benchmarks.
const ROUND: usize = 4096;

/// Arms of the experiment whose uploads are measured.
const ARMS: usize = 20;

#[expect(clippy::print_stderr, reason = "a benchmark tells its goals to whoever runs it")]
fn say(line: &str) {
    eprintln!("{line}");
}

fn random() -> ChaCha20Rng {
    ChaCha20Rng::seed_from_u64(41)
}

fn epsilon() -> Epsilon {
    Epsilon::new(1.0).unwrap_or_else(|_| unreachable!("1 is in range"))
}

fn arm(index: usize) -> CellIndex {
    CellIndex::new(index % ARMS).unwrap_or_else(|_| unreachable!("20 arms are few"))
}

fn upload_id(random: &mut ChaCha20Rng) -> UploadId {
    let mut bytes = [0; 16];
    random.fill_bytes(&mut bytes);
    UploadId::new(bytes)
}

/// The way of one reward through range, curve and channel.
#[derive(Clone, Copy)]
struct Privatizer {
    range: RewardRange,
    curve: Curve,
    floor: Floor,
}

impl Privatizer {
    fn new(mechanism: Mechanism) -> Self {
        Self {
            range: RewardRange::UNIT,
            curve: Curve::new(mechanism, epsilon()),
            floor: Floor::for_epsilon(epsilon()),
        }
    }

    fn bit(&self, reward: f64, random: &mut ChaCha20Rng) -> bool {
        let Ok(level) = self.range.level(reward) else {
            return false;
        };
        let threshold = self.floor.threshold(self.curve.apply(level));
        let Ok(bit) = threshold.draw(|| Ok::<u64, Infallible>(random.next_u64()));
        bit
    }
}

fn mechanisms() -> Vec<Mechanism> {
    let curvature = Curvature::new(0.3).map(Mechanism::Quadratic);
    let quadratic = curvature.unwrap_or(Mechanism::Linear);
    vec![Mechanism::Linear, quadratic, Mechanism::Exponential]
}

fn reward_to_bit(criterion: &mut Criterion) {
    say("reward to bit, 4096 at a time; goal: 6 ns each, which is 167 Melem/s.");
    say("`word` is the floor: one word of ChaCha20 and nothing else.");
    let mut group = criterion.benchmark_group("bit");
    group.throughput(Throughput::Elements(ROUND as u64));
    let mut random = random();
    let rewards: Vec<f64> = (0..ROUND).map(|_| random.random()).collect();
    group.bench_function("word", |bencher| {
        bencher.iter(|| (0..ROUND).fold(0, |sum, _| sum ^ random.next_u64()));
    });
    for mechanism in mechanisms() {
        let privatizer = Privatizer::new(mechanism);
        group.bench_function(mechanism.name(), |bencher| {
            bencher.iter(|| {
                let ones = |reward: &&f64| privatizer.bit(**reward, &mut random);
                black_box(&rewards).iter().filter(ones).count()
            });
        });
    }
    group.finish();
}

fn reward_to_upload(criterion: &mut Criterion) {
    say("reward to the bytes of an upload of one report; goal: 80 ns.");
    let mut random = random();
    let rewards: Vec<f64> = (0..ROUND).map(|_| random.random()).collect();
    let privatizer = Privatizer::new(Mechanism::Linear);
    let mut buffer = Vec::with_capacity(64);
    let mut place = 0;
    let mut group = criterion.benchmark_group("upload of one report");
    group.bench_function("encode_single_into", |bencher| {
        bencher.iter(|| {
            place = (place + 1) % ROUND;
            let bit = privatizer.bit(rewards[place], &mut random);
            let name = (upload_id(&mut random), Digest::new([7; 16]), Day::new(20_000));
            buffer.clear();
            Upload::encode_single_into(name, (arm(place), bit), &mut buffer);
            black_box(buffer.len())
        });
    });
    group.bench_function("encode_into", |bencher| {
        bencher.iter(|| {
            place = (place + 1) % ROUND;
            let bit = privatizer.bit(rewards[place], &mut random);
            let upload = Upload {
                id: upload_id(&mut random),
                digest: Digest::new([7; 16]),
                day: Day::new(20_000),
                reports: PackedReports::single(arm(place), bit),
            };
            buffer.clear();
            upload.encode_into(&mut buffer);
            black_box(buffer.len())
        });
    });
    group.finish();
}

fn reports(count: usize) -> Vec<(CellIndex, bool)> {
    let mut random = random();
    (0..count).map(|_| (arm(random.random_range(0..ARMS)), random.random())).collect()
}

fn packing(criterion: &mut Criterion) {
    let reports = reports(10_000);
    let mut group = criterion.benchmark_group("10000 reports over 20 arms");
    group.throughput(Throughput::Elements(reports.len() as u64));
    group.bench_function("pack", |bencher| {
        bencher.iter_batched(|| reports.clone(), PackedReports::pack, BatchSize::SmallInput);
    });
    if let Ok(packed) = PackedReports::pack(reports.clone()) {
        group.bench_function("tally", |bencher| {
            bencher.iter(|| {
                let tallies = black_box(&packed).tallies();
                tallies.map(|(_, tally)| tally.ones()).sum::<u64>()
            });
        });
    }
    group.finish();
}

fn bytes_on_the_wire(_: &mut Criterion) {
    say("bytes of an upload over 20 arms:");
    for (count, goal) in
        [(1, "goal: 48"), (10, ""), (100, ""), (1000, "goal: 0.35 each"), (10_000, "")]
    {
        let Ok(packed) = PackedReports::pack(reports(count)) else {
            continue;
        };
        let upload = Upload {
            id: UploadId::new([1; 16]),
            digest: Digest::new([2; 16]),
            day: Day::new(20_000),
            reports: packed,
        };
        let bytes = upload.to_bytes().len();
        let each = bytes as f64 / count as f64;
        say(&format!("  {count:>5} reports: {bytes:>5} bytes, {each:.3} each  {goal}"));
    }
}

criterion_group!(benches, reward_to_bit, reward_to_upload, packing, bytes_on_the_wire);
criterion_main!(benches);
