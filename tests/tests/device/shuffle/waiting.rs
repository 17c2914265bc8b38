//! Reports and batches that wait at a relay, over restarts, keys, tokens and ends.

use std::time::Duration;

use bandana_examples::aggregator_process::AggregatorProcess;
use bandana_examples::relay_process::{AT_ONCE, RelayProcess, gateway_key};
use bandana_shared::gateway::GatewayKeys;
use bandana_shared::shuffling::{Envelope, ShuffledReport};
use bandana_shared::wire::v1::operator_client::OperatorClient;
use bandana_shared::wire::v1::{ExperimentName, UploadStatus};
use bandana_tests::test_clock::TestClock;
use rusqlite::{Connection, params};
use tonic::Code;

use super::world::{
    BATCH, Shuffling, Stopped, Waiting, make_tokens, seal, submit, until_no_batch_waits, whole,
};
use crate::relay::{address, program, run};
use crate::users::PATIENCE;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

#[tokio::test]
async fn the_aggregator_gets_full_batches_and_the_rest_waits_over_a_restart() -> anyhow::Result<()>
{
    let shuffling = Shuffling::start(&[]).await?;
    shuffling.report(0..13).await?;
    let (first, stopped) = shuffling.stop_relay().await?;
    let shuffling = stopped.start_relay().await?;
    shuffling.report(13..40).await?;
    let counted = {
        // As many as fill batches, whatever the arms were.
        let total = 40;
        let (waiting, stopped) = shuffling.stop_relay().await?;
        assert!(
            first.waiting_alone > 0 && waiting.waiting_alone <= 3 * u64::from(BATCH - 1),
            "{waiting:?}"
        );
        let shuffling = stopped.start_relay().await?;
        shuffling.counts(total - waiting.waiting_alone).await?;
        let counted = shuffling.counted().await?;
        shuffling.stop().await?;
        counted
    };
    assert!(counted.iter().all(|reports| *reports == whole(*reports)), "{counted:?}");
    Ok(())
}

#[tokio::test]
async fn what_is_left_at_the_end_of_an_experiment_is_dropped() -> anyhow::Result<()> {
    let shuffling = Shuffling::start(&[]).await?;
    shuffling.submit(&shuffling.envelope(1, 0).await?).await?;
    shuffling.submit(&shuffling.envelope(2, 1).await?).await?;
    let late = shuffling.envelope(3, 1).await?;
    let mut operator = OperatorClient::connect(shuffling.aggregator.operator_url.clone()).await?;
    let name = ExperimentName { experiment_id: "shuffled".to_owned() };
    operator.stop_experiment(name).await?;
    let (waiting, stopped) = shuffling.stop_relay().await?;
    assert_eq!(waiting.waiting_alone, 2);
    // A relay looks for ends when it starts, and now and then.
    let shuffling = stopped.start_relay().await?;
    let ended = async {
        while Waiting::read(shuffling.folder.path())?.waiting_alone > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, ended).await??;
    let answer = shuffling.submit(&late).await?;
    assert_eq!(answer.status(), UploadStatus::Stopped, "{answer:?}");
    assert_eq!(shuffling.counted().await?, [0, 0, 0]);
    shuffling.stop().await
}

