//! The end of a round: the store is replaced by an older one, and a backup is restored.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_shared::identity::Day;
use bandana_shared::wire::v1::{
    ExperimentName, ExperimentState, ListDataSetsRequest, UploadRequest, UploadStatus,
};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tokio::time::Instant;

use super::checks::{LAG, counted};
use super::disclosers::{experiments, named};
use super::figures::{Figures, Group};
use super::round::{Books, Ground, Plan, way_to};
use super::server::Server;
use super::trouble::{Backup, run};
use super::uploaders::{Tallies, tally};
use super::ways::Way;
use crate::harness::upload;
use crate::page;
use crate::postgres::{Postgres, query};

/// Number of uploads of each device that are sent again.
const AGAIN: usize = 100;

/// A backup, and the records to compare it with.
pub(super) struct Restored<'a> {
    pub(super) books: &'a Books,
    pub(super) backup: &'a Backup,
    pub(super) figures: &'a Figures,
    pub(super) plan: &'a Plan,
}

impl Restored<'_> {
    /// Checks that a server detects the replacement of its directory, and the guarantees of a
    /// restored store.
    ///
    /// # Errors
    /// When a step fails.
    pub(super) async fn check(&self, ground: &mut Ground, day: Day) -> anyhow::Result<()> {
        let Self { books, backup, figures, plan } = self;
        replace(ground, books, backup, day, figures).await?;
        let folder = ground.folder().join("restored");
        std::fs::create_dir(&folder)?;
        std::fs::copy(&backup.file, folder.join("bandana.sqlite3"))?;
        let store = folder.to_str().context("an odd name")?.to_owned();
        let arguments = vec!["--data-dir".to_owned(), store.clone()];
        let mut server =
            Server::new("restored".to_owned(), &plan.program, arguments, ground.folder(), 0)
                .await?;
        server.start(&[]).await?;
        figures.add(Group::Trouble, "backups restored", 1);
        self.check_uploads(&mut way_to(&server)?).await?;
        check_spent(&mut way_to(&server)?, figures).await?;
        self.end(&mut server).await;
        self.verify(ground, &["verify", "--data-dir", &store]).await
    }

    /// Replaces a database by an older one while replicas run, and checks that these follow it.
    ///
    /// # Errors
    /// When a step fails.
    pub(super) async fn check_database(
        &self,
        ground: &mut Ground,
        postgres: Arc<Postgres>,
        url: String,
    ) -> anyhow::Result<()> {
        for server in &mut ground.site.servers {
            server.start(&[]).await?;
        }
        let older = postgres.url("older");
        let name = url.split(['/', '?']).nth(3).context("no name")?.to_owned();
        let create = "CREATE DATABASE older TEMPLATE template0".to_owned();
        ask(&postgres, create).await?;
        let restore = postgres.program("pg_restore");
        let file = self.backup.file.to_str().context("an odd name")?;
        let (code, said) = run(&restore, &["--dbname", &older, file]).await?;
        ensure!(code == Some(0), "{said}");
        exchange(&postgres, &name).await?;
        self.figures.add(Group::Trouble, "databases rolled back", 1);
        for server in &ground.site.servers {
            until_ready(server, self.figures).await?;
        }
        // A replica without earlier state.
        let fresh = &mut ground.site.servers[0];
        self.end(fresh).await;
        fresh.start(&[]).await?;
        let expected = self.check_uploads(&mut way_to(fresh)?).await?;
        for server in &mut ground.site.servers {
            let (mut way, until) = (way_to(server)?, Instant::now() + LAG);
            while counted(&mut way, self.books).await? != expected && Instant::now() < until {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            let counted = counted(&mut way, self.books).await?;
            if counted != expected {
                let wrong = format!("rolled back: expected {expected:?}, counted {counted:?}");
                self.figures.wrong(wrong);
            }
            self.end(server).await;
        }
        self.verify(ground, &["verify", "--store", &url]).await
    }

    /// Checks that uploads acknowledged before the backup count no more when repeated, and later
    /// ones count once. Returns the resulting counts.
    async fn check_uploads(&self, way: &mut Way) -> anyhow::Result<Tallies> {
        let Self { books, backup, figures, plan } = self;
        resume(way, books).await?;
        let mut expected = counted(way, books).await?;
        let mut random = ChaCha8Rng::seed_from_u64(plan.seed);
        for book in &books.uploads {
            for _ in 0..AGAIN.min(book.last.len()) {
                let upload = &book.last[random.random_range(0..book.last.len())];
                match submit(way, &upload.request).await? {
                    UploadStatus::Duplicate => {
                        figures.add(Group::Honest, "uploads known to a restored store", 1);
                    }
                    UploadStatus::Accepted if upload.at > backup.begun => {
                        figures.add(Group::Honest, "uploads new to a restored store", 1);
                        tally(&mut expected, upload.experiment, &upload.reports);
                    }
                    other => figures.wrong(format!("a restored store answered {other:?}")),
                }
                let again = submit(way, &upload.request).await?;
                if again != UploadStatus::Duplicate {
                    figures.wrong(format!("a restored store answered {again:?} the second time"));
                }
            }
        }
        let counted = counted(way, books).await?;
        if counted != expected {
            figures.wrong(format!("restored: expected were {expected:?}, counted {counted:?}"));
        }
        Ok(expected)
    }

    async fn end(&self, server: &mut Server) {
        if let Err(error) = server.stop().await {
            self.figures.wrong(format!("{error:#}"));
        }
    }

    async fn verify(&self, ground: &Ground, arguments: &[&str]) -> anyhow::Result<()> {
        let (code, said) = ground.custodian.run(arguments).await?;
        if code != Some(0) {
            self.figures.wrong(format!("verify of a restored store ended with {code:?}: {said}"));
        }
        Ok(())
    }
}

