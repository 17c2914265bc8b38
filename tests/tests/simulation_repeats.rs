//! A seed fixes what a simulation over real gRPC comes to.

use bandana_examples::aggregator_process::AggregatorProcess;
use bandana_examples::instance::Instance;
use bandana_examples::report::Report;
use bandana_examples::simulation::{self, Connections, Settings};
use bandana_shared::curve::Mechanism;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::wire::v1::Learner;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

async fn simulate(process: &AggregatorProcess, seed: u64) -> anyhow::Result<Report> {
    let settings = Settings {
        users: 600,
        refresh: 150,
        connections: 8,
        epsilon: Epsilon::new(2.0)?,
        mechanism: Mechanism::Linear,
        learner: Learner::LdpTs,
        seed,
    };
    let instance = Instance::paper_20();
    let mut connections = Connections::open(&process.server()?, settings.connections).await?;
    let outcome = simulation::run(&settings, &instance, &mut connections, |_| ()).await?;
    Ok(Report::new(&settings, &instance, &outcome, 0.0))
}

#[tokio::test]
async fn equal_seeds_give_equal_reports() -> anyhow::Result<()> {
    let data_dir = tempfile::tempdir()?;
    let process = AggregatorProcess::start(PROGRAM.as_ref(), data_dir.path()).await?;
    let first = simulate(&process, 1).await?;
    let again = serde_json::to_string(&simulate(&process, 1).await?)?;
    assert_eq!(serde_json::to_string(&first)?, again);
    let other = serde_json::to_string(&simulate(&process, 2).await?)?;
    assert_ne!(again, other);

    assert_eq!((first.reports_sent, first.reports_accepted, first.duplicates), (600, 600, 0));
    assert_eq!(first.arms.iter().map(|arm| arm.reports).sum::<u64>(), 600);
    assert!(first.certified_epsilon <= 2.0 && first.estimand == "mean reward");
    process.stop().await
}
