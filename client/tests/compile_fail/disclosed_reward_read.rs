//! What a user discloses, they disclose to the server.

use bandana_client::trusted::{DisclosedReward, Disclosure};

fn read(reward: DisclosedReward, disclosure: &Disclosure) -> [f64; 2] {
    [reward.0, disclosure.reward]
}

fn main() {}
