//! A replica stopped inside each kind of transaction, while another one continues.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_shared::wire::v1::trusted_specification::Algorithm;
use bandana_shared::wire::v1::{
    self, AdacUcb, AskRequest, AskSessionRequest, DiscloseRequest, DisclosureStatus,
    OpenSessionRequest, RegisterDataSetRequest, TrustedExperimentName, TrustedSpecification,
    UploadStatus as S, ask_request, disclose_request, open_session_request,
    register_data_set_request,
};
use bandana_tests::database_way::{DatabaseWay, Stop};
use bandana_tests::harness::tallies;
use bandana_tests::postgres::{Postgres, query};
use tempfile::TempDir;
use tonic::{Code, Status};

use super::Case;
use super::site::{PATIENCE, Site, Uploads, block_on, submit};

pub(crate) const ALL: &[(&str, Case)] = &[
    ("who_is_stopped_in_a_change_slows_nobody", |server| stopped(server, Kind::Change)),
    ("who_is_stopped_in_a_debit_slows_nobody", |server| stopped(server, Kind::Debit)),
    ("who_is_stopped_in_a_session_slows_nobody", |server| stopped(server, Kind::Session)),
    ("who_is_stopped_in_a_disclosure_slows_nobody", |server| stopped(server, Kind::Disclosure)),
    ("who_is_stopped_at_the_start_slows_nobody", starting),
    ("who_is_stopped_in_an_upload_slows_nobody", uploading),
];

/// Time in which uploads are counted. The database ends idle transactions after three seconds.
const WINDOW: Duration = Duration::from_millis(1500);

/// The inverse of the minimum share of uploads, relative to undisturbed times. The share is about 1
/// if no upload waits, and a hundredth otherwise.
const SHARE: u64 = 4;

/// The kind of transaction in which a replica is stopped.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A change of an experiment, with its entry in the audit log.
    Change,
    /// A debit to a budget.
    Debit,
    /// A round of a session of the curator.
    Session,
    /// A disclosure to a trusted experiment.
    Disclosure,
}

impl Kind {
    /// A distinctive part of the transaction's messages to the database.
    fn says(self) -> &'static str {
        match self {
            Self::Change => "INSERT INTO audit",
            Self::Debit => "INSERT INTO curator_debit",
            Self::Session => "UPDATE curator_session SET rounds",
            Self::Disclosure => "INSERT INTO trusted_disclosure",
        }
    }

    /// Performs the operation once, under this number.
    async fn play(self, site: &Calls, number: u128) -> Result<(), Status> {
        match self {
            Self::Change => site.change(number).await,
            Self::Debit => site.ask().await,
            Self::Session => site.ask_session(number).await,
            Self::Disclosure => site.disclose(number).await,
        }
    }

    /// The number of operations that took effect, according to the database.
    fn made(self, url: &str) -> anyhow::Result<u64> {
        let count = match self {
            Self::Change => {
                "SELECT count(*) FROM audit WHERE experiment = 'changing'
                AND action <> 'create'"
            }
            Self::Debit => "SELECT count(*) FROM curator_debit WHERE purpose NOT LIKE 'session%'",
            Self::Session => "SELECT rounds FROM curator_session",
            Self::Disclosure => "SELECT count(*) FROM trusted_disclosure",
        };
        let rows = tokio::task::block_in_place(|| query(url, count))?;
        Ok(rows.first().context("no row")?[0].parse()?)
    }
}

/// Clients of a replica.
#[derive(Clone)]
struct Calls {
    operator: v1::operator_client::OperatorClient<tonic::transport::Channel>,
    curator: v1::curator_client::CuratorClient<tonic::transport::Channel>,
    disclosing: v1::trusted_client::TrustedClient<tonic::transport::Channel>,
}

impl Calls {
    fn at(site: &Site) -> Self {
        let (operator, curator) = (site.operator.clone(), site.curator.clone());
        Self { operator, curator, disclosing: site.disclosing.clone() }
    }

    async fn change(&self, number: u128) -> Result<(), Status> {
        let request = v1::AddArmRequest {
            experiment_id: "changing".to_owned(),
            label: format!("arm {number}"),
        };
        self.operator.clone().add_arm(request).await.map(drop)
    }

    async fn ask(&self) -> Result<(), Status> {
        let counts = v1::Counts { predicates: vec!["ill=yes".to_owned()] };
        let request = AskRequest {
            data_set: "people".to_owned(),
            price: Some(ask_request::Price::Epsilon(0.001)),
            beta: 0.0,
            question: Some(ask_request::Question::Counts(counts)),
            ..AskRequest::default()
        };
        self.curator.clone().ask(request).await.map(drop)
    }