async fn ask(postgres: &Arc<Postgres>, sql: String) -> anyhow::Result<Vec<Vec<String>>> {
    let url = postgres.url("postgres");
    tokio::task::spawn_blocking(move || query(&url, &sql)).await?
}

/// Replaces a database that is in use by the database `older`.
async fn exchange(postgres: &Arc<Postgres>, name: &str) -> anyhow::Result<()> {
    ask(postgres, format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false")).await?;
    let until = Instant::now() + LAG;
    loop {
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = ";
        ask(postgres, format!("{end} '{name}'")).await?;
        match ask(postgres, format!("ALTER DATABASE {name} RENAME TO newer")).await {
            Ok(_) => break,
            Err(error) if Instant::now() > until => return Err(error),
            // A connection has not ended yet.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    ask(postgres, format!("ALTER DATABASE older RENAME TO {name}")).await.map(drop)
}

/// Waits until a server reports readiness.
async fn until_ready(server: &Server, figures: &Figures) -> anyhow::Result<()> {
    let running = server.running().borrow().clone().context("it is down")?;
    let until = Instant::now() + LAG;
    while page::get(&running.operator, "/readyz", &[]).await?.status != 200 {
        if Instant::now() > until {
            figures.wrong(format!("{} does not follow: {}", server.name, server.tail()));
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Replaces the store by the backup while the server runs.
async fn replace(
    ground: &mut Ground,
    books: &Books,
    backup: &Backup,
    day: Day,
    figures: &Figures,
) -> anyhow::Result<()> {
    let store = std::path::PathBuf::from(&ground.custodian.store[1]);
    let server = &mut ground.site.servers[0];
    server.start(&[]).await?;
    let mut way = way_to(server)?;
    let beside = store.join("older");
    std::fs::copy(&backup.file, &beside)?;
    std::fs::rename(&beside, store.join("bandana.sqlite3"))?;
    figures.add(Group::Trouble, "stores replaced", 1);
    let experiment = books.experiments.first().context("no experiment")?;
    let told = way.device.submit_upload(upload(1, experiment, day, &[(0, true)])?).await;
    if let Ok(answer) = told {
        figures.wrong(format!("an upload into a replaced store was answered {answer:?}"));
    }
    match tokio::time::timeout(Duration::from_secs(30), server.ended()).await {
        Ok(Ok(status)) if status.code() == Some(1) => Ok(()),
        other => {
            figures.wrong(format!("a server whose store was replaced ended with {other:?}"));
            server.kill().await.ok();
            Ok(())
        }
    }
}

/// The backup may contain paused experiments.
async fn resume(way: &mut Way, books: &Books) -> anyhow::Result<()> {
    for experiment in &books.experiments {
        let name = ExperimentName { experiment_id: experiment.experiment_id().to_string() };
        let status = way.operator.get_experiment_status(name.clone()).await?.into_inner();
        if status.state() == ExperimentState::Paused {
            way.operator.resume_experiment(name).await?;
        }
    }
    Ok(())
}

async fn submit(way: &mut Way, request: &UploadRequest) -> anyhow::Result<UploadStatus> {
    Ok(way.device.submit_upload(request.clone()).await?.into_inner().status())
}

/// Checks that a restored store has no budget to spend, and no reward to release.
async fn check_spent(way: &mut Way, figures: &Figures) -> anyhow::Result<()> {
    let listed = way.curator.list_data_sets(ListDataSetsRequest::default()).await?.into_inner();
    for set in listed.data_sets {
        if set.spent_nanos != set.budget_nanos {
            figures.wrong(format!("restored: {set:?} can be asked"));
        }
    }
    for experiment in experiments() {
        let name = named(&experiment.experiment_id);
        let status = way.trusted_operator.get_trusted_status(name).await?.into_inner();
        if status.state() != ExperimentState::Stopped {
            figures.wrong(format!("restored: {status:?} goes on"));
        }
    }
    Ok(())
}
