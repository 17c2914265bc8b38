//! An app, its directory, and a scripted server.

use std::fs;
use std::path::Path;
use std::time::Duration;

use bandana_shared::accounting::concentrated::Rho;
use bandana_shared::identity::ExperimentId;
use bandana_shared::stored::{self, Stored};
use bandana_shared::wire::v1::DisclosureStatus;
use tonic::Status;

use super::disclosures::WAITING_DAYS_MAX;
use super::scripted::{Answer, Scripted};
use super::waiting::Waiting;
use super::{
    Agreement, DisclosedReward, Disclosures, KeepError, RhoBudget, TrustedError, TrustedExperiment,
};
use crate::grpc::Transport;
use crate::storage::{Directory, StorageError};
use crate::time::{Clock as _, SystemClock};

type Failure = Box<dyn std::error::Error>;

/// A reward whose digits and bytes are easy to find.
const REWARD: f64 = 0.739_118_273;

fn agreement() -> Result<Agreement, Failure> {
    Ok(Agreement::users_disclose_rewards(Rho::new(0.1)?))
}

async fn open(transport: &Transport, id: &str) -> Result<TrustedExperiment, Failure> {
    let id = ExperimentId::new(id)?;
    Ok(TrustedExperiment::open(transport.clone(), id, agreement()?).await?)
}

/// Runs an app beside a server.
fn with_server(
    app: impl AsyncFnOnce(Scripted, Transport) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (server, transport) = Scripted::start()?;
        app(server, transport).await
    })
}

fn keep(disclosures: &Disclosures, experiment: &TrustedExperiment) -> Result<(), Failure> {
    let disclosure = experiment.disclosure(1, DisclosedReward::new(REWARD)?)?;
    Ok(disclosures.keep(disclosure)?)
}

#[test]
fn verdicts_are_told_apart_and_every_attempt_has_the_same_bytes() -> Result<(), Failure> {
    use DisclosureStatus::{
        Duplicate, Expired, FutureDay, Malformed, Paused, Stopped, Unspecified,
    };
    with_server(async |server, transport| {
        let disclosures = crate::danger::disclosures_in_memory(RhoBudget::UNLIMITED)?;
        let experiment = open(&transport, "verdicts").await?;
        let disclosure = experiment.disclosure(1, DisclosedReward::new(REWARD)?)?;
        server.script().answers.extend([
            Answer::Verdict(Malformed),
            Answer::Verdict(Expired),
            Answer::Verdict(Stopped),
            Answer::Verdict(Paused),
            Answer::Verdict(FutureDay),
            Answer::Verdict(Unspecified),
            Answer::Number(99),
            Answer::Error(Status::unavailable("later")),
            Answer::Verdict(Duplicate),
        ]);
        let mut finals = Vec::new();
        for _ in 0..8 {
            let error =
                experiment.disclose(&disclosure, &disclosures).await.err().ok_or("a success")?;
            assert!(!format!("{error} {error:?} {disclosure:?}").contains("0.739"));
            finals.push(error.is_final());
        }
        assert_eq!(finals, [true, true, true, false, false, false, false, false]);
        experiment.disclose(&disclosure, &disclosures).await?;
        experiment.disclose(&disclosure, &disclosures).await?;
        let heard = server.script().heard.clone();
        assert!(heard.len() == 10 && heard.iter().all(|request| *request == heard[0]));
        assert_eq!(heard[0].day, SystemClock.now().day().get());

        let other = open(&transport, "other").await?;
        let refused = other.disclose(&disclosure, &disclosures).await;
        assert!(matches!(refused, Err(TrustedError::OtherExperiment)));
        assert_eq!(server.script().heard.len(), 10);
        Ok(())
    })
}

