//! `bandana plan`.

use std::fmt::Write as _;

use bandana_learners::bounds::order_breaking_share;
use bandana_learners::plan::{Forecast, Plan as Planned, PlanError};
use bandana_learners::shuffle_plan::{BatchChoice, ShufflePlan};
use bandana_shared::accounting::delta::Delta;
use bandana_shared::accounting::guarantee::Guarantee;
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::channel::Floor;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::interval::ErrorLevel;
use bandana_shared::shuffling::Permille;
use clap::Args;
use serde::Serialize;

use super::{say, say_json};
use crate::views::experiment_settings::values::Goal;
use crate::views::failure::Failure;

/// Forecast how many users an experiment needs until its best arm is certain.
///
/// The forecast assumes that one arm is better than all others by the gap, and that the others are
/// alike. An arm is certain once `bandana estimate` calls it the best. That is wrong with a
/// probability of at most 1 - confidence, however often you look. This command needs no server.
#[derive(Debug, Args)]
#[command(after_long_help = "\
With a small floor weight, the numbers of users can be about twice too high: a learner gives the \
other arms more than the floor until it knows the best one.

Fields with --json:
  arms, epsilon, gap, confidence, floor_weight
  typical_users: until the best arm is certain in at least half of all runs
  users: until it is certain in at least 90% of them
  regret: expected up to there, in rewards as shares of their range, if every arm but the best has
    the floor weight
  learner_regret: the channel's asymptotic lower bound for as many users. Learners without a floor
    weight, such as ldp-ts, stay well below it, and may not be certain by then
  order_breaking_share: share of dishonest reports that can exchange the two best arms

--rate is the mean reward of the other arms. Without it, the forecast assumes that rewards vary \
most, as they do around 1/2. Further from 1/2 it takes fewer users. A small epsilon makes that \
matter less, since most of what varies is noise. Users who report a metric (--metric-share) tell \
nothing of rewards. Those of a --holdout-group get all arms evenly, which counts for a verdict \
too. With --segments, there are further fields in segments: number, typical_users, users. They \
count users until each of that many segments of one size has a verdict of its own, all of them \
right with the confidence.

With --goal decide, there is a second forecast, for top-two sampling (`bandana experiment create \
--goal decide`), beside the one for even traffic. For two arms, both give the same traffic, and \
need as many users. There the second forecast is a tenth to a fifth higher: it counts one look, \
and the first one counts that you look after every report. In simulations, equal rivals took up to \
a seventh more users than the second one says. Rivals that are further behind take fewer. Further \
fields are in decision: typical_users, users, ratio (of users to those of even traffic).

With --shuffle, the plan is for a relay that shuffles (`bandana relay --shuffle`), run by somebody \
else. It collects reports of one arm and hands them on in batches. Everybody else sees only how \
many ones a batch has. The plan chooses the size of a batch and the epsilon of a report for the \
least regret over --users. A larger batch hides more, but every arm must fill one before anything \
is learned. Give a typical gap as --gap then, not the least. The numbers of users count whole \
batches.

Further fields are in shuffle:
  reports: in a batch
  central_epsilon: of a report, seen in its batch
  delta
  colluders: assumed, in thousandths
  first_batches: users until every arm has had a batch
  regret: estimated over all users
  unshuffled_users, unshuffled_regret: the same with a report's epsilon at --central-epsilon and no
    shuffling; no users if they are beyond all bounds")]
