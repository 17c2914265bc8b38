//! The number in a disclosed reward can't be read: only the server receives it.

use bandana_client::trusted::{DisclosedReward, Disclosure};

fn read(reward: DisclosedReward, disclosure: &Disclosure) -> [f64; 2] {
    [reward.0, disclosure.reward]
}

fn main() {}
