//! A reward has no encoding, so it can't rest or travel by way of serde.

fn store<T: serde::Serialize>(_: T) {}

fn main() {
    store(bandana_client::Reward::new(0.25).unwrap());
}
