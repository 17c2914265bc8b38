//! A reward can't be serialised, so serde can't store or send it.

fn store<T: serde::Serialize>(_: T) {}

fn main() {
    store(bandana_client::Reward::new(0.25).unwrap());
}
