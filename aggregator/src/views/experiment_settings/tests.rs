//! Tests of descriptions and their requests.

use bandana_shared::wire::v1::create_experiment_request::Memory;
use bandana_shared::wire::v1::{self, specification};

use super::ExperimentSettings;

fn settings(text: &str) -> ExperimentSettings {
    toml::from_str(text).unwrap()
}

const COMPLETE: &str = "experiment_id = \"a\"\nepsilon = 1\narms = [\"x\", \"y\"]\n\
                        attribution_window_seconds = 60\n";

#[test]
fn defaults_make_a_binary_linear_experiment() {
    let request = settings(COMPLETE).request(false).unwrap();
    assert_eq!((request.learner(), request.floor_weight), (v1::Learner::LdpTs, 0.0));
    let specification = request.specification.unwrap();
    assert_eq!(specification.reward_kind(), v1::RewardKind::Binary);
    assert_eq!(specification.out_of_range(), v1::OutOfRange::Refuse);
    assert_eq!((specification.reward_low, specification.reward_high), (0.0, 1.0));
    assert_eq!(specification.mechanism, Some(specification::Mechanism::Linear(v1::Linear {})));
}

#[test]
fn rewards_of_a_range_are_clamped_unless_the_draft_says_otherwise() {
    let treatment = |more: &str| {
        let text = format!("{COMPLETE}reward_kind = \"bounded\"\nreward_high = 100\n{more}");
        settings(&text).request(false).unwrap().specification.unwrap().out_of_range()
    };
    assert_eq!(treatment(""), v1::OutOfRange::Clamp);
    assert_eq!(treatment("out_of_range = \"refuse\""), v1::OutOfRange::Refuse);
}

#[test]
fn flags_count_more_than_the_file() {
    let flags = settings("epsilon = 2.0\narms = [\"z\"]\nsimulation = true");
    let request = flags.over(settings(COMPLETE)).request(false).unwrap();
    let specification = request.specification.unwrap();
    assert_eq!((specification.epsilon, specification.simulation), (2.0, true));
    assert_eq!(specification.arms.len(), 1);
    assert_eq!(specification.experiment_id, "a");
    assert_eq!(specification.attribution_window_seconds, 60);
}

#[test]
fn all_that_is_missing_is_named() {
    let message = ExperimentSettings::default().request(false).unwrap_err().to_string();
    for name in ["ID", "--epsilon", "--arm ", "--attribution-window-seconds"] {
        assert!(message.contains(name), "{message}");
    }
    let simulation =
        settings("experiment_id = \"a\"\nepsilon = 1\narms = [\"x\"]\nsimulation = true");
    assert!(simulation.request(false).is_ok());
}

#[test]
fn the_curvature_belongs_to_the_quadratic_mechanism() {
    let of = |text: &str| settings(&format!("{COMPLETE}{text}")).request(false);
    assert!(of("mechanism = \"quadratic\"").unwrap_err().to_string().contains("--curvature"));
    assert!(of("curvature = 0.5").is_err());
    assert!(of("mechanism = \"quadratic\"\ncurvature = 1.5").is_err());
    let request = of("mechanism = \"quadratic\"\ncurvature = 0.25").unwrap();
    let quadratic = v1::Quadratic { curvature: 1 << 18 };
    let expected = specification::Mechanism::Quadratic(quadratic);
    assert_eq!(request.specification.unwrap().mechanism, Some(expected));
}

#[test]
fn levels_and_categories_make_k_ary_experiments() {
    let of = |text: &str| settings(&format!("{COMPLETE}{text}")).request(false);
    let symbols = |symbols| {
        let message = v1::RandomizedResponse { symbols };
        Some(specification::Mechanism::RandomizedResponse(message))
    };
    let levels = of("mechanism = \"k-ary\"\nlevels = 6\nreward_kind = \"bounded\"").unwrap();
    assert_eq!(levels.learner(), v1::Learner::LdpTs);
    assert_eq!(levels.specification.unwrap().mechanism, symbols(6));
    let categories = of("categories = 5").unwrap();
    assert_eq!(categories.learner(), v1::Learner::Uniform);
    let specification = categories.specification.unwrap();
    assert_eq!(specification.reward_kind(), v1::RewardKind::Categorical);
    assert_eq!((specification.reward_low, specification.reward_high), (0.0, 4.0));
    assert_eq!(specification.mechanism, symbols(5));
    for (text, complaint) in [
        ("mechanism = \"k-ary\"\nreward_kind = \"bounded\"", "--levels"),
        ("levels = 6", "only the k-ary"),
        ("categories = 5\nlevels = 5", "not rounded"),
        ("reward_kind = \"categorical\"", "--categories"),
        ("reward_kind = \"bounded\"\ncategories = 5", "only categorical"),
    ] {
        let message = of(text).unwrap_err().to_string();
        assert!(message.contains(complaint), "{text}: {message}");
    }
}