pub(super) struct Plan {
    /// Number of arms, 2 to 1024.
    #[arg(long, value_name = "NUMBER")]
    arms: usize,
    /// Privacy loss of one report, in nats: 2^-20 to 32. Give this or --shuffle.
    #[arg(long, value_name = "NATS", required_unless_present = "shuffle")]
    epsilon: Option<f64>,
    /// Difference of the two best mean rewards, as a share of the range of rewards: above 0, at
    /// most 1.
    #[arg(long)]
    gap: f64,
    /// Mean reward of the other arms, as a share of the range of rewards, from 0 at its low end: at
    /// most 1 - gap [default: so that rewards vary most].
    #[arg(long)]
    rate: Option<f64>,
    /// Share of the reports that tell a metric and no reward: 0 to below 1.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    metric_share: f64,
    /// Share of the installations that are held out: 0 to below 1.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    holdout_group: f64,
    /// Number of segments that should each get a verdict: 2 to 256.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(2..=256))]
    segments: Option<u32>,
    /// Probability that the arm called best is the best: above 0, below 1.
    #[arg(long, default_value_t = 0.95)]
    confidence: f64,
    /// Share of the traffic that every arm but the best gets: above 0, at most 1 / (number of
    /// arms) [default: 1 / (number of arms)].
    #[arg(long, value_name = "SHARE")]
    floor_weight: Option<f64>,
    /// What you want. decide adds a forecast for the learner top-two.
    #[arg(long, value_enum, default_value_t, conflicts_with_all = ["floor_weight", "shuffle"])]
    goal: Goal,
    /// Choose the size of a batch of shuffled reports, and the epsilon of a report.
    #[arg(long, requires_all = ["central_epsilon", "users"], conflicts_with = "epsilon")]
    shuffle: bool,
    /// Privacy loss of one report after shuffling, in nats.
    #[arg(long, value_name = "NATS", requires = "shuffle")]
    central_epsilon: Option<f64>,
    /// Delta of that privacy loss: 0 to 1.
    #[arg(long, requires = "shuffle", default_value_t = 1e-6)]
    delta: f64,
    /// Share of colluders among the users, in thousandths: their reports hide nobody's. Apps assume
    /// 100, a tenth, unless they set another share.
    #[arg(long, requires = "shuffle", default_value_t = 100, value_name = "PERMILLE",
          value_parser = clap::value_parser!(u16).range(0..=1000))]
    colluders: u16,
    /// Number of users in all.
    #[arg(long, value_name = "NUMBER", requires = "shuffle")]
    users: Option<u64>,
    /// Print a JSON object for programs.
    #[arg(long)]
    json: bool,
}

/// Stable JSON form of a forecast.
#[derive(Debug, Serialize)]
struct PlanView {
    arms: usize,
    epsilon: f64,
    gap: f64,
    confidence: f64,
    floor_weight: f64,
    rate: Option<f64>,
    metric_share: f64,
    holdout_group: f64,
    typical_users: u64,
    users: u64,
    regret: f64,
    learner_regret: f64,
    order_breaking_share: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    segments: Option<SegmentsView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<DecisionView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shuffle: Option<ShuffleView>,
}

/// Stable JSON form of a forecast for each segment.
#[derive(Debug, Serialize)]
struct SegmentsView {
    number: u32,
    typical_users: u64,
    users: u64,
}

/// Stable JSON form of a forecast under top-two sampling.
#[derive(Debug, Serialize)]
struct DecisionView {
    typical_users: u64,
    users: u64,
    ratio: f64,
}

/// Stable JSON form of the choice of batches.
#[derive(Debug, Serialize)]
struct ShuffleView {
    reports: u32,
    central_epsilon: f64,
    delta: f64,
    colluders: u16,
    first_batches: u64,
    regret: f64,
    unshuffled_users: Option<u64>,
    unshuffled_regret: f64,
}

pub(super) fn run(plan: &Plan) -> anyhow::Result<()> {
    let view = plan.view()?;
    if plan.json { say_json(&view) } else { say(&view.describe()) }
}

