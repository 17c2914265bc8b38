//! Private and disclosed rewards are separate types, and no handle for rewards of one kind accepts
//! those of the other.

use bandana_client::trusted::{DisclosedReward, TrustedExperiment};
use bandana_client::{Assignment, AssignmentId, Client, Reward, Timestamp};

fn app(assignment: &Assignment, reward: DisclosedReward) {
    assignment.reward(reward);
}

fn host(client: &mut Client, id: AssignmentId, reward: DisclosedReward, now: Timestamp) {
    client.reward(id, reward, now);
}

fn disclose(experiment: &TrustedExperiment, reward: Reward) {
    experiment.disclosure(0, reward);
}

fn convert(reward: Reward) -> DisclosedReward {
    reward.into()
}

fn main() {}
