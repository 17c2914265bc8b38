//! Reproducible noise is for simulations: a client with such noise is not a client for users, and
//! there is no other way to give such noise to a client for users.

use bandana_client::{Client, OsNoise, SeededNoise, SimulatedClient};

fn product(_: Client) {}

fn main() {
    product(SimulatedClient::seeded(1, 2));
    let _noise: OsNoise = SeededNoise::new(1, 2);
}
