//! Damaged and exchanged files. Each case has its outcome, and none refills the budget.

use std::fs;
use std::path::Path;

use bandana_client::{Bandana, Choice, Reporting, StorageError, Unreported, danger};
use bandana_shared::stored::{self, Stored};

use super::{Failure, Hands, NAME, builder, choose, serve, started};

/// A directory after three reports.
fn used(clock: &std::sync::Arc<Hands>) -> Result<tempfile::TempDir, Failure> {
    let directory = tempfile::tempdir()?;
    let (bandana, mut tasks) = started(directory.path(), clock, 10)?;
    for _ in 0..3 {
        choose(&bandana, &mut tasks, 1)?;
        clock.forward(7200);
        assert_eq!(serve(&mut tasks, clock)?.len(), 1);
    }
    Ok(directory)
}

fn trouble(bandana: &Bandana) -> Option<String> {
    match bandana.status().reporting {
        Reporting::StorageUnusable(error) => Some(error.to_string()),
        _ => None,
    }
}

/// Opens the directory. Checks that either nothing is reported, or the whole spent budget is known.
/// Returns the error, if any.
fn open(directory: &Path, clock: &std::sync::Arc<Hands>) -> Result<Option<String>, Failure> {
    let before: Vec<_> = ["ledger", "state"].map(|n| fs::read(directory.join(n)).ok()).into();
    let (bandana, mut tasks) = builder(directory, clock, 10)?.build();
    bandana.experiment(NAME)?;
    let why = trouble(&bandana);
    if why.is_none() {
        let spent = bandana.status().spent.lifetime.get();
        assert!(spent >= 3_000_000_000, "{spent} of 3 nats are known");
        return Ok(None);
    }
    serve(&mut tasks, clock)?;
    let Choice::Arm(assignment) = bandana.experiment(NAME)?.draw() else {
        return Err("the app gets no arm".into());
    };
    assert_eq!(assignment.unreported(), Some(Unreported::StorageUnusable));
    clock.forward(10_000);
    assert_eq!(serve(&mut tasks, clock)?, []);
    drop((bandana, tasks));
    let after: Vec<_> = ["ledger", "state"].map(|n| fs::read(directory.join(n)).ok()).into();
    assert_eq!(before, after, "evidence was changed");
    Ok(why)
}

#[test]
fn flipped_bits_are_found_or_harmless() -> Result<(), Failure> {
    let clock = Hands::new();
    let mut found = 0;
    for file in ["ledger", "state"] {
        let length = fs::read(used(&clock)?.path().join(file))?.len();
        for place in (0..length).step_by(19) {
            let directory = used(&clock)?;
            let path = directory.path().join(file);
            let mut bytes = fs::read(&path)?;
            bytes[place] ^= 0x10;
            fs::write(&path, bytes)?;
            found += u32::from(open(directory.path(), &clock)?.is_some());
        }
    }
    assert!(found > 8, "{found}");
    Ok(())
}

#[test]
fn cut_files_are_found_or_cut_only_what_no_report_rests_on() -> Result<(), Failure> {
    let clock = Hands::new();
    let mut found = 0;
    for file in ["ledger", "state"] {
        let length = fs::read(used(&clock)?.path().join(file))?.len();
        for place in (0..length).step_by(29) {
            let directory = used(&clock)?;
            let path = directory.path().join(file);
            let bytes = fs::read(&path)?;
            fs::write(&path, &bytes[..place])?;
            found += u32::from(open(directory.path(), &clock)?.is_some());
        }
    }
    assert!(found > 8, "{found}");
    Ok(())
}

#[test]
fn missing_files_are_missed() -> Result<(), Failure> {
    let clock = Hands::new();
    for (missing, named) in [
        (&["ledger"][..], "`ledger` is missing"),
        (&["state"], "`state` is missing"),
        (&["ledger", "state"], "`ledger` is missing"),
    ] {
        let directory = used(&clock)?;
        for file in missing {
            fs::remove_file(directory.path().join(file))?;
        }
        let why = open(directory.path(), &clock)?.ok_or("they were not missed")?;
        assert!(why.contains(named), "{why}");
    }
    Ok(())
}