    async fn ask_session(&self, number: u128) -> Result<(), Status> {
        // Each question concerns a value that the hypothesis is wrong about.
        let age = number % 50;
        let predicate = format!("age={age}");
        let request = AskSessionRequest {
            session: "habits".to_owned(),
            predicate,
            ..AskSessionRequest::default()
        };
        self.curator.clone().ask_session(request).await.map(drop)
    }

    async fn disclose(&self, number: u128) -> Result<(), Status> {
        let name = TrustedExperimentName { experiment_id: "headlines".to_owned() };
        let told = self.disclosing.clone().get_trusted_experiment(name).await?.into_inner();
        let request = DiscloseRequest {
            experiment_id: "headlines".to_owned(),
            disclosure_id: number.to_be_bytes().to_vec().into(),
            day: told.server_day,
            played: Some(disclose_request::Played::Arm(0)),
            reward: 0.5,
        };
        let told = self.disclosing.clone().disclose(request).await?.into_inner();
        match told.status() {
            DisclosureStatus::Counted => Ok(()),
            other => Err(Status::internal(format!("{other:?}"))),
        }
    }
}

/// A directory with a data set, and its description.
fn data_sets() -> anyhow::Result<TempDir> {
    let directory = tempfile::tempdir()?;
    let mut people = "age,ill\n".to_owned();
    for row in 0..4000 {
        // Only the first rows are younger than 40.
        let age = if row < 40 { row } else { 40 + row % 10 };
        writeln!(people, "{age},{}", ["no", "no", "no", "yes"][row % 4])?;
    }
    std::fs::write(directory.path().join("people.csv"), people)?;
    Ok(directory)
}

async fn prepare(site: &mut Site) -> anyhow::Result<()> {
    site.create("changing").await?;
    let budget = Some(register_data_set_request::Budget::Epsilon(30.0));
    let columns = vec!["age:0..49".to_owned(), "ill:no|yes".to_owned()];
    let (name, file) = ("people".to_owned(), "people.csv".to_owned());
    let request = RegisterDataSetRequest { name, file, columns, budget, find: None };
    site.curator.register_data_set(request).await?;
    let choice = v1::SessionChoice { updates: 40, threshold: 20 };
    let request = OpenSessionRequest {
        session: "habits".to_owned(),
        data_set: "people".to_owned(),
        columns: vec!["age".to_owned()],
        price: Some(open_session_request::Price::Epsilon(20.0)),
        plan: Some(open_session_request::Plan::Choice(choice)),
    };
    site.curator.open_session(request).await?;
    let algorithm = Some(Algorithm::AdacUcb(AdacUcb { arms: 2, beta: 1.0 }));
    let request = TrustedSpecification {
        experiment_id: "headlines".to_owned(),
        rewards_are_disclosed: true,
        rho: 0.5,
        algorithm,
    };
    site.trusted.create_trusted_experiment(request).await?;
    Ok(())
}

/// Whether the answer is permitted while a replica is stopped: success, or a failure without
/// effect.
fn is_true(told: &Result<(), Status>) -> bool {
    match told {
        Ok(()) => true,
        Err(status) => {
            let says_so = ["nothing was", "send the same bytes again"];
            status.code() == Code::Unavailable
                && says_so.iter().any(|words| status.message().contains(words))
        }
    }
}

fn stopped(server: &Postgres, kind: Kind) -> anyhow::Result<()> {
    let url = server.database()?;
    let database = url.split(['/', '?']).nth(3).context("no name")?.to_owned();
    let rows = data_sets()?;
    block_on(async {
        let flags = ["--data-sets", rows.path().to_str().context("an odd path")?];
        let mut site = Site::start(&url, &flags).await?;
        prepare(&mut site).await?;
        let experiment = site.create("uploads").await?;
        let day = site.day("uploads").await?;
        let way = DatabaseWay::open(server.socket()).await?;
        let partner = Site::start(&way.url(&database), &flags).await?;
        // Both replicas are up to date, and have open connections.
        for (number, site) in [(1, &site), (2, &partner)] {
            kind.play(&Calls::at(site), number).await?;
        }
        let uploads = Uploads::start(&site, &experiment, day);
        uploads.count(WINDOW / 3).await;
        let before = uploads.count(WINDOW).await;

        way.hold(kind.says(), Stop::BeforeCommit);
        let calls = Calls::at(&partner);
        let partners = tokio::spawn(async move { kind.play(&calls, 3).await });
        tokio::time::timeout(PATIENCE, way.until_held()).await.context("it is not stopped")??;
        // This replica repeats the same operation meanwhile.
        let calls = Calls::at(&site);
        let own = tokio::spawn(async move {
            let mut told = Vec::new();
            for number in 10.. {
                let outcome = kind.play(&calls, number).await;
                let is_done = outcome.is_ok();
                told.push(outcome);
                if is_done {
                    break;
                }
            }
            told
        });
        let during = uploads.count(WINDOW).await;
        eprintln!("{kind:?}: {before} uploads before, {during} while a replica is stopped");
        ensure!(site.is_ready().await?, "it is not ready because of another one");
        let told = tokio::time::timeout(PATIENCE, own).await.context("it never goes on")??;
        ensure!(told.iter().all(is_true), "{told:?}");
        eprintln!("{kind:?}: {} calls were turned away", told.len() - 1);
        way.release();
        let told = tokio::time::timeout(PATIENCE, partners).await??;
        eprintln!("{kind:?}: the one that was stopped says {told:?}");
        ensure!(is_true(&told), "{told:?}");
        ensure!(during * SHARE >= before, "{during} uploads, and {before} before");
        // The effects match the answers.
        let expected = if told.is_ok() { 4 } else { 3 };
        let made = kind.made(&url)?;
        ensure!(made == expected, "{made} of {expected} were made");
        kind.play(&Calls::at(&partner), 4).await?;
        let acknowledged = uploads.stop().await?;
        let counted = tallies(&mut site.operator, &experiment).await?[0].0;
        ensure!(counted == acknowledged, "{counted} of {acknowledged}");
        site.process.stop().await?;
        partner.process.stop().await
    })
}