#[test]
fn a_window_replaces_a_discount_of_the_file_and_not_its_own() {
    let days = Some(Memory::WindowDays(7));
    let file = || settings(&format!("{COMPLETE}discount_per_day = 0.9"));
    assert_eq!(file().request(false).unwrap().memory, Some(Memory::DiscountPerDay(0.9)));
    let over = settings("window_days = 7").over(file());
    assert_eq!(over.request(false).unwrap().memory, days);
    let both = settings(&format!("{COMPLETE}discount_per_day = 0.9\nwindow_days = 7"));
    assert!(both.request(false).is_err());
}

#[test]
fn a_goal_stands_for_a_learner() {
    let of = |text: &str| settings(&format!("{COMPLETE}{text}"));
    let learner =
        |settings: ExperimentSettings| settings.request(false).map(|request| request.learner());
    assert_eq!(learner(of("goal = \"decide\"")).unwrap(), v1::Learner::TopTwo);
    assert_eq!(learner(of("goal = \"earn\"")).unwrap(), v1::Learner::LdpTs);
    let both = learner(of("goal = \"decide\"\nlearner = \"uniform\"")).unwrap_err();
    assert!(both.to_string().contains("leave one of the two out"), "{both}");
    assert_eq!(learner(of("goal = \"earn\"\ncategories = 5")).unwrap(), v1::Learner::Uniform);
    // A flag replaces the other setting of the file too.
    let over = settings("goal = \"decide\"").over(of("learner = \"uniform\""));
    assert_eq!(learner(over).unwrap(), v1::Learner::TopTwo);
    let over = settings("learner = \"uniform\"").over(of("goal = \"decide\""));
    assert_eq!(learner(over).unwrap(), v1::Learner::Uniform);
}

#[test]
fn private_features_make_a_private_context_with_arms_drawn_anew() {
    let of = |text: &str| settings(&format!("{COMPLETE}{text}")).request(false);
    let request = of("private_features = \"weekend=0.29, returning\"").unwrap();
    assert_eq!(request.learner(), v1::Learner::Uniform);
    let specification = request.specification.unwrap();
    assert_eq!(specification.sticky, None);
    let context = specification.private_context.unwrap();
    assert_eq!(context.exploration_millionths, 200_000);
    let features: Vec<_> =
        context.features.iter().map(|one| (&*one.name, one.true_millionths)).collect();
    assert_eq!(features, [("weekend", 290_000), ("returning", 500_000)]);
    let more = of("private_features = \"a\"\nexploration = 0.05").unwrap();
    let context = more.specification.unwrap().private_context.unwrap();
    assert_eq!(context.exploration_millionths, 50_000);
    // What was said is passed on, for the server to refuse.
    let kept = of("private_features = \"a\"\nreport_days = 3").unwrap();
    assert!(kept.specification.unwrap().sticky.is_some());
    for (text, complaint) in [
        ("exploration = 0.1", "--private-features"),
        ("private_features = \"a\"\nexploration = 1.5", "from 0 to 1"),
        ("private_features = \"a\"\nexploration = 1", "below 1"),
        ("private_features = \"\"", "is not 1 to 64"),
        ("private_features = \"a,a\"", "names must differ"),
        ("private_features = \"a=1\"", "such as weekend=0.29"),
    ] {
        let message = of(text).unwrap_err().to_string();
        assert!(message.contains(complaint), "{text}: {message}");
    }
}

#[test]
fn unknown_keys_are_refused() {
    let error = toml::from_str::<ExperimentSettings>("epsilom = 1").unwrap_err().to_string();
    assert!(error.contains("epsilom") && error.contains("`epsilon`"), "{error}");
}
