//! The correct forms of the programs in `examples/minimal/tests/compile_fail` compile, so those
//! programs fail for their own reasons. It is compiled with all other tests: alone it would need
//! every crate built once more.

use bandana_client::trusted::{DisclosedReward, Disclosure, TrustedError, TrustedExperiment};
use bandana_client::{Budget, Client, OsNoise, Privatizer, Reward, SeededNoise, SimulatedClient};
use bandana_shared::alphabet::Alphabet;
use bandana_shared::identity::CellIndex;
use bandana_shared::upload::PackedReports;

fn store<T: serde::Serialize>(_: T) {}

#[expect(clippy::needless_pass_by_value, reason = "a program of `compile_fail` takes it so")]
fn report(arm: CellIndex, reward: Reward, privatizer: &Privatizer) -> PackedReports {
    let report = privatizer.privatize(&reward, &mut OsNoise).expect("noise");
    PackedReports::pack_symbols(vec![(arm, report.get())], Alphabet::BITS).expect("one report")
}

fn disclose(experiment: &TrustedExperiment) -> Result<Disclosure, TrustedError> {
    experiment.disclosure(0, DisclosedReward::new(0.25)?)
}

fn product(_: Client) {}

#[test]
fn what_may_be_done_with_rewards_and_noise_compiles() {
    store(0.25);
    println!("{:?}", Reward::new(0.25));
    product(Client::new(Budget::UNLIMITED));
    let _simulated: (SimulatedClient, SeededNoise) =
        (SimulatedClient::seeded(1, 2), SeededNoise::new(1, 2));
    let _ = report;
    let _ = disclose;
}
