//! Comparing rewards would tell about them, a bit at a time.

fn main() {
    let reward = bandana_client::Reward::new(0.25).unwrap();
    let known = bandana_client::Reward::new(0.5).unwrap();
    let _equal = reward == known;
    let _less = reward < known;
}
