//! What was stored can't come back as a reward either.

fn load<T: serde::de::DeserializeOwned>() {}

fn main() {
    load::<bandana_client::Reward>();
}