impl Plan {
    fn view(&self) -> Result<PlanView, Failure> {
        let Self { arms, gap, confidence, .. } = *self;
        let choices = if self.shuffle { Some(self.choices()?) } else { None };
        let epsilon = match (&choices, self.epsilon) {
            (Some((chosen, _)), _) => chosen.local,
            (None, Some(nats)) => Epsilon::new(nats).map_err(refused)?,
            (None, None) => return Err(Failure::Refused("--epsilon is missing".to_owned())),
        };
        for (flag, share) in
            [("--metric-share", self.metric_share), ("--holdout-group", self.holdout_group)]
        {
            if !(0.0..1.0).contains(&share) {
                return Err(Failure::Refused(format!("{flag} must be at least 0 and below 1")));
            }
        }
        let forecast = self.forecast(epsilon)?.map_err(refused)?;
        let decision = match self.goal {
            Goal::Earn => None,
            Goal::Decide => Some(self.decided(epsilon, &forecast)?),
        };
        let share = self.floor_weight.unwrap_or(1.0 / arms as f64);
        let shuffle = match &choices {
            Some((chosen, unshuffled)) => Some(ShuffleView {
                reports: chosen.reports,
                central_epsilon: chosen.central.get(),
                delta: self.delta,
                colluders: self.colluders,
                first_batches: chosen.first_batches,
                regret: chosen.regret,
                unshuffled_users: self.forecast(unshuffled.local)?.ok().map(|plain| plain.users),
                unshuffled_regret: unshuffled.regret,
            }),
            None => None,
        };
        // Of every arm, less than a batch is unseen. After as many more users as give each arm
        // another batch, all is seen that the forecast counts on.
        let unseen =
            shuffle.as_ref().map_or(0, |chosen| whole_users(f64::from(chosen.reports), share));
        Ok(PlanView {
            arms,
            epsilon: epsilon.get(),
            gap,
            confidence,
            floor_weight: share,
            rate: self.rate,
            metric_share: self.metric_share,
            holdout_group: self.holdout_group,
            typical_users: self.of_all(forecast.typical_users + unseen),
            users: self.of_all(forecast.users + unseen),
            segments: self.of_segments(epsilon)?,
            regret: forecast.regret / (1.0 - self.metric_share),
            learner_regret: forecast.learner_regret,
            order_breaking_share: order_breaking_share(Floor::for_epsilon(epsilon), gap),
            decision,
            shuffle,
        })
    }

    /// The forecast for reports of this loss, or why there is none.
    fn forecast(&self, epsilon: Epsilon) -> Result<Result<Forecast, PlanError>, Failure> {
        Ok(self.planned(epsilon)?.forecast())
    }

    /// The users of whom so many report their rewards.
    fn of_all(&self, users: u64) -> u64 {
        whole_users(users as f64, 1.0 - self.metric_share)
    }

    /// The forecast for a verdict in each segment, each of which has an equal part of the users.
    fn of_segments(&self, epsilon: Epsilon) -> Result<Option<SegmentsView>, Failure> {
        let Some(number) = self.segments else { return Ok(None) };
        let plan = self.planned(epsilon)?.for_verdicts(number);
        let forecast = plan.forecast().map_err(refused)?;
        let users = |users: u64| self.of_all(users.saturating_mul(u64::from(number)));
        let (typical_users, users) = (users(forecast.typical_users), users(forecast.users));
        Ok(Some(SegmentsView { number, typical_users, users }))
    }

    /// The forecast under top-two sampling, beside that of even traffic, which those held out have.
    fn decided(&self, epsilon: Epsilon, even: &Forecast) -> Result<DecisionView, Failure> {
        let found = self.planned(epsilon)?.decision().map_err(refused)?;
        let held_out = self.holdout_group;
        let mixed = |decided: u64, even: u64| {
            let speed = (1.0 - held_out) / decided as f64 + held_out / even as f64;
            self.of_all(whole_users(1.0, speed))
        };
        let users = mixed(found.users, even.users);
        Ok(DecisionView {
            typical_users: mixed(found.typical_users, even.typical_users),
            users,
            ratio: users as f64 / self.of_all(even.users) as f64,
        })
    }

    /// The least share of an arm, of those held out too: they have even traffic.
    fn least_share(&self) -> Option<f64> {
        let (held_out, even) = (self.holdout_group, 1.0 / self.arms as f64);
        self.floor_weight.map(|share| (1.0 - held_out) * share + held_out * even)
    }

    fn planned(&self, epsilon: Epsilon) -> Result<Planned, Failure> {
        let alpha = ErrorLevel::new(1.0 - self.confidence).map_err(|_| {
            Failure::Refused("--confidence must lie between 0 and 1, such as 0.95".to_owned())
        })?;
        let floor = Floor::for_epsilon(epsilon);
        let mut planned = Planned::new(self.arms, floor, self.gap, alpha).map_err(refused)?;
        if let Some(floor_weight) = self.least_share() {
            planned = planned.with_floor_weight(floor_weight).map_err(refused)?;
        }
        if let Some(rate) = self.rate {
            planned = planned.with_rate(rate).map_err(refused)?;
        }
        Ok(planned)
    }

