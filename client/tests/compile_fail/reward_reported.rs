//! A report takes a bit. A reward is none, and becomes none by a conversion.

use bandana_client::Reward;
use bandana_shared::identity::ArmIndex;
use bandana_shared::upload::PackedReports;

fn report(arm: ArmIndex, reward: Reward) -> PackedReports {
    PackedReports::single(arm, reward)
}

fn convert(arm: ArmIndex, reward: Reward) -> PackedReports {
    PackedReports::single(arm, reward.into())
}

fn main() {}
