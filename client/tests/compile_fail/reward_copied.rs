//! A reward that was given away is gone.

fn main() {
    let reward = bandana_client::Reward::new(0.25).unwrap();
    let _given_away = reward;
    let _again = reward;
}
