//! The builder of an app's handle has no setting for noise, and does not accept a client that was
//! made elsewhere.

use bandana_client::{Bandana, SimulatedClient};

fn main() {
    let _handle: Bandana = SimulatedClient::seeded(1, 2).into();
    let _builder = Bandana::builder().noise(bandana_client::SeededNoise::new(1, 2));
    let _unanswered = Bandana::builder().start();
}
