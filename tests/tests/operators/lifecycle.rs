//! Experiments from draft to end, with the audit log of all changes.

use anyhow::Context as _;
use bandana_shared::identity::{Day, Digest, UnixSeconds};
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::{
    AddArmRequest, AuditAction, CreateExperimentRequest, ExperimentName, ExperimentState,
    GetExperimentRequest, Learner, ListAuditEntriesRequest, RetireArmRequest, SelectArmRequest,
    UploadRequest, UploadStatus,
};
use bandana_tests::harness::{Aggregator, three_arms, upload};
use rusqlite::Connection;
use tonic::Code;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

fn draft(id: &str) -> CreateExperimentRequest {
    CreateExperimentRequest {
        specification: Some(three_arms(id)),
        learner: Learner::LdpTs.into(),
        draft: true,
        memory: None,
        ..Default::default()
    }
}

fn named(id: &str) -> ExperimentName {
    ExperimentName { experiment_id: id.to_owned() }
}

fn question(id: &str) -> GetExperimentRequest {
    GetExperimentRequest { experiment_id: id.to_owned() }
}

fn revision(status: &bandana_shared::wire::v1::ExperimentStatus) -> anyhow::Result<Specification> {
    let message = status.specification.as_ref().context("no specification")?;
    Ok(Specification::try_from(message)?)
}

#[tokio::test]
async fn devices_see_nothing_of_a_draft_until_it_is_started() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    aggregator.operator.create_experiment(draft("later")).await?;
    let retire = RetireArmRequest { experiment_id: "later".to_owned(), arm: 0 };
    let status = aggregator.operator.retire_arm(retire).await?.into_inner();
    assert_eq!(status.state(), ExperimentState::Draft);
    let mut aggregator = aggregator.kill_and_restart().await?;

    // The same error as for an experiment that does not exist.
    let hidden = aggregator.device.get_experiment(question("later")).await.unwrap_err();
    let absent = aggregator.device.get_experiment(question("never")).await.unwrap_err();
    assert_eq!((hidden.code(), absent.code()), (Code::NotFound, Code::NotFound));
    assert_eq!(hidden.message().replace("later", "never"), absent.message());
    let select = || SelectArmRequest { experiment_id: "later".to_owned(), ..Default::default() };
    let hidden = aggregator.device.select_arm(select()).await.unwrap_err();
    assert_eq!(hidden.code(), Code::NotFound);
    for step in [
        aggregator.operator.pause_experiment(named("later")).await,
        aggregator.operator.resume_experiment(named("later")).await,
    ] {
        assert_eq!(step.unwrap_err().code(), Code::FailedPrecondition);
    }
    // A correct guess of its digest gets the same answer as a wrong one, and nothing is counted.
    let specification = revision(&status)?;
    let today = Day::of_unix_seconds(now());
    let early = upload(1, &specification, today, &[(1, true)])?;
    for tried in [early.clone(), UploadRequest { runs: Vec::new(), ..early.clone() }] {
        let stranger = UploadRequest { digest: vec![9; 16].into(), ..tried.clone() };
        let answer = aggregator.device.submit_upload(tried.clone()).await?.into_inner();
        assert_eq!(answer.status(), UploadStatus::UnknownSpecification);
        let absent = aggregator.device.submit_upload(stranger.clone()).await?.into_inner();
        let words = |digest: &[u8]| Digest::try_from(digest).map(|digest| digest.to_string());
        let (own, strange) = (words(&tried.digest)?, words(&stranger.digest)?);
        assert_eq!(answer.message.replace(&own, &strange), absent.message);
        assert_eq!(answer.status, absent.status);
    }

    let started = aggregator.operator.start_experiment(named("later")).await?.into_inner();
    assert_eq!((started.state(), started.reports), (ExperimentState::Running, 0));
    let again = aggregator.operator.start_experiment(named("later")).await.unwrap_err();
    assert_eq!(again.code(), Code::FailedPrecondition);
    let given = aggregator.device.get_experiment(question("later")).await?.into_inner();
    assert!(given.experiment.is_some());
    assert_ne!(aggregator.device.select_arm(select()).await?.into_inner().arm, 0);
    let answer = aggregator.device.submit_upload(early).await?.into_inner();
    assert_eq!(answer.status(), UploadStatus::Accepted);
    aggregator.process.stop().await
}

fn now() -> u64 {
    use bandana_edge::clock::{Clock as _, SystemClock};
    SystemClock::new().unix_seconds()
}

#[tokio::test]
async fn the_audit_log_has_every_change_and_keeps_it() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let before = UnixSeconds::new(now());
    aggregator.operator.create_experiment(draft("audited")).await?;
    aggregator.create(three_arms("other")).await?;
    let add = AddArmRequest { experiment_id: "audited".to_owned(), label: "black".to_owned() };
    aggregator.operator.add_arm(add.clone()).await?;
    let operator = &mut aggregator.operator;
    operator.start_experiment(named("audited")).await?;
    operator.pause_experiment(named("audited")).await?;
    operator.resume_experiment(named("audited")).await?;
    operator.stop_experiment(named("audited")).await?;
    // The refused changes had no effect.
    operator.add_arm(add).await.unwrap_err();
    let mut aggregator = aggregator.kill_and_restart().await?;

    let all = ListAuditEntriesRequest::default();
    let entries = aggregator.operator.list_audit_entries(all).await?.into_inner().entries;
    let told: Vec<_> =
        entries.iter().map(|entry| (entry.action(), &*entry.experiment_id)).collect();
    assert_eq!(
        told,
        [
            (AuditAction::Stop, "audited"),
            (AuditAction::Resume, "audited"),
            (AuditAction::Pause, "audited"),
            (AuditAction::Start, "audited"),
            (AuditAction::AddArm, "audited"),
            (AuditAction::Create, "other"),
            (AuditAction::Create, "audited"),
        ]
    );
    let after = UnixSeconds::new(now());
    for entry in &entries {
        assert!((before.get()..=after.get()).contains(&entry.unix_seconds), "{entry:?}");
        assert_eq!(entry.caller, "(anybody)");
    }
    assert!(entries[4].detail.contains("3 (black)"), "{}", entries[4].detail);

    // Page by page, for one experiment.
    let mut numbers = Vec::new();
    let mut page = ListAuditEntriesRequest {
        experiment_id: "audited".to_owned(),
        limit: 4,
        ..Default::default()
    };
    loop {
        let answer = aggregator.operator.list_audit_entries(page.clone()).await?.into_inner();
        let Some(last) = answer.entries.last() else { break };
        page.before = last.number;
        numbers.extend(answer.entries.iter().map(|entry| entry.number));
    }
    let of_it = entries.iter().filter(|entry| entry.experiment_id == "audited");
    assert_eq!(numbers, of_it.map(|entry| entry.number).collect::<Vec<_>>());

    let file = aggregator.data_dir().join("bandana.sqlite3");
    let database = Connection::open(file)?;
    for change in ["UPDATE audit SET caller = 'nobody'", "DELETE FROM audit"] {
        let error = database.execute(change, []).unwrap_err().to_string();
        assert!(error.contains("audit log"), "{error}");
    }
    aggregator.process.stop().await
}
