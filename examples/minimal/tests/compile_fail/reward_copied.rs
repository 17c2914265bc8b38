//! A reward can't be used twice.

fn main() {
    let reward = bandana_client::Reward::new(0.25).unwrap();
    let _given_away = reward;
    let _again = reward;
}
