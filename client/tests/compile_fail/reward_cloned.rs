//! There is one reward, and whoever takes it has it.

fn main() {
    let reward = bandana_client::Reward::new(0.25).unwrap();
    let _another = reward.clone();
}
