//! Verification of stores, in addition to that after every other case.

use anyhow::ensure;
use bandana_shared::identity::UnixSeconds;
use bandana_shared::signing::SigningKey;
use bandana_store::Verdict::Accepted;
use bandana_store::{AuditAction, OpenError, StoreError, verify_database};
use bandana_tests::postgres::{Postgres, query};

use super::Case;
use super::places::{Place, commit, create, entry, experiment, settings, upload};
use super::replicas::Case as DatabaseCase;

pub(crate) const ALL: &[(&str, Case)] = &[("a_store_in_use_is_checked_and_goes_on", while_in_use)];

pub(crate) const OF_DATABASES: &[(&str, DatabaseCase)] =
    &[("what_does_not_fit_in_a_database_is_named", named)];

fn while_in_use(place: &Place) -> anyhow::Result<()> {
    let mut store = place.open()?;
    let record = create(&mut *store, "used")?;
    let only = experiment(&record)?;
    for day in 100..105 {
        for number in 0..5 {
            let uploads = [upload(&only, number, day, 3)?, upload(&only, number, day - 1, 2)?];
            commit(&mut *store, &uploads, day)?;
            let verification = place.verify()?;
            ensure!(verification.is_sound(), "day {day}: {:?}", verification.findings);
        }
    }
    let revision = &record.revisions[0];
    let signature = SigningKey::from_secret(&[1; 32]).sign(revision, UnixSeconds::new(100));
    let signing = entry("used", AuditAction::AddSignature)?;
    store.add_signature(record.key, revision, &signature, UnixSeconds::new(1), &signing)?;
    let examined = |name: &str| {
        let checks = place.verify()?.checks;
        let of_name = checks.iter().find(|check| check.name.starts_with(name));
        anyhow::Ok(of_name.map(|check| check.examined))
    };
    ensure!(examined("experiments")? == Some(1));
    ensure!(examined("entries of the audit log")? == Some(2));
    // Five days have left the window of three, and the tallies of all six stay.
    ensure!(examined("tallies")? == Some(6), "{:?}", examined("tallies")?);
    ensure!(commit(&mut *store, &[upload(&only, 9, 104, 1)?], 104)? == [Accepted]);
    Ok(())
}

fn named(server: &Postgres) -> anyhow::Result<()> {
    let place = Place::postgres(server)?;
    let Place::Postgres(url) = &place else { anyhow::bail!("not a database") };
    let settings = settings(url)?;
    let empty = verify_database(&settings);
    ensure!(matches!(empty, Err(StoreError::Open(OpenError::Empty))), "{empty:?}");
    let mut store = place.open()?;
    let only = experiment(&create(&mut *store, "named")?)?;
    commit(&mut *store, &[upload(&only, 1, 98, 2)?, upload(&only, 2, 99, 2)?], 100)?;
    commit(&mut *store, &[upload(&only, 3, 101, 2)?], 101)?;
    ensure!(place.verify()?.is_sound(), "{:?}", place.verify()?.findings);
    for (change, undo, said) in [
        ("UPDATE tally SET arm = 7 WHERE day = 101", "UPDATE tally SET arm = 0", "it has 2 cells"),
        (
            "UPDATE tally SET experiment = experiment + 9",
            "UPDATE tally SET experiment = experiment - 9",
            "there is no such experiment",
        ),
        (
            "UPDATE tally SET replica = 5 WHERE day = 98",
            "UPDATE tally SET replica = 0 WHERE day = 98",
            "replica 5 has a tally of an expired day",
        ),
        (
            "UPDATE tally SET reports = 0, ones = 0 WHERE day = 101",
            "UPDATE tally SET reports = 2, ones = 2 WHERE day = 101",
            "day 101 has 1 uploads, and 0 reports",
        ),
        (
            "INSERT INTO tally VALUES (100, 1, 0, 1, 4, 4)",
            "DELETE FROM tally WHERE day = 100",
            "day 100 has 0 uploads, and 4 reports",
        ),
        (
            "UPDATE specification SET revision = 2",
            "UPDATE specification SET revision = 1",
            "revision 1 is not what it is stored as",
        ),
        (
            "UPDATE experiment SET weights = '{1,2,3}'",
            "UPDATE experiment SET weights = '{2147483648,2147483648}'",
            "experiment named: ",
        ),
        (
            "UPDATE watermark SET oldest_day = 100",
            "UPDATE watermark SET oldest_day = 99",
            "there is a table upload_99, whose day is before",
        ),
    ] {
        query(url, change)?;
        let findings = place.verify()?.findings;
        let told: Vec<String> = findings.iter().map(ToString::to_string).collect();
        ensure!(told.iter().any(|told| told.contains(said)), "{change}: {told:?}");
        query(url, undo)?;
        ensure!(place.verify()?.is_sound(), "{undo}: {:?}", place.verify()?.findings);
    }
    query(url, "UPDATE bandana_schema SET version = 1000")?;
    let newer = verify_database(&settings);
    ensure!(
        matches!(newer, Err(StoreError::Open(OpenError::NewerSchema { found: 1000, .. }))),
        "{newer:?}"
    );
    Ok(())
}
