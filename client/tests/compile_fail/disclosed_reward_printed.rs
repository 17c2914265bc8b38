//! A disclosed reward has no text, and neither has its disclosure.

use bandana_client::trusted::{DisclosedReward, Disclosure};

fn print(reward: &DisclosedReward, disclosure: &Disclosure) {
    println!("{reward} {disclosure}");
}

fn main() {}
