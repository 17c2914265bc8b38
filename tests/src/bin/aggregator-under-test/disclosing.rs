//! An app whose user discloses rewards, in a separate process, for tests that kill it.
//!
//! `disclosing-app DIRECTORY URL KEPT` opens the experiment "headlines", keeps this number of
//! rewards of 1 for arm 0, and prints one line once all are durable. When its standard input ends,
//! it sends them, and prints how many were sent, were dropped, and wait.

#![allow(clippy::print_stdout, reason = "its output is what the tests read")]

use std::io::Read as _;

use anyhow::Context as _;
use bandana_client::grpc::Transport;
use bandana_client::trusted::{
    Agreement, DisclosedReward, Disclosures, RhoBudget, TrustedExperiment,
};
use bandana_shared::accounting::concentrated::Rho;
use bandana_shared::identity::ExperimentId;

pub(super) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let [directory, url, kept] = arguments else {
        anyhow::bail!("usage: disclosing-app DIRECTORY URL KEPT");
    };
    let agreement = Agreement::users_disclose_rewards(Rho::new(0.5)?);
    let disclosures =
        Disclosures::open(directory, RhoBudget::UNLIMITED).context("the directory")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let transport = Transport::to(url)?;
        let kept: u32 = kept.parse()?;
        if kept > 0 {
            let id = ExperimentId::new("headlines")?;
            let experiment = TrustedExperiment::open(transport.clone(), id, agreement).await?;
            for _ in 0..kept {
                disclosures.keep(experiment.disclosure(0, DisclosedReward::new(1.0)?)?)?;
            }
        }
        println!("{} kept", disclosures.waiting());
        std::io::stdin().read_to_end(&mut Vec::new())?;
        let flushed = disclosures.flush(&transport, agreement).await;
        let (sent, dropped, waiting) = (flushed.sent, flushed.dropped.len(), flushed.waiting);
        println!("{sent} sent, {dropped} dropped, {waiting} wait");
        Ok(())
    })
}