#[test]
fn each_verdict_has_its_end_and_what_waits_comes_again() -> Result<(), Failure> {
    with_server(async |server, transport| {
        let directory = tempfile::tempdir()?;
        let disclosures = Disclosures::open(directory.path(), RhoBudget::UNLIMITED)?;
        let experiment = open(&transport, "verdicts").await?;
        for _ in 0..5 {
            keep(&disclosures, &experiment)?;
        }
        let mut busy = Status::resource_exhausted("too much to do");
        busy.metadata_mut().insert("grpc-retry-pushback-ms", 90_000.into());
        server.script().answers.extend([
            Answer::Verdict(DisclosureStatus::Counted),
            Answer::Verdict(DisclosureStatus::Duplicate),
            Answer::Verdict(DisclosureStatus::Malformed),
            Answer::Verdict(DisclosureStatus::FutureDay),
            Answer::Error(busy),
        ]);
        let flushed = disclosures.flush(&transport, agreement()?).await;
        assert_eq!((flushed.sent, flushed.waiting), (2, 2));
        assert!(matches!(&flushed.dropped[..], [(_, TrustedError::Malformed { .. })]));
        assert!(matches!(&flushed.held_up[..], [(_, TrustedError::FutureDay)]));
        assert_eq!(flushed.retry_after, Some(Duration::from_secs(90)));
        assert!(flushed.storage.is_none());

        // Another process continues.
        drop(disclosures);
        let disclosures = Disclosures::open(directory.path(), RhoBudget::UNLIMITED)?;
        server.script().answers.push_back(Answer::Verdict(DisclosureStatus::Paused));
        let flushed = disclosures.flush(&transport, agreement()?).await;
        assert_eq!((flushed.sent, flushed.waiting), (0, 2));
        assert_eq!(flushed.retry_after, Some(Duration::from_mins(1)));
        let flushed = disclosures.flush(&transport, agreement()?).await;
        assert_eq!((flushed.sent, flushed.waiting), (2, 0));
        assert!(flushed.dropped.is_empty() && flushed.held_up.is_empty());
        assert!(!directory.path().join("disclosures").exists());
        let mut names: Vec<_> =
            server.script().heard.iter().map(|r| r.disclosure_id.clone()).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 5);
        Ok(())
    })
}

#[test]
fn an_experiment_that_can_not_be_asked_for_holds_up_no_other() -> Result<(), Failure> {
    with_server(async |server, transport| {
        let directory = tempfile::tempdir()?;
        let disclosures = Disclosures::open(directory.path(), RhoBudget::UNLIMITED)?;
        for id in ["a-gone", "b-paused", "c-fine"] {
            keep(&disclosures, &open(&transport, id).await?)?;
        }
        server.script().unknown.insert("a-gone".to_owned());
        server.script().answers.push_back(Answer::Verdict(DisclosureStatus::Paused));
        let flushed = disclosures.flush(&transport, agreement()?).await;
        assert_eq!((flushed.sent, flushed.waiting), (1, 2));
        let held_up: Vec<_> = flushed.held_up.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(held_up, ["a-gone", "b-paused"]);

        // The experiment's price exceeds the agreement.
        server.script().rho = 0.2;
        server.script().unknown.clear();
        let before = server.script().heard.len();
        let flushed = disclosures.flush(&transport, agreement()?).await;
        assert!(matches!(flushed.held_up[0].1, TrustedError::Beyond { .. }));
        assert_eq!((flushed.sent, flushed.waiting), (0, 2));
        assert_eq!(server.script().heard.len(), before, "a reward has left all the same");
        Ok(())
    })
}

#[test]
fn only_a_server_that_is_busy_or_gone_keeps_other_experiments_waiting() -> Result<(), Failure> {
    let failures = [
        (Answer::Error(Status::unavailable("not this one")), 2),
        (Answer::Error(Status::deadline_exceeded("not this one")), 2),
        (Answer::Error(Status::internal("not this one")), 2),
        (Answer::Error(Status::resource_exhausted("too much to do")), 0),
        (Answer::HangUp, 0),
    ];
    with_server(async |server, transport| {
        for (failure, sent) in failures {
            let directory = tempfile::tempdir()?;
            let disclosures = Disclosures::open(directory.path(), RhoBudget::UNLIMITED)?;
            for id in ["a-fails", "a-fails", "b-fine", "c-fine"] {
                keep(&disclosures, &open(&transport, id).await?)?;
            }
            let case = format!("{failure:?}");
            let before = server.script().heard.len();
            server.script().answers.push_back(failure);
            let flushed = disclosures.flush(&transport, agreement()?).await;
            assert_eq!((flushed.sent, flushed.waiting), (sent, 4 - sent), "{case}");
            assert!(matches!(&flushed.held_up[..],
                [(id, TrustedError::Call(_))] if id.as_str() == "a-fails"));
            assert_eq!(server.script().heard.len() - before, sent + 1, "{case}");
            let flushed = disclosures.flush(&transport, agreement()?).await;
            assert_eq!((flushed.sent, flushed.waiting), (4 - sent, 0), "{case}");
        }
        Ok(())
    })
}

