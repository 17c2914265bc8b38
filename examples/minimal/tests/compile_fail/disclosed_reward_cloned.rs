//! A disclosed reward can't be cloned: it is moved into the call that takes it.

fn main() {
    let reward = bandana_client::trusted::DisclosedReward::new(0.25).unwrap();
    let _another = reward.clone();
}
