//! The ledger of ρ: whatever servers, clocks and disks do, what has left stays within the caps.

use std::collections::{BTreeMap, BTreeSet};

use bandana_shared::accounting::concentrated::Rho;
use bandana_shared::accounting::nano_nats::NanoNats;
use bandana_shared::identity::{Day, ExperimentId};
use bandana_shared::wire::v1::DisclosureStatus;
use bandana_shared::wire::v1::disclose_request::Played;
use tonic::Status;

use super::rho_file::{self, RHO};
use super::rho_ledger::{Counted, RhoLedger, price_of};
use super::scripted::{Answer, Scripted};
use super::waiting::Waiting;
use super::{
    Agreement, DisclosedReward, Disclosure, Disclosures, RhoBudget, TrustedError, TrustedExperiment,
};
use crate::danger;
use crate::grpc::Transport;
use crate::noise::{NoiseSource as _, SeededNoise};
use crate::storage::{Disk, Fault, StorageError};

type Failure = Box<dyn std::error::Error>;

fn budget(window: f64, days: u32, lifetime: f64) -> Result<RhoBudget, Failure> {
    Ok(RhoBudget::new(Rho::new(window)?, days, Rho::new(lifetime)?)?)
}

fn nano(rho: f64) -> Result<NanoNats, Failure> {
    Ok(price_of(Rho::new(rho)?))
}

/// A reward that has left: its experiment, the price that the server had asked for, and the day.
type Left = (usize, u64, u32);

/// The exact group cost of these rewards in billionths, from their prices alone: for each
/// experiment (√ρ_1 + ... + √ρ_k)², added up. Rounded down, so that a true bound holds.
fn group_cost<'a, I: Iterator<Item = &'a Left>>(left: I) -> f64 {
    let mut roots: BTreeMap<usize, f64> = BTreeMap::new();
    for (experiment, price, _) in left {
        *roots.entry(*experiment).or_default() += (*price as f64).sqrt();
    }
    roots.values().map(|root| root * root).sum::<f64>() * (1.0 - 1e-9)
}

/// A device that discloses at random, on a disk that crashes at random.
struct World {
    disk: Disk,
    budget: RhoBudget,
    chance: SeededNoise,
    waiting: Waiting,
    left: BTreeMap<[u8; 16], Left>,
    names: u64,
}

impl World {
    fn new(seed: u64, budget: RhoBudget) -> Result<Self, Failure> {
        let disk = Disk::new(seed, None);
        let waiting = Waiting::open(Box::new(disk.clone()), budget)?;
        let chance = SeededNoise::new(seed, 3);
        Ok(Self { disk, budget, chance, waiting, left: BTreeMap::new(), names: 0 })
    }

    fn below(&mut self, bound: u64) -> Result<u64, Failure> {
        Ok(self.chance.word()? % bound)
    }

    fn open(&mut self) -> Result<(), Failure> {
        self.disk.fail_at(None);
        self.disk.reboot();
        self.waiting = Waiting::open(Box::new(self.disk.clone()), self.budget)?;
        Ok(())
    }

    /// Keeps a reward or two, and sends what can be sent.
    fn step(&mut self, day: u32) -> Result<(), Failure> {
        let experiment = usize::try_from(self.below(3)?)?;
        let id = ExperimentId::new(["first", "second", "third"][experiment])?;
        // A server that changes its price as it likes.
        let price = NanoNats::new(1 + self.below(40_000_000)? * (1 + self.below(3)?));
        for _ in 0..self.below(3)? {
            self.names += 1;
            let name = SeededNoise::new(7, self.names).unique_name()?;
            let made = Disclosure::restored(id.clone(), name, Played::Arm(0), 0.5, None);
            self.waiting.keep(made.ok_or("no disclosure")?).ok();
        }
        if self.below(6)? == 0 {
            let operation = self.disk.operations() + u32::try_from(self.below(12)?)?;
            let fault = if self.below(2)? == 0 { Fault::Crash } else { Fault::Error };
            self.disk.fail_at(Some((operation, fault)));
        }
        let batch = self.waiting.batch(&id, price, Some(Day::new(day)), &BTreeSet::new());
        for (name, message) in batch.map(|batch| batch.messages).unwrap_or_default() {
            let (_, before, _) = *self.left.get(&name).unwrap_or(&(0, 0, 0));
            let price = before.max(price.get());
            self.left.insert(name, (experiment, price, message.day));
            if self.below(3)? == 0 {
                self.waiting.settle(&name);
            }
        }
        if self.disk.has_crashed() || self.below(8)? == 0 {
            self.open()?;
        }
        Ok(())
    }
}

