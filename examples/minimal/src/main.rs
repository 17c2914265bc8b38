//! The minimal app around the client. `.ci/size` measures it with different features.

use std::error::Error;

use bandana_client::{Acceptance, Bandana, Budget, Builder, Consent, Ready};
use bandana_shared::{accounting::loss::PrivacyLoss, epsilon::Epsilon, rewards::Rewards};

#[expect(clippy::print_stdout, reason = "the app shows an arm")]
fn main() -> Result<(), Box<dyn Error>> {
    run(|bandana| {
        let choice = bandana.experiment("button-colour")?.choose();
        println!("show {}", choice.label_or("blue"));
        choice.reward(1.0);
        Ok(())
    })
}

/// The app's consent, for any transport and storage.
macro_rules! agreed {
    ($builder:expr) => {
        $builder
            .accept(Acceptance::unsigned(Epsilon::new(1.0)?, Rewards::binary()))
            .budget(Budget::new(PrivacyLoss::new(5.0)?, 7, PrivacyLoss::new(20.0)?)?)
            .consent(Consent::Given)
    };
}

/// Variant in which the client talks to the aggregator and keeps its state in a directory.
#[cfg(feature = "grpc")]
fn run(app: impl Fn(&Bandana) -> Result<(), Box<dyn Error>>) -> Result<(), Box<dyn Error>> {
    use bandana_client::grpc::Transport;
    let url = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:7301".to_owned());
    let builder: Builder<Ready<Transport>> =
        agreed!(Bandana::builder().endpoint(&url)?.directory("bandana"));
    let bandana = builder.start()?;
    app(&bandana)?;
    bandana.shutdown(std::time::Duration::from_secs(2));
    Ok(())
}

/// Variant in which the app talks to the aggregator. This app answers the requests itself and
/// discards the reports.
#[cfg(not(feature = "grpc"))]
fn run(app: impl Fn(&Bandana) -> Result<(), Box<dyn Error>>) -> Result<(), Box<dyn Error>> {
    use bandana_client::{HostTransport, Task, UploadOutcome};
    let builder = Bandana::builder().host_transport();
    #[cfg(feature = "storage")]
    let builder = builder.directory("bandana");
    #[cfg(not(feature = "storage"))]
    let builder = builder.in_memory();
    let builder: Builder<Ready<HostTransport>> = agreed!(builder);
    let (bandana, mut tasks) = builder.build();
    app(&bandana)?;
    loop {
        match tasks.next_task()? {
            Task::Fetch(task) => {
                tasks.on_fetched(&task, answer(task.experiment_id.clone())?)?;
            }
            Task::Upload(task) => {
                std::hint::black_box(task.bytes());
                tasks.on_upload_result(task.id(), &UploadOutcome::Accepted)?;
            }
            Task::Shuffled(task) => tasks.on_upload_result(task.id(), &UploadOutcome::NoRelay)?,
            Task::Wait(_) | Task::Done => return app(&bandana),
        }
    }
}

#[cfg(not(feature = "grpc"))]
fn answer(
    experiment: bandana_shared::identity::ExperimentId,
) -> Result<bandana_client::Fetched, Box<dyn Error>> {
    use bandana_client::{Clock as _, Fetched, SystemClock};
    use bandana_shared::curve::Mechanism;
    use bandana_shared::policy::{Policy, Weights};
    use bandana_shared::specification::{Arm, ReleaseTiming, Specification};
    let arms = vec![Arm::new("red")?, Arm::new("green")?];
    let epsilon = Epsilon::new(1.0)?;
    let timing =
        ReleaseTiming { attribution_window_seconds: 3600, release_delay_seconds_max: 3600 };
    let mechanism = std::hint::black_box(Mechanism::Linear);
    let rewards = Rewards::binary();
    let specification =
        Specification::first(experiment, epsilon, rewards, mechanism, arms, timing)?;
    let weights = Weights::uniform(&specification.active_arms())?;
    let policy = Policy { version: 1, weights, time_to_live_seconds: 3600 };
    let day = SystemClock.now().day();
    Ok(Fetched { specification, signatures: Vec::new(), policy, day, store: None, view: None })
}
