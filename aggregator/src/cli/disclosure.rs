//! Disclosure: the summary of a specification that is displayed before it is signed.

use bandana_shared::curve::Mechanism;
use bandana_shared::identity::UnixSeconds;
use bandana_shared::rewards::{OutOfRange, RewardKind};
use bandana_shared::signing::PublicKey;
use bandana_shared::specification::Specification;

/// All fields that the signature covers, as a table.
pub(super) fn table(specification: &Specification, key: PublicKey, expires: UnixSeconds) -> String {
    let mut rows = vec![
        ("experiment", specification.experiment_id().to_string()),
        ("revision", specification.revision().get().to_string()),
        ("digest", specification.digest().to_string()),
        ("users", users(specification).to_owned()),
    ];
    rows.extend(channel(specification));
    let timing = specification.timing();
    rows.push(("attribution window", format!("{} s", timing.attribution_window_seconds)));
    rows.push(("release delay", format!("up to {} s more", timing.release_delay_seconds_max)));
    rows.push(("arms", specification.arms().len().to_string()));
    let mut table = String::from("To be signed:\n");
    let mut line = |name: &str, value: &str| {
        for part in ["  ", &format!("{name:<20}"), value, "\n"] {
            table.push_str(part);
        }
    };
    for (name, value) in &rows {
        line(name, value);
    }
    for (index, arm) in specification.arms().iter().enumerate() {
        let retired = if arm.is_retired() { ", retired" } else { "" };
        // Escaped: a label may contain control characters that distort the terminal.
        line(&format!("  {index}"), &format!("{:?}{retired}", arm.label()));
    }
    line("by the key", &key.to_string());
    line("good until", &expires.to_string());
    table
}

fn users(specification: &Specification) -> &'static str {
    if specification.is_simulation() {
        "simulated, with noise that can be repeated"
    } else {
        "real"
    }
}

/// The mechanism that privatizes a reward, in words.
fn channel(specification: &Specification) -> Vec<(&'static str, String)> {
    let rewards = specification.rewards();
    let (low, high) = (rewards.range().low(), rewards.range().high());
    vec![
        ("epsilon", format!("{} nats for each report", specification.epsilon().get())),
        ("certified epsilon", format!("{} nats, by the floor", specification.certified_epsilon())),
        ("floor", format!("{} / 2^64", specification.channel().floor())),
        (
            "rewards",
            match rewards.kind() {
                RewardKind::Binary => format!("binary: {low} or {high}"),
                RewardKind::Bounded => format!("from {low} to {high}"),
                RewardKind::Categorical => format!("categories {low} to {high}"),
            },
        ),
        (
            "out of range",
            match rewards.out_of_range() {
                OutOfRange::Refuse => "refused".to_owned(),
                OutOfRange::Clamp => "moved to the nearer end".to_owned(),
            },
        ),
        ("without a reward", format!("{} is reported", rewards.default_reward())),
        (
            "mechanism",
            match specification.mechanism() {
                Mechanism::Linear => "linear".to_owned(),
                Mechanism::Quadratic(curvature) => {
                    format!("quadratic, curvature {} / 2^20", curvature.units())
                }
                Mechanism::Exponential => "exponential".to_owned(),
                Mechanism::RandomizedResponse => "randomized response".to_owned(),
                Mechanism::Kary(alphabet) => {
                    format!("k-ary randomized response, {} symbols", alphabet.len())
                }
            },
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use bandana_shared::curve::Curvature;
    use bandana_shared::epsilon::Epsilon;
    use bandana_shared::identity::ExperimentId;
    use bandana_shared::rewards::{RewardRange, Rewards};
    use bandana_shared::signing::SigningKey;
    use bandana_shared::specification::{Arm, ReleaseTiming};

    #[test]
    fn the_table_shows_every_field() {
        let range = RewardRange::new(-1.0, 4.0).unwrap();
        let specification = Specification::first(
            ExperimentId::new("checkout").unwrap(),
            Epsilon::new(2.5).unwrap(),
            Rewards::new(RewardKind::Bounded, range, OutOfRange::Clamp, 0.5).unwrap(),
            Mechanism::Quadratic(Curvature::from_units(-262_144).unwrap()),
            vec![Arm::new("a\u{202e}b").unwrap(), Arm::new("grün").unwrap().retired()],
            ReleaseTiming { attribution_window_seconds: 86_400, release_delay_seconds_max: 3600 },
        )
        .unwrap();
        let key = SigningKey::from_secret(&[7; 32]).public_key();
        let certified = specification.certified_epsilon();
        let expected = format!(
            "To be signed:
  experiment          checkout
  revision            1
  digest              {}
  users               real
  epsilon             2.5 nats for each report
  certified epsilon   {certified} nats, by the floor
  floor               1399336432749270957 / 2^64
  rewards             from -1 to 4
  out of range        moved to the nearer end
  without a reward    0.5 is reported
  mechanism           quadratic, curvature -262144 / 2^20
  attribution window  86400 s
  release delay       up to 3600 s more
  arms                2
    0                 \"a\\u{{202e}}b\"
    1                 \"grün\", retired
  by the key          {key}
  good until          2027-01-15 08:00:00 UTC
",
            specification.digest()
        );
        let shown = table(&specification, key, UnixSeconds::new(1_800_000_000));
        assert_eq!(shown, expected);
    }
}
