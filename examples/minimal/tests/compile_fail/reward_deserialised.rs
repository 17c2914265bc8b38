//! A reward can't be deserialised.

fn load<T: serde::de::DeserializeOwned>() {}

fn main() {
    load::<bandana_client::Reward>();
}