#[test]
fn whatever_happens_the_group_cost_of_what_has_left_is_within_both_caps() -> Result<(), Failure> {
    let (mut most_of_window, mut most_of_lifetime) = (0.0_f64, 0.0_f64);
    for seed in 0..300 {
        let days = 1 + u32::try_from(seed % 9)?;
        let mut world = World::new(seed, budget(0.5, days, 1.5)?)?;
        let (window, lifetime) = (world.budget.window().get(), world.budget.lifetime().get());
        let mut day = 20_000;
        for _ in 0..60 {
            day += u32::try_from(world.below(3)?)?;
            world.step(day)?;
        }
        let all = group_cost(world.left.values());
        assert!(all <= lifetime as f64, "seed {seed}: {all}");
        most_of_lifetime = most_of_lifetime.max(all / lifetime as f64);
        for first in 20_000..=day {
            let inside = world.left.values().filter(|(.., on)| (first..first + days).contains(on));
            let cost = group_cost(inside);
            assert!(cost <= window as f64, "seed {seed}, day {first}: {cost}");
            most_of_window = most_of_window.max(cost / window as f64);
        }
    }
    // The bounds are met by a world that comes near them.
    assert!(most_of_window > 0.7 && most_of_lifetime > 0.7, "{most_of_window} {most_of_lifetime}");
    Ok(())
}

#[test]
fn a_clock_that_is_set_back_and_forth_never_begins_another_life() -> Result<(), Failure> {
    for seed in 0..200 {
        let mut world = World::new(seed, budget(0.4, 7, 1.0)?)?;
        for _ in 0..60 {
            let day = 20_000 + u32::try_from(world.below(100)?)?;
            world.step(day)?;
        }
        let all = group_cost(world.left.values());
        assert!(all <= 1e9, "seed {seed}: {all}");
    }
    // Set back, nothing leaves the window; it stays for a whole window more.
    let (id, budget, price) = (ExperimentId::new("clock")?, budget(0.5, 7, 10.0)?, nano(0.125)?);
    let mut ledger = RhoLedger::default();
    ledger.hear(Day::new(200));
    ledger.debit(&id, price, &budget)?;
    ledger.debit(&id, price, &budget)?;
    for day in [199, 150, 156] {
        ledger.hear(Day::new(day));
        let refused = ledger.debit(&id, price, &budget).err().ok_or("no refusal")?;
        assert!(refused.passes() && refused.left() == NanoNats::ZERO, "{day}: {refused}");
        assert_eq!(ledger.spent(&budget).window, nano(0.5)?);
    }
    ledger.hear(Day::new(157));
    ledger.debit(&id, price, &budget)?;
    assert_eq!(ledger.spent_on(&id, &budget).rewards, 3);
    Ok(())
}

#[test]
fn k_rewards_cost_k_squared_and_experiments_add_up() -> Result<(), Failure> {
    let unlimited = RhoBudget::UNLIMITED;
    let (first, second) = (ExperimentId::new("first")?, ExperimentId::new("second")?);
    let mut ledger = RhoLedger::default();
    for _ in 0..300 {
        ledger.debit(&first, nano(0.5)?, &unlimited)?;
    }
    assert_eq!(ledger.spent(&unlimited).lifetime, nano(45_000.0)?);
    for _ in 0..10 {
        ledger.debit(&second, NanoNats::new(5_000_000), &unlimited)?;
    }
    assert_eq!(ledger.spent(&unlimited).lifetime, nano(45_000.5)?);
    let before = Counted { day: Day::new(0), price: NanoNats::new(5_000_000) };
    // One dearer reward makes all of its experiment as dear, a cheaper one changes nothing.
    ledger.raise(&second, NanoNats::new(10_000_000), before, &unlimited)?;
    ledger.raise(&second, NanoNats::new(1_000_000), before, &unlimited)?;
    assert_eq!(ledger.spent(&unlimited).lifetime, nano(45_001.0)?);

    // A default budget: 10 of 0.005 in a week, and 15 in a life.
    let budget = RhoBudget::default();
    let mut ledger = RhoLedger::default();
    let mut counts = Vec::new();
    for week in 0..3 {
        ledger.hear(Day::new(20_000 + 7 * week));
        let mut count = 0;
        let refused = loop {
            match ledger.debit(&first, nano(0.005)?, &budget) {
                Ok(_) => count += 1,
                Err(refused) => break refused,
            }
        };
        counts.push((count, refused.passes()));
        assert_eq!(ledger.spent_on(&first, &budget).rewards_in_window, count);
    }
    assert_eq!(counts, [(10, true), (5, false), (0, false)]);
    Ok(())
}

