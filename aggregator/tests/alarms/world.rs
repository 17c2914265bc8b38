//! Users of an experiment over months, hour by hour, all from a seed.
//!
//! More users come by day than by night, and fewer at weekends. Most devices have the current
//! hour's policy, some have one of up to three days ago. Most report within six hours after the
//! attribution window, some within five days, and three in a hundred up to fifteen days later,
//! which is later than alarms assume.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use bandana_aggregator::alarms::{
    AlarmBaseline, AlarmName, AlarmQuery, Arrival, ExperimentMonitor,
};
use bandana_learners::guardrails::Guardrails;
use bandana_learners::window::{Days, Memory};
use bandana_learners::{Learner, LearnerInput};
use bandana_shared::alphabet::Alphabet;
use bandana_shared::channel::{Channel, Floor};
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::Day;
use bandana_shared::tally::Tally;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// The reason why a simulation failed.
pub(crate) type Failure = Box<dyn std::error::Error>;

const HOUR: Duration = Duration::from_hours(1);

/// An experiment and its users.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) learner: Learner,
    pub(crate) guardrails: Guardrails,
    pub(crate) memory: Memory,
    /// Share of the arms that the server draws.
    pub(crate) server_draws: f64,
    pub(crate) users_per_hour: f64,
    /// Mean rewards of the arms, initially and after a change on some day.
    pub(crate) means: [f64; 3],
    pub(crate) later: Option<(u32, [f64; 3])>,
    /// Hours of the addition of an arm, of the retirement of one, and of a restart of the server.
    pub(crate) events: Option<[u32; 3]>,
    /// The hour of the first user.
    pub(crate) launch: u32,
    /// Hours in which the experiment is paused. Devices choose from their last policy, and keep
    /// their reports.
    pub(crate) pause: Range<u32>,
    pub(crate) defect: Defect,
    pub(crate) days: u32,
    /// Reports of an arm that arrive together.
    pub(crate) batch: usize,
    /// Whether devices report the arm that they keep in one period after the other.
    pub(crate) keeps_arms: bool,
}

/// The defect, from [`DEFECT_DAY`] on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Defect {
    Nothing,
    /// This share of the reports of the second arm is lost.
    Lost(f64),
    /// All reports are lost.
    Silent,
    /// This number of unsolicited reports per hour, distributed as the policy.
    Unsolicited(usize),
}

pub(crate) const DEFECT_DAY: u32 = 30;

/// The state of the simulation at some hour.
struct State {
    rng: ChaCha8Rng,
    channel: Channel,
    now: u32,
    policies: Vec<Vec<f64>>,
    /// Arms of the reports that arrive in each hour.
    coming: Vec<Vec<usize>>,
    days: Days,
    tallies: Vec<Tally>,
    active: Vec<bool>,
    /// Reports of each arm that wait for their batch.
    waiting: Vec<usize>,
    selections: u64,
    vigil: ExperimentMonitor,
}

impl World {
    /// The first time of each alarm, in days.
    pub(crate) fn run(&self, seed: u64) -> Result<BTreeMap<AlarmName, f64>, Failure> {
        let mut state = self.begin(seed)?;
        let mut rung = BTreeMap::new();
        for hour in 0..self.days * 24 {
            state.now = hour;
            self.happen(&mut state);
            let shares = self.policy(&state)?;
            state.vigil.serve(time(hour), &shares);
            state.policies.push(shares);
            self.choose(&mut state);
            let is_running = !self.pause.contains(&hour);
            if !is_running {
                self.keep(&mut state);
            }
            let mut arrived = std::mem::take(&mut state.coming[hour as usize]).into_iter();
            let part = arrived.len().div_ceil(6).max(1);
            for tenth in 0..6 {
                for arm in arrived.by_ref().take(part) {
                    state.waiting[arm] += 1;
                    if state.waiting[arm] == self.batch {
                        state.waiting[arm] = 0;
                        (0..self.batch).for_each(|_| self.report(&mut state, arm));
                    }
                }
                let now = time(hour) + HOUR / 6 * tenth;
                let counts: Vec<u64> = state.tallies.iter().map(|tally| tally.reports()).collect();
                state.vigil.observe(now, &counts, state.selections, is_running);
                for alarm in state.vigil.alarms(AlarmQuery {
                    now,
                    is_running,
                    best: |arm| best(&state, arm),
                    label: |arm| format!("label {arm}"),
                }) {
                    // Until the first report, which is late by chance here.
                    if alarm.name == AlarmName::NeverReported {
                        assert!(counts.iter().all(|reports| *reports == 0), "{alarm:?}");
                        continue;
                    }
                    rung.entry(alarm.name).or_insert(f64::from(hour) / 24.0);
                }
            }
        }
        Ok(rung)
    }

    fn begin(&self, seed: u64) -> Result<State, Failure> {
        Ok(State {
            channel: Floor::for_epsilon(Epsilon::new(1.0)?).into(),
            rng: ChaCha8Rng::seed_from_u64(seed),
            now: 0,
            policies: Vec::new(),
            coming: vec![Vec::new(); self.days as usize * 24],
            days: Days::new(),
            tallies: vec![Tally::EMPTY; 3],
            active: vec![true; 3],
            waiting: vec![0; 4],
            selections: 0,
            vigil: self.vigil(0, &[0; 3], true),
        })
    }

