//! The driver's thread, on a host without a runtime.

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
