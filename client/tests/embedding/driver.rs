//! The driver's thread, on a host without a runtime.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::time::Duration;

use bandana_client::{Bandana, Consent, Reporting};

use super::{Failure, acceptance, budget};

#[test]
fn a_blocking_host_can_start_again_right_after_a_shutdown() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    for start in 0..50 {
        let bandana = Bandana::builder()
            .endpoint("http://127.0.0.1:1")?
            .directory(directory.path())
            .accept(acceptance()?)
            .budget(budget(1)?)
            .consent(Consent::Given)
            .start()?;
        let status = bandana.status();
        assert!(matches!(status.reporting, Reporting::On), "start {start}: {status:?}");
        assert!(bandana.shutdown(Duration::from_mins(1)));
    }
    Ok(())
}

/// Polls of a driver in a week in which nothing is due. Each is a time at which a device wakes up.
fn polls_in_an_idle_week(accepts: bool) -> Result<u32, Failure> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    let (bandana, driver) = Bandana::builder()
        .endpoint("http://127.0.0.1:1")?
        .in_memory()
        .accept(acceptance()?)
        .budget(budget(1)?)
        .consent(if accepts { Consent::Given } else { Consent::Withheld })
        .driver();
    let mut polls = 0;
    runtime.block_on(async {
        let mut work = pin!(driver.run());
        let counted = poll_fn(|context| {
            polls += 1;
            work.as_mut().poll(context)
        });
        tokio::time::timeout(Duration::from_hours(24 * 7), counted).await.ok();
    });
    drop(bandana);
    Ok(polls)
}

#[test]
fn an_idle_driver_sleeps() -> Result<(), Failure> {
    for accepts in [true, false] {
        // The first, one for what that has woken, and the end of the week.
        let polls = polls_in_an_idle_week(accepts)?;
        assert!(polls <= 4, "{polls} in a week");
    }
    Ok(())
}
