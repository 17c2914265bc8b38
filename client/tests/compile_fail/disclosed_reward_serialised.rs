//! A disclosed reward has an encoding on the wire and on the device's disk, and no other.

use bandana_client::trusted::{DisclosedReward, Disclosure};

fn store<T: serde::Serialize>(_: T) {}

fn main() {
    store(DisclosedReward::new(0.25).unwrap());
    store(None::<Disclosure>);
}