/// A state of a future format.
#[derive(serde::Serialize, serde::Deserialize)]
struct Newer(u64);

impl Stored for Newer {
    const MAGIC: [u8; 4] = *b"BDlg";
    const VERSION: u16 = 9;
}

#[test]
fn files_of_a_newer_library_are_left_alone() -> Result<(), Failure> {
    let clock = Hands::new();
    let directory = used(&clock)?;
    let path = directory.path().join("ledger");
    let mut bytes = fs::read(&path)?;
    let newer = stored::to_bytes(&Newer(7))?;
    bytes[..4].copy_from_slice(&u32::try_from(newer.len())?.to_le_bytes());
    bytes[4..4 + newer.len()].copy_from_slice(&newer);
    fs::write(&path, bytes)?;
    let why = open(directory.path(), &clock)?.ok_or("it was used")?;
    assert!(why.contains("format version 9"), "{why}");
    Ok(())
}

#[test]
fn two_clients_do_not_share_a_directory() -> Result<(), Failure> {
    let clock = Hands::new();
    let directory = tempfile::tempdir()?;
    let (first, _tasks) = started(directory.path(), &clock, 10)?;
    let (second, mut tasks) = started(directory.path(), &clock, 10)?;
    assert!(trouble(&second).ok_or("both use it")?.contains("in use by another process"));
    let choice = second.experiment(NAME)?.draw();
    let unreported = choice.assignment().and_then(bandana_client::Assignment::unreported);
    assert_eq!(unreported, Some(Unreported::StorageUnusable));
    clock.forward(10_000);
    assert_eq!(serve(&mut tasks, &clock)?, []);
    let reset = danger::reset(directory.path());
    assert!(matches!(reset, Err(StorageError::InUse { .. })));
    assert!(trouble(&first).is_none());
    Ok(())
}

#[test]
fn a_disk_that_takes_nothing_sends_nothing_until_it_does() -> Result<(), Failure> {
    let clock = Hands::new();
    let directory = tempfile::tempdir()?;
    let (bandana, mut tasks) = started(directory.path(), &clock, 10)?;
    // A directory in place of the state's file makes every write fail.
    let (state, aside) = (directory.path().join("state"), directory.path().join("aside"));
    fs::rename(&state, &aside)?;
    fs::create_dir(&state)?;
    bandana.experiment(NAME)?.draw().reward(1.0);
    // By then the report is to be sent.
    clock.forward(7200);
    for _ in 0..10 {
        clock.forward(1000);
        assert_eq!(serve(&mut tasks, &clock)?, []);
        assert!(matches!(bandana.status().reporting, Reporting::StorageFailing(_)));
    }
    fs::remove_dir(&state)?;
    fs::rename(&aside, &state)?;
    clock.forward(1000);
    assert_eq!(serve(&mut tasks, &clock)?.len(), 1);
    assert!(matches!(bandana.status().reporting, Reporting::On));
    assert!(bandana.status().statistics.writes_failed > 2);
    Ok(())
}

#[test]
fn a_reset_begins_anew() -> Result<(), Failure> {
    let clock = Hands::new();
    let directory = used(&clock)?;
    fs::remove_file(directory.path().join("ledger"))?;
    assert!(open(directory.path(), &clock)?.is_some());
    danger::reset(directory.path())?;
    let (bandana, mut tasks) = started(directory.path(), &clock, 10)?;
    assert!(trouble(&bandana).is_none());
    assert_eq!(bandana.status().spent.lifetime.get(), 0);
    choose(&bandana, &mut tasks, 1)
}

#[test]
fn a_path_that_is_no_directory_is_named() -> Result<(), Failure> {
    let clock = Hands::new();
    let file = tempfile::NamedTempFile::new()?;
    let (bandana, _tasks) = builder(file.path(), &clock, 10)?.build();
    let why = trouble(&bandana).ok_or("a file was used as a directory")?;
    assert!(why.contains(&*file.path().to_string_lossy()), "{why}");
    Ok(())
}