#[test]
fn a_day_is_believed_near_the_devices_own_and_stays() -> Result<(), Failure> {
    with_server(async |server, transport| {
        let directory = tempfile::tempdir()?;
        let disclosures = Disclosures::open(directory.path(), RhoBudget::UNLIMITED)?;
        server.script().ahead = 5;
        let experiment = open(&transport, "days").await?;
        assert_eq!(experiment.recommend().await?, 1, "arms are given all the same");
        let disclosure = experiment.disclosure(1, DisclosedReward::new(REWARD)?)?;
        let refused = experiment.disclose(&disclosure, &disclosures).await;
        assert!(matches!(refused, Err(TrustedError::Day { .. })));
        keep(&disclosures, &experiment)?;
        let flushed = disclosures.flush(&transport, agreement()?).await;
        assert!(matches!(flushed.held_up[..], [(_, TrustedError::Day { .. })]));
        assert_eq!((flushed.waiting, server.script().heard.len()), (1, 0));

        server.script().ahead = 1;
        server.script().answers.push_back(Answer::Error(Status::unavailable("later")));
        let flushed = disclosures.flush(&transport, agreement()?).await;
        assert_eq!(flushed.waiting, 1);
        server.script().ahead = 0;
        let flushed = disclosures.flush(&transport, agreement()?).await;
        assert_eq!(flushed.sent, 1);
        let heard = server.script().heard.clone();
        assert_eq!(heard[0], heard[1]);
        assert!(heard[0].day > SystemClock.now().day().get());
        Ok(())
    })
}

#[test]
fn a_wrong_clock_erases_nothing_and_what_is_too_old_never_leaves() -> Result<(), Failure> {
    with_server(async |server, transport| {
        let directory = tempfile::tempdir()?;
        let today = SystemClock.now().day();
        let old = open(&transport, "old").await?;
        let mut waiting =
            Waiting::open(Box::new(Directory::lock(directory.path())?), RhoBudget::UNLIMITED)?;
        waiting.keep(old.disclosure(1, DisclosedReward::new(REWARD)?)?)?;
        waiting.hear(today.back(WAITING_DAYS_MAX + 1));
        waiting.write()?;
        drop(waiting);

        // The clocks are 100 days apart, and it is unknown whose is right.
        for ahead in [-100, 100] {
            server.script().ahead = ahead;
            let disclosures = Disclosures::open(directory.path(), RhoBudget::UNLIMITED)?;
            let flushed = disclosures.flush(&transport, agreement()?).await;
            assert!(matches!(flushed.held_up[..], [(_, TrustedError::Day { .. })]));
            assert_eq!((flushed.waiting, flushed.dropped.len()), (1, 0));
        }

        // The day in an answer whose experiment is beyond the agreement counts too. Disclosures
        // kept meanwhile age from then on.
        let disclosures = Disclosures::open(directory.path(), RhoBudget::UNLIMITED)?;
        keep(&disclosures, &open(&transport, "fresh").await?)?;
        server.script().ahead = 0;
        server.script().rho = 0.2;
        let flushed = disclosures.flush(&transport, agreement()?).await;
        assert!(matches!(&flushed.dropped[..],
            [(id, TrustedError::KeptTooLong { .. })] if id.as_str() == "old"));
        assert!(matches!(&flushed.held_up[..],
            [(id, TrustedError::Beyond { .. })] if id.as_str() == "fresh"));
        assert_eq!((flushed.waiting, server.script().heard.len()), (1, 0));
        Ok(())
    })
}

#[test]
fn a_call_that_is_given_up_is_made_again_with_the_same_bytes() -> Result<(), Failure> {
    with_server(async |server, transport| {
        let directory = tempfile::tempdir()?;
        let disclosures = Disclosures::open(directory.path(), RhoBudget::UNLIMITED)?;
        keep(&disclosures, &open(&transport, "silent").await?)?;
        server.script().answers.push_back(Answer::Silence);
        let (sending, agreed) = (disclosures.clone(), agreement()?);
        let over = transport.clone();
        let sending = tokio::spawn(async move { sending.flush(&over, agreed).await });
        while server.script().heard.is_empty() {
            tokio::task::yield_now().await;
        }
        sending.abort();
        assert!(sending.await.is_err());
        drop(disclosures);
        let disclosures = Disclosures::open(directory.path(), RhoBudget::UNLIMITED)?;
        let flushed = disclosures.flush(&transport, agreement()?).await;
        assert_eq!((flushed.sent, flushed.waiting), (1, 0));
        let heard = server.script().heard.clone();
        assert_eq!(heard[0], heard[1]);
        Ok(())
    })
}

