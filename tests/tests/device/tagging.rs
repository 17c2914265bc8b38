//! A server that tries to recognise devices by what it gave them.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bandana_client::Clock as _;
use bandana_client::grpc::Transport;
use bandana_examples::relay_process::RelayProcess;
use bandana_shared::policy::{Policy, Weights};
use bandana_shared::wire::v1::UploadRequest;
use bandana_tests::driven_app::{Hands, app, recorder, specification};
use bandana_tests::fake_server::Recorder;
use prost::Message as _;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

const DEVICES: u32 = 10;

#[test]
fn nothing_that_a_server_gave_a_device_comes_back() -> anyhow::Result<()> {
    let recorder = recorder()?;
    tag(&recorder, || Ok(Transport::to(&recorder.url())?))
}

#[test]
fn behind_a_relay_devices_look_the_same() -> anyhow::Result<()> {
    let recorder = Recorder::start_as_gateway(Hands::new().now().day())?;
    let runtime = tokio::runtime::Runtime::new()?;
    let (flags, gateway) = (["--delay-seconds", "0"], recorder.url());
    let relay = runtime.block_on(RelayProcess::start(&flags, Path::new(PROGRAM), &gateway))?;
    tag(&recorder, || Ok(Transport::to(&relay.url)?.through_relay_unsigned()))?;
    let sealed = recorder.sealed();
    assert_eq!(sealed.len(), recorder.questions().len() + recorder.uploads().len());
    let looks: BTreeSet<_> = sealed.into_iter().collect();
    assert_eq!(looks.len(), 1, "fetches and uploads of all devices are alike: {looks:?}");
    for look in looks {
        assert_eq!(look.request_bytes, Some(512 + 55), "{look:?}");
        assert_eq!(look.answer_bytes, Some(2048 + 48), "{look:?}");
    }
    runtime.block_on(relay.stop())
}

/// Marks everything that it gives to ten devices, and looks for the marks in what they say.
fn tag(
    recorder: &Recorder,
    transport: impl Fn() -> anyhow::Result<Transport>,
) -> anyhow::Result<()> {
    let clock = Hands::new();
    let own_day = clock.now().day();
    let directories: Vec<_> =
        (0..DEVICES).map(|_| tempfile::tempdir()).collect::<Result<_, _>>()?;
    // Each device is started twice, the second time from what it has stored.
    for start in 0..2 {
        for (device, directory) in (1..).zip(&directories) {
            // A mark in everything: the policy's version and lifetime, the day, the store.
            let policy = Policy {
                version: 1 << 40 | u64::from(device),
                weights: Weights::uniform(&[true, true])?,
                time_to_live_seconds: 60 + device,
            };
            recorder.serve(&specification("driven")?, &policy);
            let day = [own_day, own_day.forward(1)];
            recorder.set_day(day[usize::try_from(device)? % 2]);
            let mut store = [0; 16];
            store[..4].copy_from_slice(&device.to_le_bytes());
            recorder.set_store(Some(bandana_shared::identity::StoreId::new(store)));

            let bandana = app(transport()?, directory.path(), &Arc::clone(&clock))?.start()?;
            let experiment = bandana.experiment("driven")?;
            experiment.wait_until_ready(Duration::from_mins(1))?;
            for _ in 0..3 {
                experiment.draw().reward(1.0);
            }
            clock.forward(100);
            assert!(bandana.shutdown(Duration::from_mins(1)));
            let sent = 3 * (start * DEVICES + device);
            assert_eq!(recorder.uploads().len(), usize::try_from(sent)?, "device {device}");
        }
    }
    let questions: BTreeSet<_> =
        recorder.questions().iter().map(prost::Message::encode_to_vec).collect();
    assert_eq!(questions.len(), 1, "fetches differ: {questions:?}");
    let mut said = BTreeSet::new();
    let mut names = BTreeSet::new();
    for upload in recorder.uploads() {
        let metadata = format!("{:?}", upload.metadata.into_headers());
        let message = UploadRequest::decode(upload.bytes.clone())?;
        assert!(names.insert(message.upload_id), "an id came twice");
        // All but the report: the arm, and a bit of noise.
        said.insert((metadata, message.digest, message.day, upload.bytes.len()));
    }
    assert_eq!(said.len(), 1, "uploads differ: {said:?}");
    Ok(())
}
