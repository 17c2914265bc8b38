//! The app of the README's chapter on embedding, taken from there by `regenerate`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an app shows something")]

use std::time::Duration;

use bandana_client::{Acceptance, Bandana, Budget, Consent};
use bandana_shared::{accounting::loss::PrivacyLoss, epsilon::Epsilon, rewards::Rewards};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = std::env::args().nth(1).unwrap_or("http://127.0.0.1:7301".to_owned());
    let nats = PrivacyLoss::new;
    let bandana = Bandana::builder()
        .endpoint(&server)?
        .directory("app-data/bandana")
        // Whatever a server asks: rewards of 0 or 1, at most epsilon = 1 for each report,
        .accept(
            Acceptance::unsigned(Epsilon::new(1.0)?, Rewards::binary())
                // and, here, reports that leave at once rather than up to an hour later,
                .least_release_delay(Duration::ZERO),
        )
        // and 5 nats in any 7 days, 20 in all (docs/privacy.md says what that means).
        .budget(Budget::new(nats(5.0)?, 7, nats(20.0)?)?)
        .consent(Consent::Given)
        .start()?;

    let experiment = bandana.experiment("button-colour")?;
    if let Err(why) = experiment.wait_until_ready(Duration::from_secs(10)) {
        eprintln!("no arm yet, so the app shows its default: {why}");
    }
    let choice = experiment.choose(); // at once, offline too
    println!("show {}", choice.label_or("blue"));
    choice.reward(1.0); // when the user reacts

    // An app goes on; this one waits until its report has left.
    let mut status = bandana.status();
    while status.open_assignments + status.waiting_reports > 0 {
        std::thread::sleep(Duration::from_millis(100));
        status = bandana.status();
    }
    println!("reports counted: {}", status.statistics.uploads_accepted);
    Ok(())
}

/// Runs it.
pub(super) fn run() -> anyhow::Result<()> {
    main().map_err(|error| anyhow::anyhow!("{error}"))
}