#[test]
fn no_arithmetic_overflows_into_room() -> Result<(), Failure> {
    let id = ExperimentId::new("huge")?;
    let budget = budget(1.8e10, 31, 1.8e10)?;
    let mut ledger = RhoLedger::default();
    // Infinity is the dearest price, and no finite cap has room for it.
    assert!(ledger.debit(&id, nano(f64::INFINITY)?, &budget).is_err());
    ledger.debit(&id, nano(1e6)?, &budget)?;
    for _ in 0..200 {
        ledger.debit(&id, nano(1e6)?, &budget).ok();
    }
    let sent = Counted { day: Day::new(0), price: nano(1e6)? };
    // 134² and not 135² million are within 1.8e10.
    assert_eq!(ledger.spent_on(&id, &budget).rewards, 134);
    assert!(ledger.raise(&id, nano(1.8e10)?, sent, &budget).is_err(), "those that left get dearer");
    // Prices are rounded up and caps down.
    assert_eq!((nano(1e-12)?.get(), nano(0.1)?.get()), (1, 100_000_001));
    Ok(())
}

#[test]
fn golden_bytes() -> Result<(), Failure> {
    let (first, second) = (ExperimentId::new("headlines")?, ExperimentId::new("articles")?);
    let mut ledger = RhoLedger::default();
    let budget = RhoBudget::UNLIMITED;
    ledger.hear(Day::new(20_000));
    ledger.debit(&first, NanoNats::new(500_000_000), &budget)?;
    ledger.hear(Day::new(20_003));
    ledger.debit(&first, NanoNats::new(500_000_000), &budget)?;
    ledger.debit(&second, NanoNats::new(5_000_000), &budget)?;
    let counted = Counted { day: Day::new(20_003), price: NanoNats::new(5_000_000) };
    ledger.debited.insert([7; 16], counted);
    let bytes = rho_file::bytes(&ledger)?;
    let golden =
        (0..GOLDEN.len() / 2).map(|at| u8::from_str_radix(&GOLDEN[2 * at..2 * at + 2], 16));
    assert_eq!(bytes, golden.collect::<Result<Vec<u8>, _>>()?, "{bytes:02x?}");
    assert_eq!(rho_file::read(&bytes)?, ledger);
    for place in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[place] ^= 0x10;
        for bytes in [&damaged[..], &bytes[..place]] {
            let refused = rho_file::read(bytes);
            assert!(matches!(refused, Err(StorageError::Damaged { file: RHO })), "{place}");
        }
    }
    Ok(())
}

/// Version 1.
const GOLDEN: &str = "4244726801009551e79e01fb234e020861727469636c6573fc404b4c000101fb234e01096865\
                      61646c696e6573fc0065cd1d0202fb204e01fb234e01010707070707070707070707070707\
                      0707fb234efc404b4c00";

#[test]
fn a_file_that_is_lost_damaged_or_from_elsewhere_is_no_empty_ledger() -> Result<(), Failure> {
    with_server(async |_, transport| {
        let directory = tempfile::tempdir()?;
        let path = directory.path();
        let open = || Disclosures::open(path, RhoBudget::default());
        let disclosures = open()?;
        let experiment = experiment(&transport, "lost").await?;
        disclose(&experiment, &disclosures).await?;
        drop(disclosures);
        let good = std::fs::read(path.join(RHO))?;

        std::fs::remove_file(path.join(RHO))?;
        assert!(matches!(open(), Err(StorageError::Missing { file: RHO })));
        for bytes in [&b""[..], &good[..good.len() - 1]] {
            std::fs::write(path.join(RHO), bytes)?;
            assert!(matches!(open(), Err(StorageError::Damaged { file: RHO })));
        }
        // The erasure of disclosures is no way round it.
        Disclosures::erase(path)?;
        assert!(open().is_err());
        std::fs::write(path.join(RHO), &good)?;
        let disclosures = open()?;
        assert_eq!(disclosures.spent().rewards, 1);
        // Nor is their withdrawal, nor a second client of the same directory.
        disclosures.withdraw()?;
        assert!(matches!(open(), Err(StorageError::InUse { .. })));
        assert!(matches!(danger::reset_disclosures(path), Err(StorageError::InUse { .. })));
        drop(disclosures);
        assert_eq!(open()?.spent().rewards, 1);
        danger::reset_disclosures(path)?;
        assert_eq!(open()?.spent().rewards, 0);
        Ok(())
    })
}

/// Runs an app beside a server.
fn with_server(
    app: impl AsyncFnOnce(Scripted, Transport) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (server, transport) = Scripted::start()?;
        app(server, transport).await
    })
}