    fn vigil(&self, hour: u32, reports: &[u64], is_history_known: bool) -> ExperimentMonitor {
        ExperimentMonitor::new(AlarmBaseline {
            now: time(hour),
            delay: HOUR,
            reports,
            initial_arms: 3,
            is_history_known,
            explores: self.learner == Learner::LdpUcb,
            counts_selections: self.server_draws > 0.0,
            arrival: match (self.batch, self.keeps_arms) {
                (1, false) => Arrival::Single,
                (1, true) => Arrival::OfKeptArms,
                _ => Arrival::Batches,
            },
        })
    }

    /// Defers this hour's reports to the day on which the experiment runs again.
    fn keep(&self, state: &mut State) {
        for arm in std::mem::take(&mut state.coming[state.now as usize]) {
            let later = self.pause.end + state.rng.random_range(0..24);
            if let Some(coming) = state.coming.get_mut(later as usize) {
                coming.push(arm);
            }
        }
    }

    fn happen(&self, state: &mut State) {
        let Some([added, retired, restarted]) = self.events else { return };
        if state.now == added {
            state.active.push(true);
            state.tallies.push(Tally::EMPTY);
        }
        if state.now == retired {
            state.active[1] = false;
        }
        if state.now == restarted {
            let counts: Vec<u64> = state.tallies.iter().map(|tally| tally.reports()).collect();
            state.vigil = self.vigil(state.now, &counts, false);
            state.selections = 0;
        }
    }

    fn policy(&self, state: &State) -> Result<Vec<f64>, Failure> {
        let State { tallies, active, days, channel, .. } = state;
        let input = if self.memory.is_everything() {
            LearnerInput::new(tallies, active, *channel)
        } else {
            let evidence = self.memory.evidence(days, active.len(), Alphabet::BITS);
            LearnerInput::of(evidence, active, *channel)
        };
        let input = input
            .with_burning_in(self.guardrails.burning_in(tallies, active, 3))
            .with_holdout_share(self.guardrails.holdout_share);
        let weights = self.learner.weights(&input)?;
        Ok((0..active.len()).map(|arm| weights.share(arm)).collect())
    }

    /// The users of an hour choose, and unsolicited reports are sent.
    fn choose(&self, state: &mut State) {
        let (day, of_day) = (state.now / 24, state.now % 24);
        let cycle = 1.0 + 0.95 * (f64::from(of_day) / 24.0 * std::f64::consts::TAU).sin();
        let week = if day % 7 >= 5 { 0.4 } else { 1.0 };
        let is_launched = state.now >= self.launch;
        let expected = if is_launched { self.users_per_hour * cycle * week } else { 0.0 };
        let is_wrong = day >= DEFECT_DAY;
        // Binomial, with about this mean.
        let users = (0..200).filter(|_| state.rng.random::<f64>() < expected / 200.0).count();
        for _ in 0..users {
            let is_drawn_here =
                self.server_draws > 0.0 && state.rng.random::<f64>() < self.server_draws;
            let age = if is_drawn_here || state.rng.random::<f64>() < 0.9 {
                0
            } else {
                state.rng.random_range(0..72)
            };
            let arm = drawn(state, age);
            state.selections += u64::from(is_drawn_here);
            let delay = 1 + match state.rng.random::<f64>() {
                ..0.7 => state.rng.random_range(0..6),
                ..0.97 => state.rng.random_range(0..120),
                _ => state.rng.random_range(0..360),
            };
            let is_lost = match self.defect {
                Defect::Lost(share) if arm == 1 => state.rng.random::<f64>() < share,
                Defect::Silent => true,
                _ => false,
            };
            if let Some(coming) = state.coming.get_mut(state.now as usize + delay)
                && !(is_wrong && is_lost)
            {
                coming.push(arm);
            }
        }
        if let (Defect::Unsolicited(reports), true) = (self.defect, is_wrong) {
            let sent: Vec<usize> = (0..reports).map(|_| drawn(state, 0)).collect();
            let now = state.now as usize;
            state.coming[now].extend(sent);
        }
        if let (Defect::Silent, true) = (self.defect, is_wrong) {
            let now = state.now as usize;
            state.coming[now].clear();
        }
    }

    fn report(&self, state: &mut State, arm: usize) {
        let day = state.now / 24;
        let means = match self.later {
            Some((from, means)) if day >= from => means,
            _ => self.means,
        };
        // An added arm has the mean of the first one.
        let mean = means.get(arm).copied().unwrap_or(means[0]);
        let private = state.channel.lowest_private_mean() + state.channel.contrast() * mean;
        let bit = Tally::of_bit(state.rng.random::<f64>() < private);
        state.tallies[arm] += bit;
        let arms = state.tallies.len();
        let of_day = state.days.entry(Day::new(day)).or_default();
        of_day.resize(arms, Tally::EMPTY);
        of_day[arm] += bit;
    }
}

fn drawn(state: &mut State, age: usize) -> usize {
    let shares = &state.policies[(state.now as usize).saturating_sub(age)];
    let mut place: f64 = state.rng.random();
    let arm = shares.iter().position(|share| {
        place -= share;
        place < 0.0
    });
    arm.unwrap_or_default()
}

fn best(state: &State, arm: usize) -> Option<f64> {
    let input = LearnerInput::new(&state.tallies, &state.active, state.channel);
    Some(Learner::LdpTs.weights(&input).ok()?.share(arm))
}

fn time(hour: u32) -> Duration {
    HOUR * hour
}
