//! A disclosed reward can't be used twice.

use bandana_client::trusted::{DisclosedReward, Disclosure, TrustedExperiment};

fn twice(experiment: &TrustedExperiment, reward: DisclosedReward) -> [Disclosure; 2] {
    let disclose = |reward| experiment.disclosure(0, reward).unwrap();
    [disclose(reward), disclose(reward)]
}

fn main() {}