async fn experiment(transport: &Transport, id: &str) -> Result<TrustedExperiment, Failure> {
    let agreement = Agreement::users_disclose_rewards(Rho::new(10.0)?);
    Ok(TrustedExperiment::open(transport.clone(), ExperimentId::new(id)?, agreement).await?)
}

async fn disclose(
    experiment: &TrustedExperiment,
    disclosures: &Disclosures,
) -> Result<(), TrustedError> {
    let disclosure = experiment.disclosure(1, DisclosedReward::new(0.5)?)?;
    experiment.disclose(&disclosure, disclosures).await
}

#[test]
fn no_answer_of_a_server_takes_a_reward_back_and_no_retry_costs_again() -> Result<(), Failure> {
    with_server(async |server, transport| {
        let directory = tempfile::tempdir()?;
        let open = || Disclosures::open(directory.path(), RhoBudget::UNLIMITED);
        let disclosures = open()?;
        let asked = experiment(&transport, "answers").await?;
        let verdicts = [
            Answer::Verdict(DisclosureStatus::Malformed),
            Answer::Verdict(DisclosureStatus::Expired),
            Answer::Verdict(DisclosureStatus::Stopped),
            Answer::Verdict(DisclosureStatus::Paused),
            Answer::Number(99),
            Answer::Error(Status::not_found("no such experiment")),
            Answer::HangUp,
        ];
        let count = verdicts.len();
        server.script().answers.extend(verdicts);
        for _ in 0..count {
            assert!(disclose(&asked, &disclosures).await.is_err());
        }
        let rewards = |disclosures: &Disclosures| disclosures.spent().rewards;
        assert_eq!(rewards(&disclosures), count as u64);

        let disclosure = asked.disclosure(1, DisclosedReward::new(0.5)?)?;
        for _ in 0..4 {
            server.script().answers.push_back(Answer::Verdict(DisclosureStatus::Paused));
            assert!(asked.disclose(&disclosure, &disclosures).await.is_err());
        }
        // It is kept, over a restart, and sent again.
        disclosures.keep(disclosure)?;
        drop(disclosures);
        let disclosures = open()?;
        let agreement = Agreement::users_disclose_rewards(Rho::new(10.0)?);
        server.script().answers.push_back(Answer::Error(Status::unavailable("later")));
        assert_eq!(disclosures.flush(&transport, agreement).await.waiting, 1);
        assert_eq!(disclosures.flush(&transport, agreement).await.sent, 1);
        assert_eq!(rewards(&disclosures), count as u64 + 1);

        // A dearer price under the old name counts for all that were disclosed before.
        let id = ExperimentId::new("answers")?;
        server.script().rho = 5.0;
        let dearer = experiment(&transport, "answers").await?;
        disclose(&dearer, &disclosures).await?;
        let spent = disclosures.spent_on(&id);
        assert_eq!((spent.rewards, spent.price), (count as u64 + 2, nano(5.0)?));
        let k = u32::try_from(spent.rewards)?;
        assert_eq!(spent.lifetime, nano(5.0 * f64::from(k * k))?);
        // And a cheaper one changes nothing of it.
        server.script().rho = 0.001;
        disclose(&experiment(&transport, "answers").await?, &disclosures).await?;
        assert_eq!(disclosures.spent_on(&id).price, nano(5.0)?);
        // Under another name it adds.
        let before = disclosures.spent().lifetime.get();
        disclose(&experiment(&transport, "renamed").await?, &disclosures).await?;
        assert_eq!(disclosures.spent().lifetime.get(), before + nano(0.001)?.get());
        Ok(())
    })
}

#[test]
fn what_the_budget_has_no_room_for_never_leaves() -> Result<(), Failure> {
    with_server(async |server, transport| {
        let directory = tempfile::tempdir()?;
        let agreement = Agreement::users_disclose_rewards(Rho::new(10.0)?);
        // The experiment asks for 0.1: room for one reward in a week, and three in a life.
        let disclosures = Disclosures::open(directory.path(), budget(0.2, 7, 1.0)?)?;
        let asked = experiment(&transport, "room").await?;
        disclose(&asked, &disclosures).await?;
        let refused = disclose(&asked, &disclosures).await.err().ok_or("it has left")?;
        assert!(!refused.is_final());
        assert_eq!(
            refused.to_string(),
            "disclosing reward 2 of this person to the experiment costs 0.3 more of rho, and 0.1 \
             of 0.2 is left for these 7 days; it was not disclosed, and can be when \
             the window is over"
        );
        // Kept, it waits for the window; what never has room is erased.
        disclosures.keep(asked.disclosure(1, DisclosedReward::new(0.5)?)?)?;
        let flushed = disclosures.flush(&transport, agreement).await;
        assert_eq!((flushed.sent, flushed.waiting), (0, 1));
        assert!(matches!(&flushed.held_up[..], [(_, TrustedError::Budget(_))]));
        server.script().rho = 0.3;
        let flushed = disclosures.flush(&transport, agreement).await;
        assert_eq!((flushed.sent, flushed.waiting), (0, 0));
        assert!(matches!(&flushed.dropped[..], [(_, error @ TrustedError::Budget(_))]
            if error.is_final() && error.to_string().contains("never can be")));
        assert_eq!(server.script().heard.len(), 1, "a reward has left all the same");
        assert_eq!(disclosures.spent().rewards, 1, "a refusal cost something");
        Ok(())
    })
}

