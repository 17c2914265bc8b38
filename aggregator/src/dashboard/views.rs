//! JSON views of experiments for the dashboard's pages.

use bandana_learners::terms::ArmTerms;
use bandana_learners::{Learner, LearnerInput};
use bandana_shared::alphabet::Symbol;
use bandana_shared::channel::Channel;
use bandana_shared::curve::Level;
use bandana_shared::estimate::Estimand;
use bandana_shared::rewards::RewardKind;
use bandana_shared::specification::Specification;
use bandana_shared::tally::Tally;
use bandana_shared::wire::v1::{ArmEstimate, Estimates, ExperimentStatus, ListExperimentsResponse};
use serde::Serialize;
use tonic::Status;

use super::refusal::Refusal;
use crate::views::estimates_view::EstimatesView;
use crate::views::experiment_view::ExperimentView;
use crate::views::summary_view::SummaryView;

/// Number of intervals in a drawn curve.
const CURVE_STEPS: u32 = 32;

/// A page of experiments.
#[derive(Debug, Serialize)]
pub(super) struct Listed {
    experiments: Vec<SummaryView>,
    /// Empty on the last page.
    next_page_token: String,
}

/// Snapshot of an experiment.
#[derive(Debug, Serialize)]
pub(super) struct ExperimentSnapshot {
    /// As `bandana experiment show --json` has it.
    experiment: ExperimentView,
    /// Names and values of its other properties, in words.
    details: Vec<(&'static str, String)>,
    /// As `bandana estimate --json` has them.
    estimates: EstimatesView,
    /// For each arm the posterior probability that its mean is the largest, with independent
    /// uniform priors on the private means. Empty for categories.
    probability_best: Vec<f64>,
    /// Points of the response curve: the probability of a one for rewards from the lowest to the
    /// highest. Empty unless a report is a bit.
    curve: Vec<Point>,
    /// Probabilities of k-ary randomized response; null if a report is a bit.
    response: Option<Response>,
}

#[derive(Debug, Serialize)]
struct Point {
    reward: f64,
    probability_of_one: f64,
}

/// Probabilities of k-ary randomized response.
#[derive(Debug, Serialize)]
struct Response {
    symbols: u8,
    probability_of_truth: f64,
    /// Probability of each of the other symbols.
    probability_of_other: f64,
}

impl Listed {
    pub(super) fn new(answer: ListExperimentsResponse) -> Self {
        let ListExperimentsResponse { experiments, next_page_token } = answer;
        Self { experiments: experiments.iter().map(Into::into).collect(), next_page_token }
    }
}

/// The view of one experiment.
pub(super) fn experiment(status: &ExperimentStatus) -> Result<ExperimentView, Refusal> {
    ExperimentView::new(status).map_err(|error| unreadable(&error))
}

impl ExperimentSnapshot {
    pub(super) fn new(status: &ExperimentStatus, estimates: Estimates) -> Result<Self, Refusal> {
        let message = status.specification.clone().unwrap_or_default();
        let specification = Specification::try_from(&message);
        let specification = specification.map_err(|error| unreadable(&error.into()))?;
        let experiment = experiment(status)?;
        Ok(Self {
            details: experiment.details(),
            experiment,
            probability_best: probability_best(&specification, &estimates.arms),
            estimates: estimates.into(),
            curve: curve(&specification),
            response: response(&specification),
        })
    }
}

pub(super) fn unreadable(error: &anyhow::Error) -> Refusal {
    tracing::error!("an experiment can't be shown: {error:#}");
    Status::internal("this experiment can't be shown").into()
}

fn probability_best(specification: &Specification, arms: &[ArmEstimate]) -> Vec<f64> {
    // Categories have no order, so "largest mean" is undefined.
    if specification.estimand() == Estimand::Frequencies {
        return Vec::new();
    }
    let tally = |arm: &ArmEstimate| {
        let symbols = specification.channel().alphabet().symbols().zip(&arm.symbols);
        let said = symbols.map(|(symbol, estimate)| (symbol, estimate.count));
        let bits = (Symbol::from(true), arm.ones);
        // Reports of more than two symbols have no count of ones.
        let counts = said.chain(arm.symbols.is_empty().then_some(bits));
        Tally::with_symbols(arm.reports, counts).unwrap_or(Tally::EMPTY)
    };
    let tallies: Vec<_> = arms.iter().map(tally).collect();
    let active: Vec<_> = arms.iter().map(|arm| !arm.retired).collect();
    let mut input = LearnerInput::new(&tallies, &active, specification.channel());
    let (costs, range) =
        (arms.iter().map(|arm| arm.cost).collect(), specification.rewards().range());
    let terms = ArmTerms::new(Vec::new(), ArmTerms::DISCOUNT, costs, range).unwrap_or_default();
    terms.apply(&mut input.arms, &active, (specification.channel(), range), 1.0);
    let shares = Learner::LdpTs.weights(&input);
    shares.map_or_else(|_| Vec::new(), |w| (0..arms.len()).map(|arm| w.share(arm)).collect())
}

fn curve(specification: &Specification) -> Vec<Point> {
    // Only a one-bit channel has a response curve.
    let Channel::Bit(floor) = specification.channel() else { return Vec::new() };
    let curve = specification.curve();
    let rewards = specification.rewards();
    let steps = if rewards.kind() == RewardKind::Binary { 1 } else { CURVE_STEPS };
    let point = |step| {
        let unit = f64::from(step) / f64::from(steps);
        let level = curve.apply(Level::from_unit(unit).ok()?).to_unit();
        let probability_of_one = floor.lowest_private_mean() + floor.contrast() * level;
        let reward = rewards.range().low() + rewards.range().width() * unit;
        Some(Point { reward, probability_of_one })
    };
    (0..=steps).filter_map(point).collect()
}

fn response(specification: &Specification) -> Option<Response> {
    const WORDS: f64 = (1_u128 << 64) as f64;
    let Channel::Kary(channel) = specification.channel() else { return None };
    Some(Response {
        symbols: channel.alphabet().len(),
        probability_of_truth: channel.truth() as f64 / WORDS,
        probability_of_other: channel.share() as f64 / WORDS,
    })
}
