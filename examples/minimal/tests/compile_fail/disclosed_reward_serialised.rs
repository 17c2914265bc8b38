//! A disclosed reward is encoded for the wire and for the device's disk only.

use bandana_client::trusted::{DisclosedReward, Disclosure};

fn store<T: serde::Serialize>(_: T) {}

fn main() {
    store(DisclosedReward::new(0.25).unwrap());
    store(None::<Disclosure>);
}