fn starting(server: &Postgres) -> anyhow::Result<()> {
    let url = server.database()?;
    let database = url.split(['/', '?']).nth(3).context("no name")?.to_owned();
    block_on(async {
        let mut site = Site::start(&url, &[]).await?;
        let experiment = site.create("uploads").await?;
        let day = site.day("uploads").await?;
        let uploads = Uploads::start(&site, &experiment, day);
        uploads.count(WINDOW / 3).await;
        let before = uploads.count(WINDOW).await;
        let way = DatabaseWay::open(server.socket()).await?;
        way.hold("to_regclass('bandana_schema')", Stop::BeforeCommit);
        let url = way.url(&database);
        let partner = tokio::spawn(async move { Site::start(&url, &[]).await });
        tokio::time::timeout(PATIENCE, way.until_held()).await.context("it is not stopped")??;
        let during = uploads.count(WINDOW).await;
        eprintln!("start: {before} uploads before, {during} while a replica is stopped");
        ensure!(site.is_ready().await?, "it is not ready because of another one");
        ensure!(during * SHARE >= before, "{during} uploads, and {before} before");
        way.release();
        let partner = partner.await??;
        uploads.stop().await?;
        site.process.stop().await?;
        partner.process.stop().await
    })
}

fn uploading(server: &Postgres) -> anyhow::Result<()> {
    const NUMBER: u128 = 0x7172_7374_7576_7778_797a_6162_6364_6566;
    let url = server.database()?;
    let database = url.split(['/', '?']).nth(3).context("no name")?.to_owned();
    block_on(async {
        let mut site = Site::start(&url, &[]).await?;
        let experiment = site.create("uploads").await?;
        let day = site.day("uploads").await?;
        let way = DatabaseWay::open(server.socket()).await?;
        let mut partner = Site::start(&way.url(&database), &[]).await?;
        partner.day("uploads").await?;
        ensure!(submit(&partner.device, &experiment, day, 1).await? == S::Accepted);
        let uploads = Uploads::start(&site, &experiment, day);
        uploads.count(WINDOW / 3).await;
        let before = uploads.count(WINDOW).await;
        // The database has counted the upload, but can't report it yet, so the outcome stays
        // unknown.
        way.hold(NUMBER.to_be_bytes(), Stop::BeforeEnd);
        let (device, of_partner) = (partner.device.clone(), experiment.clone());
        let held = tokio::spawn(async move { submit(&device, &of_partner, day, NUMBER).await });
        tokio::time::timeout(PATIENCE, way.until_held()).await.context("it is not stopped")??;
        let during = uploads.count(WINDOW).await;
        eprintln!("upload: {before} uploads before, {during} while a replica is stopped");
        ensure!(during * SHARE >= before, "{during} uploads, and {before} before");
        // Another replica answers the same upload as undecidable.
        let told = submit(&site.device, &experiment, day, NUMBER).await;
        let status = told.err().context("it was decided about")?;
        ensure!(status.code() == Code::Unavailable, "{status}");
        way.release();
        let counted_there = held.await?;
        let told = submit(&site.device, &experiment, day, NUMBER).await?;
        ensure!(matches!(told, S::Accepted | S::Duplicate), "{told:?} after {counted_there:?}");
        let acknowledged = uploads.stop().await?;
        let counted = tallies(&mut site.operator, &experiment).await?[0].0;
        ensure!(counted == acknowledged + 2, "{counted} of {acknowledged} and 2");
        site.process.stop().await?;
        partner.process.stop().await
    })
}
