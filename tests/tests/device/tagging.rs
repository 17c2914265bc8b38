//! A server that tries to recognise devices by what it gave them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bandana_client::Clock as _;
use bandana_client::grpc::Transport;
use bandana_shared::policy::{Policy, Weights};
use bandana_shared::wire::v1::UploadRequest;
use prost::Message as _;

use super::driver::{Hands, app, recorder, specification};

const DEVICES: u32 = 10;

#[test]
fn nothing_that_a_server_gave_a_device_comes_back() -> anyhow::Result<()> {
    let (recorder, clock) = (recorder()?, Hands::new());
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

            let transport = Transport::to(&recorder.url())?;
            let bandana = app(transport, directory.path(), &Arc::clone(&clock))?.start()?;
            let experiment = bandana.experiment("driven")?;
            experiment.wait_until_ready(Duration::from_mins(1))?;
            for _ in 0..3 {
                experiment.choose().reward(1.0);
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
