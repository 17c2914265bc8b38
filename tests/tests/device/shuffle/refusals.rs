//! Refusals between devices, a relay that shuffles, and the aggregator.

use std::net::IpAddr;

use anyhow::Context as _;
use bandana_client::{Acceptance, Shuffled};
use bandana_shared::accounting::delta::Delta;
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::gateway::GatewayKeys;
use bandana_shared::identity::{CellIndex, Digest, UploadId};
use bandana_shared::rewards::Rewards;
use bandana_shared::shuffling::{BatchSize, Envelope, ShuffledReport};
use bandana_shared::wire::v1::batches_client::BatchesClient;
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_shared::wire::v1::shuffler_client::ShufflerClient;
use bandana_shared::wire::v1::{
    GetShuffledRequest, SubmitBatchRequest, SubmitShuffledRequest, UploadResponse, UploadStatus,
};
use bandana_tests::harness::upload;
use tonic::Code;
use tonic::transport::Endpoint;

use super::world::{BATCH, Shuffling, Waiting, seal, submit, until_no_batch_waits};
use crate::relay::run;
use crate::users::User;

#[tokio::test]
async fn a_device_believes_no_other_relay_and_calls_no_aggregator_directly() -> anyhow::Result<()> {
    let shuffling = Shuffling::start(&[]).await?;
    // Without terms for shuffling the specification is refused.
    let plain = Acceptance::unsigned(shuffling.experiment.epsilon(), Rewards::binary());
    let refused =
        User::with(1, &shuffling.experiment, plain, &mut shuffling.transport()?).await.map(drop);
    assert!(refused.is_err());
    // So is one that certifies too little.
    let little =
        Shuffled::by(shuffling.flags.keys.clone(), PrivacyLoss::new(0.01)?, Delta::new(1e-6)?);
    let little =
        Acceptance::unsigned(shuffling.experiment.epsilon(), Rewards::binary()).shuffled(little);
    let refused =
        User::with(2, &shuffling.experiment, little, &mut shuffling.transport()?).await.map(drop);
    assert!(refused.is_err());
    // A direct upload is refused by the aggregator, whoever made it.
    let mut device = DeviceClient::connect(shuffling.aggregator.device_url.clone()).await?;
    let today = shuffling.envelope(1, 0).await?.day;
    let direct = upload(1, &shuffling.experiment, today, &[(0, true)])?;
    let answer = device.submit_upload(direct).await?.into_inner();
    assert_eq!(answer.status(), UploadStatus::Malformed, "{answer:?}");
    assert!(answer.message.contains("batches"), "{answer:?}");
    shuffling.stop().await
}

#[tokio::test]
async fn what_a_relay_refuses() -> anyhow::Result<()> {
    let shuffling = Shuffling::start(&[]).await?;
    let good = shuffling.envelope(1, 0).await?;
    let status = |answer: anyhow::Result<UploadResponse>| answer.map(|answer| answer.status());
    assert_eq!(status(shuffling.submit(&good).await)?, UploadStatus::Accepted);
    assert_eq!(status(shuffling.submit(&good).await)?, UploadStatus::Duplicate);
    let id = |number: u8| UploadId::new([number; 16]);
    for (envelope, expected) in [
        (
            Envelope { id: id(2), batch: BatchSize::new(BATCH - 1)?, ..good.clone() },
            UploadStatus::Malformed,
        ),
        (
            Envelope { id: id(3), cell: CellIndex::new(3)?, ..good.clone() },
            UploadStatus::UnknownArm,
        ),
        (
            Envelope { id: id(4), digest: Digest::new([7; 16]), ..good.clone() },
            UploadStatus::UnknownSpecification,
        ),
        (Envelope { id: id(5), day: good.day.back(7), ..good.clone() }, UploadStatus::Expired),
        (Envelope { id: id(6), day: good.day.forward(2), ..good.clone() }, UploadStatus::FutureDay),
    ] {
        assert_eq!(status(shuffling.submit(&envelope).await)?, expected, "{envelope:?}");
    }
    // What was not sealed for this relay, or is no envelope.
    let relay = &shuffling.relay.url;
    let sealed = seal(&shuffling.flags.keys, &good.to_bytes())?;
    let mut damaged = sealed.clone();
    damaged[100] ^= 1;
    let other: GatewayKeys = run(&[
        "gateway-key",
        "generate",
        "--out",
        &shuffling.folder.path().join("other").display().to_string(),
    ])
    .await?
    .lines()
    .next()
    .context("no key")?
    .parse()?;
    for garbage in [
        damaged,
        sealed[1..].to_vec(),
        Vec::new(),
        vec![0; Envelope::SEALED_BYTES],
        seal(&other, &good.to_bytes())?,
        seal(&shuffling.flags.keys, &good.to_bytes()[1..])?,
        seal(&shuffling.flags.keys, &[0; Envelope::BYTES])?,
    ] {
        let refused = submit(relay, garbage).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
    }
    let refused = submit(relay, vec![0; 2000]).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange, "{refused:?}");
    let (waiting, stopped) = shuffling.stop_relay().await?;
    assert_eq!(waiting, Waiting { waiting_alone: 1, in_batches: 0 });
    stopped.aggregator.stop().await
}

