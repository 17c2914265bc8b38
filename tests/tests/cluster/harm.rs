//! A guardrail pauses an experiment once, whichever replica sees the harm.

use anyhow::{Context as _, ensure};
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::{
    self, ExperimentName, ExperimentState, ExperimentStatus, HarmAction, SetRecordRequest,
    UploadStatus, metric::Limit,
};
use bandana_tests::harness::{three_arms, upload};
use bandana_tests::postgres::Postgres;

use super::{PATIENCE, REPLICAS, Replica, ask, block_on};

/// Waits until a replica shows the experiment in this state.
async fn until(replica: &mut Replica, state: ExperimentState) -> anyhow::Result<ExperimentStatus> {
    let name = ExperimentName { experiment_id: "shop".to_owned() };
    let reached = async {
        loop {
            let status = replica.operator.get_experiment_status(name.clone()).await?.into_inner();
            if status.state() == state {
                return anyhow::Ok(status);
            }
        }
    };
    tokio::time::timeout(PATIENCE, reached).await.with_context(|| format!("never {state:?}"))?
}

/// A thousand ones of the metric for an arm, through this replica.
async fn returned(
    replica: &mut Replica,
    made: &Specification,
    number: u128,
    arm: usize,
) -> anyhow::Result<()> {
    let day = replica.day("shop").await?;
    let request = upload(number, made, day, &vec![(2 * arm + 1, true); 1000])?;
    let told = replica.device.submit_upload(request).await?.into_inner();
    ensure!(told.status() == UploadStatus::Accepted, "{told:?}");
    Ok(())
}

pub(super) fn pause_together(server: &Postgres) -> anyhow::Result<()> {
    let url = server.database()?;
    block_on(async {
        let mut replicas = Vec::new();
        for _ in 0..REPLICAS {
            replicas.push(Replica::start(&url).await?);
        }
        let [one, two, three] = &mut replicas[..] else { anyhow::bail!("not three") };
        let metric = v1::Metric {
            name: "returned".to_owned(),
            kind: v1::RewardKind::Binary.into(),
            high: 1.0,
            out_of_range: v1::OutOfRange::Refuse.into(),
            share_millionths: 500_000,
            limit: Some(Limit::AtMost(v1::MeanLimit { mean: 0.3 })),
            ..Default::default()
        };
        let message =
            v1::Specification { epsilon: 4.0, metrics: vec![metric], ..three_arms("shop") };
        let made = one.create(message).await?;
        let request = SetRecordRequest {
            experiment_id: "shop".to_owned(),
            on_harm: HarmAction::Pause.into(),
            ..Default::default()
        };
        two.operator.set_record(request).await?;
        returned(three, &made, 1, 1).await?;
        for replica in [&mut *one, &mut *two, &mut *three] {
            let status = until(replica, ExperimentState::Paused).await?;
            let alarms: Vec<_> = status.alarms.iter().map(|alarm| &*alarm.name).collect();
            ensure!(alarms.contains(&"guardrail-pause"), "{alarms:?}");
        }
        // Resumed at one, it is not paused for the same by another.
        let name = ExperimentName { experiment_id: "shop".to_owned() };
        two.operator.resume_experiment(name).await?;
        for replica in [&mut *one, &mut *two, &mut *three] {
            until(replica, ExperimentState::Running).await?;
        }
        returned(one, &made, 2, 0).await?;
        let status = until(three, ExperimentState::Paused).await?;
        let pauses = status.record.context("no record")?.harm_pauses;
        let known: Vec<_> = pauses.iter().map(|one| (one.arm, one.acknowledged)).collect();
        ensure!(known == [(1, true), (0, false)], "{known:?}");
        let count = "SELECT count(*)::text FROM audit WHERE action = 'pause'";
        ensure!(ask(&url, count).await? == [["2"]], "each harm pauses once");
        for replica in replicas {
            replica.process.stop().await?;
        }
        Ok(())
    })
}
