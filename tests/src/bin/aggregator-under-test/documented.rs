//! The app of the README's chapter on embedding, taken from there by `regenerate`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an app shows something")]

use std::time::Duration;

use bandana_client::{Acceptance, Bandana, Budget, Consent, Signers};
use bandana_shared::{accounting::loss::PrivacyLoss, epsilon::Epsilon, rewards::Rewards};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = std::env::args().nth(1).unwrap_or("http://127.0.0.1:7301".to_owned());
    let nats = PrivacyLoss::new;
    let bandana = Bandana::builder()
        .endpoint(&server)?
        .directory("app-data/bandana")
        .accept(acceptance()?)
        // The most that a user pays: 5 nats in 7 days, 20 in all (docs/privacy.md).
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

/// The app accepts only this, whatever a server asks: rewards of 0 or 1, at most epsilon = 1 for a report.
fn acceptance() -> Result<Acceptance, Box<dyn std::error::Error>> {
    let (epsilon, rewards) = (Epsilon::new(1.0)?, Rewards::binary());
    if std::env::args().any(|argument| argument == "--demonstration") {
        eprintln!("DEMONSTRATION, for no real users: reports leave at once, and nothing is signed");
        let unsigned = Acceptance::unsigned(epsilon, rewards);
        return Ok(unsigned.least_release_delay(Duration::ZERO));
    }
    // Experiments that your operators' key has signed, and reports that hide when an arm was shown.
    // Put your operators' key here: `bandana keys show operator.key` prints it.
    let key = "fe1e430f306107d8a478c205e881326dfe92991bf9a7af9f042dc18aa39cbab5".parse()?;
    Ok(Acceptance::signed(epsilon, rewards, Signers::key(key)))
}

/// Runs it.
pub(super) fn run() -> anyhow::Result<()> {
    main().map_err(|error| anyhow::anyhow!("{error}"))
}