#[tokio::test]
async fn batches_wait_for_a_relay_s_token_and_for_a_former_key() -> anyhow::Result<()> {
    let shuffling = Shuffling::start(&[]).await?;
    for number in 1..BATCH {
        let number = u8::try_from(number)?;
        shuffling.submit(&shuffling.envelope(number, 0).await?).await?;
    }
    let last = shuffling.envelope(99, 0).await?;
    let later = shuffling.envelope(98, 0).await?;
    let (of_devices, of_operators) =
        (address(&shuffling.aggregator.device_url)?, address(&shuffling.aggregator.operator_url)?);
    let Shuffling { folder, aggregator, relay, flags, experiment } = shuffling;
    let at = address(&relay.url)?;
    aggregator.stop().await?;
    // The relay goes on: it knows the experiment and the keys.
    let sealed = |envelope: &Envelope| seal(&flags.keys, &envelope.to_bytes());
    assert_eq!(submit(&relay.url, sealed(&last)?).await?.status(), UploadStatus::Accepted);
    relay.stop().await?;
    assert_eq!(Waiting::read(folder.path())?.in_batches, u64::from(BATCH));

    // The aggregator asks for tokens from now on, and its gateway has another key.
    let path = |name: &str| folder.path().join(name).display().to_string();
    let tokens = make_tokens(folder.path()).await?;
    std::fs::create_dir(folder.path().join("new"))?;
    let new_key = gateway_key(program(), &folder.path().join("new")).await?.display().to_string();
    let new_keys: GatewayKeys = run(&["gateway-key", "show", &new_key]).await?.trim().parse()?;
    let of_aggregator = ["--operator-tokens-file", &tokens, "--gateway-key-file", &new_key];
    let data_dir = folder.path().join("data");
    let start = |flags: Vec<String>| {
        let data_dir = data_dir.clone();
        async move {
            let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
            let addresses = (of_devices, of_operators);
            AggregatorProcess::start_at_both_with(addresses, &flags, program(), &data_dir).await
        }
    };
    let of_aggregator = of_aggregator.map(str::to_owned).to_vec();
    let aggregator = start(of_aggregator.clone()).await?;
    let gateway = aggregator.device_url.clone();
    let relay_with = |token: &str| {
        let (flags, token) = (flags.after(&AT_ONCE), path(token));
        let gateway = gateway.clone();
        async move {
            let flags = [&flags[..], &["--token-file", &token]].concat();
            RelayProcess::start_at(at, &flags, program(), &gateway).await
        }
    };
    // A viewer's token is not a relay's, so the relay learns nothing, and keeps nothing more.
    let relay = relay_with("looker-token").await?;
    let now = Envelope { keys: new_keys.digest(), ..later.clone() };
    let refused = submit(&relay.url, sealed(&now)?).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
    relay.stop().await?;
    let relay = relay_with("relay-token").await?;
    // What is sealed for the old key would be seen apart from others.
    let refused = submit(&relay.url, sealed(&later)?).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
    assert_eq!(submit(&relay.url, sealed(&now)?).await?.status(), UploadStatus::Accepted);
    relay.stop().await?;
    // All five were sealed for the old key: the batch is kept until the aggregator has it.
    assert_eq!(Waiting::read(folder.path())?.in_batches, u64::from(BATCH));
    aggregator.stop().await?;
    let former = ["--gateway-former-key-file".to_owned(), path("gateway-key")];
    let aggregator = start([of_aggregator, former.to_vec()].concat()).await?;
    let relay = relay_with("relay-token").await?;
    until_no_batch_waits(folder.path()).await?;
    let url = aggregator.operator_url.clone();
    let admin = path("admin-token");
    let name = experiment.experiment_id().to_string();
    let estimate = ["estimate", &*name, "--json", "--operator-url", &url, "--token-file", &admin];
    let estimates: serde_json::Value = serde_json::from_str(&run(&estimate).await?)?;
    assert_eq!(estimates["reports"], BATCH);
    relay.stop().await?;
    aggregator.stop().await
}

/// Fills a batch for this arm with what nobody can open.
async fn fill_with_nonsense(shuffling: &Shuffling, first: u8, arm: usize) -> anyhow::Result<()> {
    for number in first..first + u8::try_from(BATCH)? {
        let mut nonsense = shuffling.envelope(number, arm).await?;
        nonsense.report = [number; ShuffledReport::SEALED_BYTES];
        assert_eq!(shuffling.submit(&nonsense).await?.status(), UploadStatus::Accepted);
    }
    Ok(())
}

#[tokio::test]
async fn batches_that_nobody_can_open_hold_up_no_others_and_are_given_up() -> anyhow::Result<()> {
    let shuffling = Shuffling::start(&[]).await?;
    for number in [10, 20, 30] {
        fill_with_nonsense(&shuffling, number, 0).await?;
    }
    for number in 1..=5 {
        shuffling.submit(&shuffling.envelope(number, 1).await?).await?;
    }
    shuffling.counts(u64::from(BATCH)).await?;
    let today = shuffling.envelope(1, 0).await?.day;
    let (waiting, stopped) = shuffling.stop_relay().await?;
    // Their envelopes name a key of the gateway, so it will never open them: they are dropped at once.
    assert_eq!(waiting, Waiting { waiting_alone: 0, in_batches: 0 });
    // One for an unknown key waits, and is given up by a relay eight days later.
    let Stopped { folder, aggregator, flags, experiment, .. } = stopped;
    let store = Connection::open(folder.path().join("relay").join("bandana.sqlite3"))?;
    let insert =
        "INSERT INTO batch (id, digest, day, arm, reports) VALUES (randomblob(16), ?, ?, 0, ?)";
    let nonsense = vec![0_u8; BATCH as usize * ShuffledReport::SEALED_BYTES];
    store.execute(insert, params![experiment.digest().as_bytes(), today.get(), nonsense])?;
    drop(store);
    assert_eq!(Waiting::read(folder.path())?.in_batches, u64::from(BATCH));
    let clock = TestClock::at(today.forward(8), folder.path())?;
    let program = clock.wrapper(PROGRAM.as_ref(), folder.path())?;
    let of_relay = flags.after(&AT_ONCE);
    let relay = RelayProcess::start(&of_relay, &program, &aggregator.device_url).await?;
    until_no_batch_waits(folder.path()).await?;
    relay.stop().await?;
    aggregator.stop().await
}

#[tokio::test]
async fn a_relay_makes_no_store_unless_it_is_told_to() -> anyhow::Result<()> {
    let shuffling = Shuffling::start(&[]).await?;
    let (_, Stopped { folder, aggregator, flags, .. }) = shuffling.stop_relay().await?;
    std::fs::remove_dir_all(folder.path().join("relay"))?;
    let without: Vec<&str> =
        flags.after(&AT_ONCE).into_iter().filter(|flag| *flag != "--init").collect();
    let started = RelayProcess::start(&without, program(), &aggregator.device_url).await;
    assert!(started.is_err(), "the disk with its store is not mounted");
    assert!(!folder.path().join("relay").exists());
    aggregator.stop().await
}