#[test]
fn a_disk_that_fails_keeps_the_reward_here_and_costs_once() -> Result<(), Failure> {
    with_server(async |server, transport| {
        let disk = Disk::new(1, None);
        let disclosures = Disclosures::of(Box::new(disk.clone()), RhoBudget::default())?;
        let asked = experiment(&transport, "disk").await?;
        let disclosure = asked.disclosure(1, DisclosedReward::new(0.5)?)?;
        for operations in 0..7 {
            disk.fail_at(Some((disk.operations(), Fault::Errors(operations))));
            if asked.disclose(&disclosure, &disclosures).await.is_ok() {
                return Err("the ledger was not written".into());
            }
        }
        assert_eq!(server.script().heard.len(), 0);
        disk.fail_at(None);
        asked.disclose(&disclosure, &disclosures).await?;
        assert_eq!((server.script().heard.len(), disclosures.spent().rewards), (1, 1));
        drop(disclosures);
        disk.reboot();
        let disclosures = Disclosures::of(Box::new(disk), RhoBudget::default())?;
        assert_eq!(disclosures.spent().rewards, 1);
        Ok(())
    })
}

#[test]
fn a_directory_of_an_older_version_opens_and_its_rewards_count_when_they_are_sent()
-> Result<(), Failure> {
    with_server(async |server, transport| {
        let directory = tempfile::tempdir()?;
        let disclosures = Disclosures::open(directory.path(), RhoBudget::default())?;
        let asked = experiment(&transport, "older").await?;
        disclosures.keep(asked.disclosure(1, DisclosedReward::new(0.5)?)?)?;
        drop(disclosures);
        // Older versions had the file of disclosures alone.
        for file in [RHO, "rho.installed"] {
            assert!(!directory.path().join(file).exists(), "{file} without a debit");
        }
        let disclosures = Disclosures::open(directory.path(), RhoBudget::default())?;
        let agreement = Agreement::users_disclose_rewards(Rho::new(0.1)?);
        assert_eq!(disclosures.flush(&transport, agreement).await.sent, 1);
        assert_eq!((server.script().heard.len(), disclosures.spent().rewards), (1, 1));
        Ok(())
    })
}

#[test]
fn what_was_sent_long_ago_never_leaves_at_a_higher_price() -> Result<(), Failure> {
    let (disk, id) = (Disk::new(1, None), ExperimentId::new("long")?);
    let mut waiting = Waiting::open(Box::new(disk), budget(10.0, 31, 10.0)?)?;
    let keep = |waiting: &mut Waiting, number| -> Result<[u8; 16], Failure> {
        let name = SeededNoise::new(7, number).unique_name()?;
        let made = Disclosure::restored(id.clone(), name, Played::Arm(0), 0.5, None);
        waiting.keep(made.ok_or("no disclosure")?)?;
        Ok(name)
    };
    let names = |batch: super::waiting::Batch| -> Vec<_> {
        batch.messages.into_iter().map(|(name, _)| name).collect()
    };
    let (none, day) = (BTreeSet::new(), |day| Some(Day::new(day)));
    let first = keep(&mut waiting, 1)?;
    assert_eq!(names(waiting.batch(&id, nano(0.1)?, day(100), &none)?), [first]);
    // The rewards of its windows are no longer known. A fresh one is dearer, and holds up nothing.
    let second = keep(&mut waiting, 2)?;
    for today in [140, 141] {
        let batch = waiting.batch(&id, nano(0.2)?, day(today), &none)?;
        assert!(batch.held.is_some() && batch.refused.is_none(), "{batch:?}");
        assert_eq!(names(batch), [second]);
    }
    let batch = waiting.batch(&id, nano(0.1)?, day(141), &none)?;
    assert!(names(batch).contains(&first), "at its own price it is sent again");
    assert_eq!(waiting.spent_on(&id).rewards, 2);
    Ok(())
}
