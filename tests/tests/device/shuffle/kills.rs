//! Kills of a relay that shuffles, and of the aggregator, under load.

use bandana_examples::aggregator_process::AggregatorProcess;
use bandana_examples::relay_process::{AT_ONCE, RelayProcess};

use super::world::{Shuffling, whole};
use crate::relay::{address, program};
use crate::users::{Crowd, kills};

#[tokio::test]
async fn shuffled_reports_are_counted_once_though_relay_and_aggregator_are_killed()
-> anyhow::Result<()> {
    let mut shuffling = Shuffling::start(&[]).await?;
    let relay_url = shuffling.relay.url.clone();
    let (of_devices, of_operators, of_relay) = (
        address(&shuffling.aggregator.device_url)?,
        address(&shuffling.aggregator.operator_url)?,
        address(&relay_url)?,
    );
    let data_dir = shuffling.folder.path().join("data");
    let key = shuffling.folder.path().join("gateway-key").display().to_string();
    let crowd = Crowd::start(&shuffling.experiment, &shuffling.acceptance()?, &relay_url);
    for kill in 0..kills()? {
        crowd.report_more().await?;
        if kill % 2 == 0 {
            shuffling.relay.kill().await?;
            let flags = shuffling.flags.after(&AT_ONCE);
            let gateway = shuffling.aggregator.device_url.clone();
            shuffling.relay = RelayProcess::start_at(of_relay, &flags, program(), &gateway).await?;
        } else {
            shuffling.aggregator.kill().await?;
            let (flags, addresses) = (["--gateway-key-file", &key], (of_devices, of_operators));
            shuffling.aggregator =
                AggregatorProcess::start_at_both_with(addresses, &flags, program(), &data_dir)
                    .await?;
        }
    }
    let kept = crowd.end().await?;
    let (waiting, stopped) = shuffling.stop_relay().await?;
    let shuffling = stopped.start_relay().await?;
    shuffling.counts(kept - waiting.waiting_alone).await?;
    let counted = shuffling.counted().await?;
    assert!(counted.iter().all(|reports| *reports == whole(*reports)), "{counted:?}");
    shuffling.stop().await
}
