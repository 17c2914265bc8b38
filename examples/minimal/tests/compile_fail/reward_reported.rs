//! A report takes a bit. A reward is not a bit, and can't be converted to one.

use bandana_client::Reward;
use bandana_shared::identity::CellIndex;
use bandana_shared::upload::PackedReports;

fn report(arm: CellIndex, reward: Reward) -> PackedReports {
    PackedReports::single(arm, reward)
}

fn convert(arm: CellIndex, reward: Reward) -> PackedReports {
    PackedReports::single(arm, reward as bool)
}

fn main() {}
