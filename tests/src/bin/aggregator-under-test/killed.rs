//! An app that chooses and rewards for as long as it lives, for a test that kills it.
//!
//! `killed-app DIRECTORY URL SECOND`: starts its clock at that second, and prints the second and
//! the number of every assignment. `killed-app DIRECTORY URL SECOND end` sends the remaining
//! reports, and prints the budget spent, in nano-nats, and the number of reports that wait.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use bandana_client::{Acceptance, Bandana, Budget, Clock, Consent, Timestamp};
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::rewards::Rewards;

/// A clock that the app moves.
struct Seconds(AtomicU64);

impl Clock for Seconds {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_ms(self.0.load(Ordering::SeqCst) * 1000)
    }
}

pub(super) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let [directory, url, second, rest @ ..] = arguments else {
        anyhow::bail!("usage: killed-app DIRECTORY URL SECOND [end]");
    };
    let seconds = Arc::new(Seconds(AtomicU64::new(second.parse()?)));
    let nats = PrivacyLoss::new;
    let bandana = Bandana::builder()
        .endpoint(url)?
        .directory(directory)
        .accept(
            Acceptance::unsigned(Epsilon::new(1.0)?, Rewards::binary())
                .least_release_delay(Duration::ZERO),
        )
        .budget(Budget::new(nats(1e6)?, 1, nats(1e6)?)?)
        .consent(Consent::Given)
        .clock(Arc::<Seconds>::clone(&seconds))
        .start()?;
    let experiment = bandana.experiment("killed")?;
    if rest.is_empty() {
        let mut output = std::io::stdout().lock();
        loop {
            let choice = experiment.draw();
            choice.reward(1.0);
            if let Some(assignment) = choice.assignment() {
                let second = seconds.0.fetch_add(1, Ordering::SeqCst);
                writeln!(output, "{second} {}", assignment.id().get())?;
                bandana.wake();
            }
            std::thread::yield_now();
        }
    }
    bandana.shutdown(Duration::from_mins(1)).then_some(()).context("the app does not end")?;
    let status = bandana.status();
    let spent = status.spent.lifetime.get();
    writeln!(std::io::stdout(), "{spent} {}", status.waiting_reports + status.open_assignments)?;
    Ok(())
}
