//! The exhaustive search: every order of events, for a window with more in it than its cap.

use std::collections::HashSet;

use bandana_shared::identity::Day;

use super::tests::{PRICE, SHUFFLED, budget, central};
use super::{Dropped, Ledger};
use crate::budget::Budget;
use crate::debit::Debit;

/// Days of a window in the exhaustive search.
const WINDOW: u32 = 2;

/// What the search is about.
struct Search {
    budget: Budget,
    /// The true days.
    days: u32,
    /// The reports in all.
    reports: u64,
    /// The prices that a report can have.
    prices: &'static [Debit],
    /// Whether the device drops reports that it has handed out.
    drops: bool,
}

/// A device and its server, with reports by how far they have come.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    today: u32,
    device: Device,
    /// The device after the last write that a power cut spares.
    synced: Device,
    /// The price and the day of arrival of each report that is handed out and not settled, if it
    /// has arrived.
    handed_out: Vec<(Debit, Option<u32>)>,
    /// The price and the day of each report that was dropped on its way, and whether a power cut
    /// spares the drop. It arrives by the end of the next day, or never.
    forgotten: Vec<(Debit, u32, bool)>,
    /// The days and prices of all arrivals.
    arrived: Vec<(u32, Debit)>,
    /// What was settled when a fetch was handed out, and the day that a server has told since.
    asked: Option<(Debit, Option<u32>)>,
    /// Whether that fetch, and the one before it, were handed out after the last drop.
    after_drop: [bool; 2],
    /// A fetch that was handed out before that one, and the day that a server has told it.
    older: Older,
}

/// An earlier fetch that may still be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Older {
    None,
    Asked,
    Answered(u32),
}

