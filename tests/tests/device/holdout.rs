//! A holdout, from devices that draw whether they are held out to what learning has earned.

use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_client::grpc::{Transport, run_until};
use bandana_client::{Acceptance, Clock as _, Reward, SimulatedClient, SystemClock, Timestamp};
use bandana_shared::rewards::Rewards;
use bandana_shared::wire::v1::{self, ExperimentName};
use bandana_tests::harness::{Aggregator, three_arms};
use tonic::transport::Channel;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// A constant time on the server's day: everything due happens at once.
fn clock() -> Timestamp {
    static STOPPED: OnceLock<Timestamp> = OnceLock::new();
    *STOPPED.get_or_init(|| SystemClock.now())
}

#[tokio::test]
async fn a_holdout_tells_what_learning_has_earned() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let wanted = v1::Specification {
        simulation: true,
        epsilon: 4.0,
        attribution_window_seconds: 0,
        holdout_millionths: 400_000,
        ..three_arms("checkout")
    };
    let experiment = aggregator.create(wanted).await?;
    let id = experiment.experiment_id().clone();
    let url = aggregator.process.device_url.clone();
    let mut transport = Transport::new(Channel::from_shared(url)?.connect().await?);
    let soon = clock().after(Duration::from_mins(1));
    for user in 0..1000 {
        let mut client = SimulatedClient::seeded(9, user);
        client.enroll(id.clone(), Acceptance::unsigned(experiment.epsilon(), Rewards::binary()));
        let client = Mutex::new(client);
        run_until(&client, &mut transport, &clock, soon).await?;
        let mut client = client.into_inner()?;
        let assignment = client.draw(&id, clock())?;
        let likes = [0.9, 0.1, 0.2][assignment.arm().get()];
        let reward = f64::from(u8::from((user % 100) as f64 / 100.0 < likes));
        client.reward(assignment.id(), Reward::new(reward)?, clock())?;
        let client = Mutex::new(client);
        run_until(&client, &mut transport, &clock, soon).await?;
        ensure!(client.into_inner()?.statistics().uploads_accepted == 1, "user {user}");
        if user % 50 == 49 {
            let name = ExperimentName { experiment_id: id.to_string() };
            aggregator.operator.refresh_policy(name).await?;
        }
    }
    let found = aggregator.estimates(&experiment).await?;
    let held = found.holdout.context("no holdout")?;
    assert_eq!((found.reports, held.reports + held.reports_of_others), (1000, 1000));
    // Five standard deviations around 400.
    assert!((322..478).contains(&held.reports), "{held:?}");
    // Evenly the mean is .4, and a learner that has found the first arm has nearly .9.
    let (earned, own) = (held.earned.context("nothing")?, held.mean.context("no mean")?);
    assert!((own - 0.4).abs() < 0.2 && earned > 0.2, "{held:?}");
    assert!(held.low <= earned && earned <= held.high && held.low > 0.0, "{held:?}");
    // The learner learns from all of them: none of the arms has fewer reports than a sixth of 400.
    assert!(found.arms.iter().all(|arm| arm.reports > 66), "{:?}", found.arms);
    // Those held out do not follow the policy, and are not taken for a mismatch with it.
    assert_eq!(found.alarms, []);
    aggregator.process.stop().await?;
    Ok(())
}
