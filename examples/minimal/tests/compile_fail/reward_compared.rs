//! Rewards can't be compared: comparisons would reveal them bit by bit.

fn main() {
    let reward = bandana_client::Reward::new(0.25).unwrap();
    let known = bandana_client::Reward::new(0.5).unwrap();
    let _equal = reward == known;
    let _less = reward < known;
}
