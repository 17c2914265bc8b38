//! Views of a private context, and of the scores of its features.

use bandana_shared::context::{Feature, PrivateContext};
use bandana_shared::wire::v1;
use serde::Serialize;

use super::arm_estimate_view::number;
use super::table::{Side, Table, visible};

/// Stable JSON form of a private context.
#[derive(Debug, Serialize)]
pub(super) struct ContextView {
    features: Vec<PrivateFeatureView>,
    exploration_share: f64,
}

/// Stable JSON form of a private feature.
#[derive(Debug, Serialize)]
struct PrivateFeatureView {
    name: String,
    true_share: f64,
}

impl From<&PrivateContext> for ContextView {
    fn from(context: &PrivateContext) -> Self {
        let exploration_share = context.exploration().share();
        let feature = |one: &Feature| PrivateFeatureView {
            name: one.name().to_owned(),
            true_share: one.true_share().share(),
        };
        Self { features: context.features().iter().map(feature).collect(), exploration_share }
    }
}

impl ContextView {
    /// The row of the table of an experiment's properties.
    pub(super) fn row(&self) -> (&'static str, String) {
        let Self { features, exploration_share } = self;
        let feature = |one: &PrivateFeatureView| {
            format!("{} (true in a share of {})", one.name, one.true_share)
        };
        let features = features.iter().map(feature).collect::<Vec<_>>().join(", ");
        let text = format!(
            "research: arms by {features} on the device; a share of {exploration_share} of the \
             assignments explores and reports"
        );
        ("private context", text)
    }
}

/// Stable JSON form of the scores for a feature.
#[derive(Debug, Serialize)]
pub(super) struct FeatureView {
    feature: String,
    scores: Vec<ScoreView>,
}

/// Stable JSON form of the score of an arm for a feature.
#[derive(Debug, Serialize)]
struct ScoreView {
    arm: u32,
    reports: u64,
    estimate: Option<f64>,
    low: f64,
    high: f64,
    score: f64,
}

impl From<v1::FeatureEstimates> for FeatureView {
    fn from(shown: v1::FeatureEstimates) -> Self {
        let score = |shown: v1::FeatureScore| {
            let v1::FeatureScore { arm, reports, estimate, low, high, score } = shown;
            ScoreView { arm, reports, estimate, low, high, score }
        };
        Self { feature: shown.feature, scores: shown.scores.into_iter().map(score).collect() }
    }
}

/// A table of the scores for each feature, given the label of each arm; empty without features.
pub(super) fn describe(
    features: &[FeatureView],
    label: impl Fn(u32) -> String,
    columns: Option<usize>,
) -> String {
    if features.is_empty() {
        return String::new();
    }
    let mut table = Table::new([
        ("feature", Side::Left),
        ("arm", Side::Right),
        ("label", Side::Left),
        ("reports", Side::Right),
        ("estimate", Side::Right),
        ("low", Side::Right),
        ("high", Side::Right),
        ("score", Side::Right),
    ]);
    for FeatureView { feature, scores } in features {
        for score in scores {
            table.push([
                visible(feature),
                score.arm.to_string(),
                label(score.arm),
                score.reports.to_string(),
                score.estimate.map_or_else(|| "-".to_owned(), number),
                number(score.low),
                number(score.high),
                number(score.score),
            ]);
        }
    }
    format!(
        "\nprivate context (research): by how much rewards go with each feature, from -1 to 1; \
         devices choose by the scores, which are relative to the arms' mean and shrunk by their \
         noise. Above are the rewards of those who explore.\n\n{}",
        table.render(columns)
    )
}