    /// The best batches, and batches of one report, which are none.
    fn choices(&self) -> Result<(BatchChoice, BatchChoice), Failure> {
        let loss = PrivacyLoss::new(self.central_epsilon.unwrap_or_default()).map_err(refused)?;
        let delta = Delta::new(self.delta).map_err(refused)?;
        let users = self.users.unwrap_or_default();
        let central = Guarantee::new(loss, delta);
        let plan = ShufflePlan::new(self.arms, self.gap, users, central).map_err(refused)?;
        let plan = plan.with_colluders(Permille::new(self.colluders).unwrap_or_default());
        Ok((plan.choose().map_err(refused)?, plan.at(1).map_err(refused)?))
    }
}

fn refused(error: impl std::error::Error) -> Failure {
    Failure::Refused(error.to_string())
}

/// Users until an arm with this share of them has so many reports.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a positive number; one too large for 64 bits is cut to the largest"
)]
fn whole_users(reports: f64, share: f64) -> u64 {
    (reports / share).ceil() as u64
}

impl PlanView {
    fn describe(&self) -> String {
        let Self { arms, epsilon, gap, confidence, floor_weight, .. } = self;
        let traffic = if *floor_weight * (*arms as f64) > 1.0 - 1e-9 {
            "even traffic".to_owned()
        } else {
            format!("{:.3}% of the traffic for each arm but the best", 100.0 * floor_weight)
        };
        let mut text = format!(
            "{arms} arms, epsilon {epsilon}, gap {gap}, confidence {confidence}, {traffic}\n"
        );
        let lines = [
            ("users in at least half of all runs", self.typical_users.to_string()),
            ("users in at least 90% of all runs", self.users.to_string()),
            ("regret up to there", format!("{:.0}", self.regret)),
            ("lower bound of regret, asymptotic", format!("{:.0}", self.learner_regret)),
            (
                "dishonest reports that turn the order",
                format!("{:.2}%", 100.0 * self.order_breaking_share),
            ),
        ];
        for (name, value) in lines {
            // Writing to a string does not fail.
            writeln!(text, "{name:38}{value:>16}").ok();
        }
        if let Some(SegmentsView { number, typical_users, users }) = &self.segments {
            let name = format!("a verdict in each of {number}: users in half");
            writeln!(text, "{name:38}{typical_users:>16}").ok();
            writeln!(text, "{:38}{users:>16}", "the same in 90% of all runs").ok();
        }
        if let Some(decision) = &self.decision {
            decision.describe(&mut text);
        }
        if let Some(shuffle) = &self.shuffle {
            shuffle.describe(&mut text);
        }
        text
    }
}

impl DecisionView {
    fn describe(&self, text: &mut String) {
        let lines = [
            ("top-two: users in half of all runs", self.typical_users.to_string()),
            ("top-two: users in 90% of all runs", self.users.to_string()),
            ("top-two: users over even traffic's", format!("{:.2}", self.ratio)),
        ];
        for (name, value) in lines {
            // Writing to a string does not fail.
            writeln!(text, "{name:38}{value:>16}").ok();
        }
    }
}

impl ShuffleView {
    fn describe(&self, text: &mut String) {
        let unshuffled = self.unshuffled_users.map_or("too many".to_owned(), |n| n.to_string());
        let lines = [
            ("reports shuffled in a batch", self.reports.to_string()),
            ("epsilon of a report in its batch", format!("{:.4}", self.central_epsilon)),
            ("with a delta of", format!("{:e}", self.delta)),
            ("colluders among a thousand users", self.colluders.to_string()),
            ("users until all arms had a batch", self.first_batches.to_string()),
            ("regret over all users, estimated", format!("{:.0}", self.regret)),
            ("unshuffled: users in 90% of all runs", unshuffled),
            ("unshuffled: regret over all users", format!("{:.0}", self.unshuffled_regret)),
        ];
        for (name, value) in lines {
            // Writing to a string does not fail.
            writeln!(text, "{name:38}{value:>16}").ok();
        }
    }
}
