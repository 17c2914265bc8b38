//! A disclosed reward can't be printed, nor can its disclosure.

use bandana_client::trusted::{DisclosedReward, Disclosure};

fn print(reward: &DisclosedReward, disclosure: &Disclosure) {
    println!("{reward} {disclosure}");
}

fn main() {}