#[tokio::test]
async fn an_address_fills_no_more_of_a_batch_than_its_share() -> anyhow::Result<()> {
    let shuffling = Shuffling::start_sharing("0.4", &[]).await?;
    let relay = Endpoint::from_shared(shuffling.relay.url.clone())?;
    let submit = async |number, host| -> anyhow::Result<Result<UploadStatus, Code>> {
        let envelope = shuffling.envelope(number, 0).await?;
        let sealed = seal(&shuffling.flags.keys, &envelope.to_bytes())?;
        let relay = relay.clone().local_address(Some(IpAddr::from([127, 0, 0, host])));
        let mut shuffler = ShufflerClient::new(relay.connect().await?);
        let answer =
            shuffler.submit_shuffled(SubmitShuffledRequest { envelope: sealed.into() }).await;
        Ok(answer.map(|answer| answer.into_inner().status()).map_err(|status| status.code()))
    };
    let (accepted, later) = (Ok(UploadStatus::Accepted), Err(Code::ResourceExhausted));
    for (number, host, expected) in
        [(1, 1, accepted), (2, 1, accepted), (3, 1, later), (4, 2, accepted), (5, 2, accepted)]
    {
        assert_eq!(submit(number, host).await?, expected, "{number}");
    }
    // A fifth report, from elsewhere, fills the batch. Then the one that was told to come back is taken.
    assert_eq!(submit(6, 3).await?, accepted);
    assert_eq!(submit(3, 1).await?, accepted);
    until_no_batch_waits(shuffling.folder.path()).await?;
    let (waiting, stopped) = shuffling.stop_relay().await?;
    assert_eq!(waiting, Waiting { waiting_alone: 1, in_batches: 0 });
    stopped.aggregator.stop().await
}

#[tokio::test]
async fn a_batch_counts_once_and_as_a_whole_or_not_at_all() -> anyhow::Result<()> {
    let shuffling = Shuffling::start(&[]).await?;
    let mut reports = Vec::new();
    for number in 0..BATCH {
        reports.extend(shuffling.envelope(u8::try_from(number)?, 0).await?.report);
    }
    let good = SubmitBatchRequest {
        batch_id: vec![1; 16].into(),
        digest: shuffling.experiment.digest().as_bytes().to_vec().into(),
        day: shuffling.envelope(1, 0).await?.day.get(),
        arm: 0,
        reports: reports.clone().into(),
        keys: Vec::new().into(),
    };
    let mut batches = BatchesClient::connect(shuffling.aggregator.operator_url.clone()).await?;
    let other = |id: u8| SubmitBatchRequest { batch_id: vec![id; 16].into(), ..good.clone() };
    let one_less = reports.len() - ShuffledReport::SEALED_BYTES;
    for (batch, expected) in [
        (good.clone(), UploadStatus::Accepted),
        (good.clone(), UploadStatus::Duplicate),
        (
            SubmitBatchRequest { reports: reports[..one_less].to_vec().into(), ..other(2) },
            UploadStatus::Malformed,
        ),
        (
            SubmitBatchRequest { reports: [&reports[..], &reports].concat().into(), ..other(3) },
            UploadStatus::Malformed,
        ),
        (
            SubmitBatchRequest { batch_id: vec![1; 15].into(), ..good.clone() },
            UploadStatus::Malformed,
        ),
        // They are about arm 0.
        (SubmitBatchRequest { arm: 1, ..other(4) }, UploadStatus::Malformed),
        (SubmitBatchRequest { arm: 3, ..other(5) }, UploadStatus::UnknownArm),
        (
            SubmitBatchRequest { digest: vec![9; 16].into(), ..other(6) },
            UploadStatus::UnknownSpecification,
        ),
        (SubmitBatchRequest { day: good.day - 100, ..other(7) }, UploadStatus::Expired),
    ] {
        let answer = batches.submit_batch(batch).await?.into_inner();
        assert_eq!(answer.status(), expected, "{answer:?}");
    }
    // Of another gateway: it may be this one's in time.
    let foreign = SubmitBatchRequest { reports: vec![0; reports.len()].into(), ..other(8) };
    let refused = batches.submit_batch(foreign).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    assert_eq!(shuffling.counted().await?, [u64::from(BATCH), 0, 0]);
    let unknown = GetShuffledRequest { digest: vec![9; 16].into() };
    assert_eq!(batches.get_shuffled(unknown).await.unwrap_err().code(), Code::NotFound);
    shuffling.stop().await
}

#[tokio::test]
async fn reports_that_nobody_can_open_are_left_out_and_the_others_count() -> anyhow::Result<()> {
    let shuffling = Shuffling::start(&[]).await?;
    shuffling.submit(&shuffling.envelope(1, 1).await?).await?;
    // However many: the envelopes name a key of the gateway.
    for number in 2..=4 {
        let sealed = shuffling.envelope(number, 1).await?;
        let nonsense = Envelope { report: [number; ShuffledReport::SEALED_BYTES], ..sealed };
        shuffling.submit(&nonsense).await?;
    }
    // A report of another arm, in the pile of this one.
    let moved = Envelope { cell: CellIndex::new(1)?, ..shuffling.envelope(5, 2).await? };
    shuffling.submit(&moved).await?;
    shuffling.counts(1).await?;
    assert_eq!(shuffling.counted().await?, [0, 1, 0]);
    shuffling.stop().await
}

#[tokio::test]
async fn the_same_seal_twice_in_a_batch_is_one_report() -> anyhow::Result<()> {
    let shuffling = Shuffling::start(&[]).await?;
    let good = shuffling.envelope(1, 0).await?;
    for number in 1..=4 {
        shuffling.submit(&Envelope { id: UploadId::new([number; 16]), ..good.clone() }).await?;
    }
    shuffling.submit(&shuffling.envelope(5, 0).await?).await?;
    shuffling.counts(2).await?;
    shuffling.stop().await
}
