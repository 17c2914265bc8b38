//! An app whose users disclose their rewards.

use bandana_client::danger;
use bandana_client::grpc::Transport;
use bandana_client::trusted::{
    Agreement, DisclosedReward, Disclosures, RhoBudget, TrustedExperiment,
};
use bandana_shared::accounting::concentrated::Rho;
use bandana_shared::identity::ExperimentId;

/// The experiment, for an app that accepts any ρ.
///
/// # Errors
/// When it does not exist.
pub async fn open(device_url: &str, id: &str) -> anyhow::Result<TrustedExperiment> {
    let agreement = Agreement::users_disclose_rewards(Rho::new(1e6)?);
    let transport = Transport::to(device_url)?;
    Ok(TrustedExperiment::open(transport, ExperimentId::new(id)?, agreement).await?)
}

/// A ledger for rewards of as many people.
///
/// # Errors
/// None so far.
pub fn users() -> anyhow::Result<Disclosures> {
    Ok(danger::disclosures_in_memory(RhoBudget::UNLIMITED)?)
}

/// Plays the recommended arm this number of times, for as many people; arm 1 pays 1, all others 0.
///
/// # Errors
/// When a reward is refused.
pub async fn play(experiment: &TrustedExperiment, rounds: u32) -> anyhow::Result<()> {
    let ledger = users()?;
    for _ in 0..rounds {
        let arm = experiment.recommend().await?;
        let reward = DisclosedReward::new(f64::from(u8::from(arm == 1)))?;
        experiment.disclose(&experiment.disclosure(arm, reward)?, &ledger).await?;
    }
    Ok(())
}
