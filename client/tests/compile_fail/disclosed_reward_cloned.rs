//! There is one disclosed reward, and whoever takes it has it.

fn main() {
    let reward = bandana_client::trusted::DisclosedReward::new(0.25).unwrap();
    let _another = reward.clone();
}