impl From<Option<u32>> for Older {
    fn from(answer: Option<u32>) -> Self {
        answer.map_or(Self::Asked, Self::Answered)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Device {
    lifetime: Debit,
    undated: Debit,
    days: Vec<(u32, Debit)>,
    today: Option<u32>,
    dropped: Dropped,
    /// The prices of reports that are drawn and not handed out.
    drawn: Vec<Debit>,
}

impl Device {
    fn ledger(&self) -> Ledger {
        let days = self.days.iter().map(|(day, spent)| (Day::new(*day), *spent));
        let sums = (self.lifetime, self.undated);
        Ledger::from_parts(sums, days.collect(), self.today.map(Day::new))
    }

    fn keep(&mut self, ledger: &Ledger) {
        self.lifetime = ledger.lifetime();
        self.undated = ledger.undated();
        self.days = ledger.days().map(|(day, spent)| (day.get(), spent)).collect();
        self.today = ledger.today().map(Day::get);
    }
}

fn sum(prices: impl Iterator<Item = Debit>) -> Debit {
    prices.fold(Debit::ZERO, Debit::saturating_add)
}

impl World {
    fn settled(&self) -> Debit {
        let handed_out = self.handed_out.iter().map(|(price, _)| *price);
        let unsettled = self.device.drawn.iter().copied().chain(handed_out);
        let unsettled = sum(unsettled).saturating_add(self.device.dropped.debits());
        self.device.undated.saturating_sub(unsettled)
    }

    /// The device hears a day, in answer to a fetch that was asked for so many debits.
    fn hear(&mut self, day: u32, (settled, after_drop): (Debit, bool)) {
        // Fetch 0 is the last before the drop.
        self.device.dropped.hear(u64::from(after_drop), Day::new(day));
        let mut ledger = self.device.ledger();
        ledger.hear(Day::new(day), settled.min(self.settled()));
        self.device.keep(&ledger);
    }

    /// All worlds that one step leads to: of time, of the user, of the network, of the device's
    /// clock, which decides whether a true day is accepted, and of its power.
    fn next(&self, search: &Search) -> Vec<Self> {
        let mut next = Vec::new();
        let mut step = |change: &dyn Fn(&mut Self)| {
            let mut world = self.clone();
            change(&mut world);
            let key = |price: Debit| (price.local, price.central, price.delta);
            world.device.drawn.sort_unstable_by_key(|price| key(*price));
            world.handed_out.sort_unstable_by_key(|(price, arrival)| (key(*price), *arrival));
            world.arrived.sort_unstable_by_key(|(day, price)| (*day, key(*price)));
            let today = world.today;
            world.forgotten.retain(|(_, day, _)| today <= day + 1);
            world.forgotten.sort_unstable_by_key(|(price, day, _)| (key(*price), *day));
            next.push(world);
        };
        if self.today < search.days {
            step(&|world| world.today += 1);
        }
        let is_new = self.device.lifetime.local.get() < search.reports * PRICE.local.get();
        for price in search.prices.iter().filter(|_| is_new) {
            let mut ledger = self.device.ledger();
            if ledger.admits(*price, &search.budget).is_ok() {
                ledger.debit(*price);
                step(&|world| {
                    world.device.keep(&ledger);
                    world.device.drawn.push(*price);
                });
            }
        }
        for place in 0..self.device.drawn.len() {
            // What is handed out is synced.
            step(&|world| {
                let price = world.device.drawn.remove(place);
                world.handed_out.push((price, None));
                world.synced = world.device.clone();
                world.forgotten.iter_mut().for_each(|(_, _, is_synced)| *is_synced = true);
            });
        }
        self.arrivals(search.drops, &mut step);
        self.fetches(&mut step);
        self.crashes(&mut step);
        next
    }

    /// The steps of reports that are handed out: they arrive, the device hears of it, or it drops them.
    fn arrivals(&self, drops: bool, step: &mut impl FnMut(&dyn Fn(&mut Self))) {
        for place in 0..self.handed_out.len() {
            match self.handed_out[place] {
                (price, None) => step(&|world| {
                    world.handed_out[place].1 = Some(world.today);
                    world.arrived.push((world.today, price));
                }),
                (_, Some(_)) => step(&|world| {
                    world.handed_out.remove(place);
                }),
            }
            if drops {
                step(&|world| {
                    let (price, arrival) = world.handed_out.remove(place);
                    world.device.dropped.add(price, 0);
                    world.after_drop = [false; 2];
                    if arrival.is_none() {
                        world.forgotten.push((price, world.today, false));
                    }
                });
            }
        }
        for place in 0..self.forgotten.len() {
            step(&|world| {
                let (price, ..) = world.forgotten.remove(place);
                world.arrived.push((world.today, price));
            });
        }
    }

    /// The steps of the device's power.
    fn crashes(&self, step: &mut impl FnMut(&dyn Fn(&mut Self))) {
        let crash = |world: &mut Self| {
            world.device = world.synced.clone();
            world.device.dropped = Dropped::default();
            (world.asked, world.older) = (None, Older::None);
            world.after_drop = [false; 2];
        };
        // A drop that was not synced may be undone. Calls end with the process.
        step(&|world| {
            crash(world);
            let undone = world.forgotten.drain(..).filter(|(_, _, is_synced)| !is_synced);
            world.handed_out.extend(undone.map(|(price, ..)| (price, None)));
        });
        if !self.forgotten.is_empty() {
            step(&|world| {
                crash(world);
                world.forgotten.clear();
            });
        }
    }

    /// The steps of fetches, and of their answers.
    fn fetches(&self, step: &mut impl FnMut(&dyn Fn(&mut Self))) {
        step(&|world| {
            // The answer to the one before may still come.
            let is_only = world.asked.is_none() && world.older == Older::None;
            let before = world.after_drop[usize::from(world.asked.is_none())];
            world.older = world.asked.map_or(world.older, |(_, answer)| answer.into());
            world.asked = Some((if is_only { world.settled() } else { Debit::ZERO }, None));
            world.after_drop = [true, before];
        });
        match self.older {
            Older::Asked => step(&|world| world.older = Older::Answered(world.today)),
            Older::Answered(day) => step(&|world| {
                let settled = world.asked.take().map_or(Debit::ZERO, |(settled, _)| settled);
                world.hear(day, (settled, world.after_drop[1]));
                world.older = Older::None;
            }),
            Older::None => {}
        }
        match self.asked {
            Some((settled, None)) => {
                step(&|world| world.asked = Some((settled, Some(world.today))));
            }
            Some((settled, Some(day))) => step(&|world| {
                world.hear(day, (settled, world.after_drop[0]));
                world.asked = None;
            }),
            None => {}
        }
    }
}

/// Visits all worlds, and returns how many there are and how often each cap was met.
fn search(search: &Search, cap: Debit) -> (usize, [u32; 3]) {
    let device = Device {
        lifetime: Debit::ZERO,
        undated: Debit::ZERO,
        days: Vec::new(),
        today: None,
        dropped: Dropped::default(),
        drawn: Vec::new(),
    };
    let first = World {
        today: 1,
        synced: device.clone(),
        device,
        handed_out: Vec::new(),
        forgotten: Vec::new(),
        arrived: Vec::new(),
        asked: None,
        after_drop: [false; 2],
        older: Older::None,
    };
    let mut seen = HashSet::from([first.clone()]);
    let mut waiting = vec![first];
    let mut full = [0_u32; 3];
    while let Some(world) = waiting.pop() {
        for mut next in world.next(search) {
            for last in 1..=search.days {
                let window = last.saturating_sub(WINDOW - 1)..=last;
                let arrived = next.arrived.iter().filter(|(day, _)| window.contains(day));
                let arrived = sum(arrived.map(|(_, price)| *price));
                let fits = arrived.local <= cap.local
                    && arrived.central <= cap.central
                    && arrived.delta <= cap.delta;
                assert!(fits, "{next:?}\nafter {world:?}");
                full[0] += u32::from(arrived.local == cap.local);
                full[1] += u32::from(arrived.central == cap.central);
                full[2] += u32::from(arrived.delta == cap.delta);
            }
            // Windows that are over tell no two worlds apart.
            let oldest = next.today.saturating_sub(WINDOW - 1);
            next.arrived.retain(|(day, _)| *day >= oldest);
            if seen.insert(next.clone()) {
                waiting.push(next);
            }
        }
    }
    (seen.len(), full)
}

/// With a server that tells the truth, whatever the clock, the network, the user and the battery
/// do, and in whatever order.
#[test]
fn no_order_of_events_lets_more_arrive_in_a_window_than_its_cap() {
    let budget = budget(2.0, WINDOW, 1000.0);
    let cap = PRICE.saturating_add(PRICE);
    let prices = &[PRICE];
    let all = Search { budget, days: 5, reports: 5, prices, drops: false };
    let (worlds, full) = search(&all, cap);
    assert!(worlds > 10_000 && full[0] > 1000, "{worlds} worlds, {full:?}");
}

/// The same where reports are dropped on their way, and arrive by the end of the next day.
#[test]
fn no_order_of_events_and_drops_lets_more_arrive_in_a_window_than_its_cap() {
    let budget = budget(2.0, WINDOW, 1000.0);
    let cap = PRICE.saturating_add(PRICE);
    let all = Search { budget, days: 3, reports: 3, prices: &[PRICE], drops: true };
    let (worlds, full) = search(&all, cap);
    assert!(worlds > 10_000 && full[0] > 1000, "{worlds} worlds, {full:?}");
}

/// The same of all three sums, with reports of both kinds: two that are not shuffled exceed the
/// central cap, two that are shuffled that of δ, and three of any kind the local one.
#[test]
fn no_order_of_events_lets_more_arrive_than_any_cap_of_either_account() {
    let window = central(1.25, 1);
    let budget = budget(2.0, WINDOW, 1000.0).with_central(window, central(1000.0, 1000));
    let cap = PRICE.saturating_add(SHUFFLED);
    let prices = &[PRICE, SHUFFLED];
    let all = Search { budget, days: 4, reports: 3, prices, drops: false };
    let (worlds, full) = search(&all, cap);
    let is_met = full.iter().all(|times| *times > 1000);
    assert!(worlds > 10_000 && is_met, "{worlds} worlds, {full:?}");
}