#[test]
fn what_is_withdrawn_meanwhile_is_not_sent() -> Result<(), Failure> {
    with_server(async |server, transport| {
        let directory = tempfile::tempdir()?;
        let disclosures = Disclosures::open(directory.path(), RhoBudget::UNLIMITED)?;
        let experiment = open(&transport, "withdrawn").await?;
        for _ in 0..3 {
            keep(&disclosures, &experiment)?;
        }
        let unsure = Answer::Withdraw(disclosures.clone());
        server.script().answers.push_back(unsure);
        let flushed = disclosures.flush(&transport, agreement()?).await;
        assert_eq!((flushed.sent, flushed.waiting, server.script().heard.len()), (0, 0, 1));
        assert!(!directory.path().join("disclosures").exists());
        Ok(())
    })
}

#[test]
fn rewards_are_in_one_file_of_their_owner_and_in_no_text() -> Result<(), Failure> {
    with_server(async |_, transport| {
        let directory = tempfile::tempdir()?;
        let disclosures = Disclosures::open(directory.path(), RhoBudget::UNLIMITED)?;
        let experiment = open(&transport, "private").await?;
        let disclosure = experiment.disclosure(1, DisclosedReward::new(REWARD)?)?;
        let full = KeepError::Full(Box::new(disclosure));
        keep(&disclosures, &experiment)?;
        assert!(!format!("{disclosures:?} {full:?} {full}").contains("0.739"));
        let mut with_reward = Vec::new();
        for entry in fs::read_dir(directory.path())? {
            let entry = entry?;
            let bytes = fs::read(entry.path())?;
            if bytes.windows(8).any(|window| window == REWARD.to_le_bytes()) {
                with_reward.push(entry.file_name());
                #[cfg(unix)]
                {
                    use std::os::unix::fs::PermissionsExt as _;
                    assert_eq!(entry.metadata()?.permissions().mode() & 0o777, 0o600);
                }
            }
        }
        assert_eq!(with_reward, ["disclosures"]);
        assert!(directory.path().join("CACHEDIR.TAG").exists());
        Ok(())
    })
}

/// Disclosures of a future format.
#[derive(serde::Serialize, serde::Deserialize)]
struct Newer(u64);

impl Stored for Newer {
    const MAGIC: [u8; 4] = *b"BDdi";
    const VERSION: u16 = 9;
}

/// Another kind of file.
#[derive(serde::Serialize, serde::Deserialize)]
struct Foreign(u64);

impl Stored for Foreign {
    const MAGIC: [u8; 4] = *b"BDrw";
    const VERSION: u16 = 1;
}

#[test]
fn files_that_are_not_what_was_written_are_told_and_left_alone() -> Result<(), Failure> {
    fn refused(directory: &Path) -> Result<StorageError, Failure> {
        let before = fs::read(directory.join("disclosures")).ok();
        let error =
            Disclosures::open(directory, RhoBudget::UNLIMITED).err().ok_or("it was opened")?;
        assert_eq!(before, fs::read(directory.join("disclosures")).ok());
        Ok(error)
    }
    with_server(async |_, transport| {
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("disclosures");
        keep(
            &Disclosures::open(directory.path(), RhoBudget::UNLIMITED)?,
            &open(&transport, "damaged").await?,
        )?;
        let good = fs::read(&file)?;
        for place in 0..good.len() {
            let mut damaged = good.clone();
            damaged[place] ^= 0x10;
            let cut = good[..place].to_vec();
            for bytes in [damaged, cut] {
                fs::write(&file, bytes)?;
                let error = refused(directory.path())?;
                assert!(matches!(error, StorageError::DisclosuresDamaged { .. }), "{place}");
            }
        }
        fs::write(&file, stored::to_bytes(&Foreign(1))?)?;
        let error = refused(directory.path())?;
        assert!(error.to_string().contains("Disclosures::erase"), "{error}");
        fs::write(&file, stored::to_bytes(&Newer(1))?)?;
        let error = refused(directory.path())?;
        assert!(matches!(error, StorageError::Version { found: 9, known: 1, .. }), "{error}");
        fs::write(&file, &good)?;
        assert_eq!(Disclosures::open(directory.path(), RhoBudget::UNLIMITED)?.waiting(), 1);

        fs::write(directory.path().join("ledger"), "")?;
        let error = refused(directory.path())?;
        assert!(error.to_string().contains("a directory of their own"), "{error}");
        Ok(())
    })
}
