//! An app whose clock the test moves, and the server it talks to.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bandana_client::grpc::Transport;
use bandana_client::{Acceptance, Bandana, Budget, Builder, Clock, Consent, Ready, Timestamp};
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::curve::Mechanism;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::ExperimentId;
use bandana_shared::policy::{Policy, Weights};
use bandana_shared::rewards::Rewards;
use bandana_shared::specification::{Arm, ReleaseTiming, Specification};
use tokio::time::Instant;

use crate::fake_server::Recorder;

/// First second of a [`Hands`], since 1970.
pub const START: u64 = 1_700_000_000;

/// A clock that only the test moves.
#[derive(Debug)]
pub struct Hands(AtomicU64);

impl Hands {
    /// At [`START`].
    pub fn new() -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(START)))
    }

    /// Moves it.
    pub fn forward(&self, seconds: u64) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }
}

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_ms(self.0.load(Ordering::SeqCst) * 1000)
    }
}

/// Waits until `bandana` has read the answers to so many uploads since its start.
///
/// A recorder has an upload before the app has the answer. A clock that is moved in between makes
/// the call a long one, and a long call gives what is due a new time.
///
/// # Errors
/// When it has not read them within a minute.
pub fn uploads_answered(bandana: &Bandana, uploads: u64) -> anyhow::Result<()> {
    let deadline = Instant::now() + Duration::from_mins(1);
    while bandana.status().statistics.uploads_accepted < uploads {
        anyhow::ensure!(Instant::now() < deadline, "no answer: {:?}", bandana.status());
        std::thread::yield_now();
    }
    Ok(())
}

/// Two arms at epsilon 1, whose reports leave within 25 seconds.
///
/// # Errors
/// When the name is not one of an experiment.
pub fn specification(name: &str) -> anyhow::Result<Specification> {
    Ok(Specification::first(
        ExperimentId::new(name)?,
        Epsilon::new(1.0)?,
        Rewards::binary(),
        Mechanism::Linear,
        vec![Arm::new("red")?, Arm::new("green")?],
        ReleaseTiming { attribution_window_seconds: 5, release_delay_seconds_max: 20 },
    )?)
}

/// Serves an experiment with a uniform policy.
///
/// # Errors
/// When the name is not one of an experiment.
pub fn serve(recorder: &Recorder, name: &str) -> anyhow::Result<()> {
    let weights = Weights::uniform(&[true, true])?;
    let policy = Policy { version: 1, weights, time_to_live_seconds: 86_400 };
    recorder.serve(&specification(name)?, &policy);
    Ok(())
}

/// A server of the experiment "driven".
///
/// # Errors
/// When no port is free.
pub fn recorder() -> anyhow::Result<Recorder> {
    let recorder = Recorder::start(Timestamp::from_unix_ms(START * 1000).day())?;
    serve(&recorder, "driven")?;
    Ok(recorder)
}

/// An app that accepts and pays for all of it.
///
/// # Errors
/// Never, with the constants here.
pub fn app(
    transport: Transport,
    directory: &Path,
    clock: &Arc<Hands>,
) -> anyhow::Result<Builder<Ready<Transport>>> {
    let nats = PrivacyLoss::new;
    Ok(Bandana::builder()
        .transport(transport)
        .directory(directory)
        .accept(
            Acceptance::unsigned(Epsilon::new(1.0)?, Rewards::binary())
                .least_release_delay(Duration::ZERO),
        )
        .budget(Budget::new(nats(10_000.0)?, 7, nats(10_000.0)?)?)
        .consent(Consent::Given)
        .clock(Arc::<Hands>::clone(clock)))
}
