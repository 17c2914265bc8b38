//! A reward can't be cloned: it is moved into the call that takes it.

fn main() {
    let reward = bandana_client::Reward::new(0.25).unwrap();
    let _another = reward.clone();
}
