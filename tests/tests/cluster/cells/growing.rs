//! Store cells that are added and taken out of use while uploads come.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use bandana_examples::environment::CleanEnvironment as _;
use bandana_shared::identity::Day;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::UploadStatus;
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_tests::harness::{three_arms, upload};
use bandana_tests::postgres::{Postgres, query};
use bandana_tests::test_clock::TestClock;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::task::JoinSet;
use tonic::transport::Channel;

use super::Case;
use super::site::{Databases, submit};
use crate::{PATIENCE, PROGRAM, Replica, block_on, poll_until};

pub(super) const ALL: &[(&str, Case)] = &[
    ("a_store_grows_from_two_cells_to_four_and_shrinks_and_nothing_counts_twice", grow),
    ("a_store_without_cells_gets_some_from_a_later_day_on", first_cells),
];

/// Workers that upload at the same time.
const WORKERS: usize = 8;

/// Runs `bandana cells` on these databases.
async fn cells(words: &[&str], home: &str, cells: &[String]) -> anyhow::Result<(bool, String)> {
    let mut command = Command::new(PROGRAM);
    command.clean_environment().arg("cells").args(words).args(["--store", home]);
    if !cells.is_empty() {
        command.args(["--store-cells", &cells.join(" ")]);
    }
    let ended = tokio::time::timeout(PATIENCE, command.output()).await??;
    let said = String::from_utf8(ended.stdout)? + &String::from_utf8(ended.stderr)?;
    Ok((ended.status.success(), said))
}

/// Uploads of these numbers, each of a day, from several workers at once. What is not answered goes
/// to the next replica, until it is.
async fn upload_all(
    ways: Vec<DeviceClient<Channel>>,
    experiment: &Specification,
    uploads: Vec<(u128, Day)>,
) -> anyhow::Result<BTreeMap<UploadStatus, usize>> {
    let mut workers = JoinSet::new();
    let uploads = Arc::new(uploads);
    for worker in 0..WORKERS {
        let (ways, experiment) = (ways.clone(), experiment.clone());
        let uploads = Arc::clone(&uploads);
        workers.spawn(async move {
            let mut told = Vec::new();
            for (number, day) in uploads.iter().skip(worker).step_by(WORKERS) {
                let request = upload(*number, &experiment, *day, &[(0, true)])?;
                let mut turn = worker;
                let status = loop {
                    let mut way = ways[turn % ways.len()].clone();
                    match way.submit_upload(request.clone()).await {
                        Ok(answer) => break answer.into_inner().status(),
                        Err(_) => tokio::task::yield_now().await,
                    }
                    turn += 1;
                };
                told.push(status);
            }
            anyhow::Ok(told)
        });
    }
    let mut counts = BTreeMap::new();
    let all = async {
        while let Some(worker) = workers.join_next().await {
            for status in worker?? {
                *counts.entry(status).or_default() += 1;
            }
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, all).await.context("uploads are not answered")??;
    Ok(counts)
}

fn numbers(from: u128, day: Day) -> Vec<(u128, Day)> {
    (from..from + 80).map(|number| (number, day)).collect()
}

/// A store that has two cells of four databases, and a clock.
struct Growing {
    /// With all four.
    databases: Databases,
    clock: TestClock,
    program: PathBuf,
    today: u32,
    _folder: TempDir,
}

impl Growing {
    fn new(server: &Postgres) -> anyhow::Result<Self> {
        let databases = Databases::new(server, 4)?;
        let today = "SELECT floor(extract(epoch FROM now()) / 86400)::integer";
        let today = query(&databases.home, today)?.first().context("no day")?[0].parse()?;
        let folder = tempfile::tempdir()?;
        let clock = TestClock::at(Day::new(today), folder.path())?;
        let program = clock.wrapper(Path::new(PROGRAM), folder.path())?;
        Ok(Self { databases, clock, program, today, _folder: folder })
    }

    /// A day of the test. The database's clock is real, and no clock may be ahead of it for long.
    fn day(&self, number: u32) -> Day {
        Day::new(self.today - 5 + number)
    }

    async fn start(&self, cells: usize) -> anyhow::Result<Replica> {
        self.start_with(&[], cells).await
    }

    async fn start_with(&self, flags: &[&str], cells: usize) -> anyhow::Result<Replica> {
        let list = self.databases.cells[..cells].join(" ");
        let flags = [flags, &["--store-cells", &list]].concat();
        Replica::start_program(&self.program, &flags, &self.databases.home).await
    }

    /// Runs `bandana cells` with this number of databases.
    async fn cells(&self, words: &[&str], cells: usize) -> anyhow::Result<(bool, String)> {
        self::cells(words, &self.databases.home, &self.databases.cells[..cells]).await
    }
}

fn ways(replicas: &[&Replica]) -> Vec<DeviceClient<Channel>> {
    replicas.iter().map(|replica| replica.device.clone()).collect()
}

fn all(status: UploadStatus) -> BTreeMap<UploadStatus, usize> {
    BTreeMap::from([(status, 80)])
}

fn grow(server: &Postgres) -> anyhow::Result<()> {
    let growing = Growing::new(server)?;
    block_on(async {
        let experiment = with_two(&growing).await?;
        with_four(&growing, &experiment).await?;
        with_the_last_two(&growing, &experiment).await
    })?;
    let verified = growing.databases.verify()?;
    ensure!(verified.is_sound() && verified.warnings.is_empty(), "{verified:?}");
    Ok(())
}

/// Plans and makes the change while replicas count in two cells, and are killed.
async fn with_two(growing: &Growing) -> anyhow::Result<Specification> {
    let day = |number| growing.day(number);
    growing.clock.set(day(0))?;
    let (mut one, two) = (growing.start(2).await?, growing.start(2).await?);
    let experiment = one.create(three_arms("grows")).await?;
    let told = upload_all(ways(&[&one, &two]), &experiment, numbers(0, day(0))).await?;
    ensure!(told == all(UploadStatus::Accepted), "{told:?}");

    // Tomorrow is too early, since replicas may be about to take its uploads.
    let [tomorrow, next] = [1, 2].map(|number| date_of(&growing.databases.home, day(number)));
    let (tomorrow, next) = (tomorrow?, next?);
    let (is_done, said) = growing.cells(&["grow", "--from", &tomorrow], 4).await?;
    ensure!(!is_done && said.contains("can begin on day"), "{said}");
    let (is_done, said) = growing.cells(&["plan"], 4).await?;
    let expected = format!(
        "store cells 3, 4 would be new\nstore cells 1, 2, 3, 4 would share the uploads from {next} \
         on\n"
    );
    let (store, said) = said.split_once('\n').context("one line")?;
    ensure!(is_done && store.starts_with("store postgres") && said == expected, "{said}");
    let (is_done, said) = growing.cells(&["grow"], 4).await?;
    ensure!(is_done && said.contains("store cells 3, 4 are new"), "{said}");
    let (is_done, said) = growing.cells(&["check"], 4).await?;
    ensure!(is_done && said.contains("uploads from 1970-01-01 on: store cells 1, 2\n"), "{said}");

    let uploading = tokio::spawn({
        let (ways, experiment) = (ways(&[&one, &two]), experiment.clone());
        let uploads = numbers(100, day(0));
        async move { upload_all(ways, &experiment, uploads).await }
    });
    one.process.kill().await?;
    let told = uploading.await??;
    ensure!(told.values().sum::<usize>() == 80, "{told:?}");
    two.process.kill().await?;
    Ok(experiment)
}

/// The change begins under load, and repeats of every day are found.
async fn with_four(growing: &Growing, experiment: &Specification) -> anyhow::Result<()> {
    let day = |number| growing.day(number);
    // One day before, the ids are still where they were.
    growing.clock.set(day(1))?;
    let (mut three, mut four) = (growing.start(4).await?, growing.start(4).await?);
    let told = upload_all(ways(&[&three, &four]), experiment, numbers(200, day(1))).await?;
    ensure!(told == all(UploadStatus::Accepted), "{told:?}");
    let (_, ids) = growing.databases.ids()?;
    ensure!(ids[2..] == [0, 0] && ids.iter().sum::<u64>() == 240, "{ids:?}");

    // The day comes while uploads of it and of the day before are under way.
    let mixed = numbers(300, day(1)).into_iter().chain(numbers(400, day(2))).collect();
    let uploading = tokio::spawn({
        let (ways, experiment) = (ways(&[&three, &four]), experiment.clone());
        async move { upload_all(ways, &experiment, mixed).await }
    });
    growing.clock.set(day(2))?;
    uploading.await??;
    until_day(&mut three, day(2)).await?;
    until_day(&mut four, day(2)).await?;
    // Those of the day that had not come are sent again.
    upload_all(ways(&[&three, &four]), experiment, numbers(400, day(2))).await?;
    for (number, of_day) in [(0, 0), (100, 0), (200, 1), (300, 1), (400, 2)] {
        for ways in [ways(&[&three]), ways(&[&four])] {
            let told = upload_all(ways, experiment, numbers(number, day(of_day))).await?;
            ensure!(told == all(UploadStatus::Duplicate), "{told:?}");
        }
    }
    let (_, ids) = growing.databases.ids()?;
    ensure!(ids.iter().all(|ids| *ids > 0) && ids.iter().sum::<u64>() == 400, "{ids:?}");
    let counted = four.tallies("grows").await?[0].0;
    ensure!(counted == 400, "{counted}");
    // Shrinking is the same.
    let (is_done, said) = growing.cells(&["grow", "--without", "1", "--without", "2"], 4).await?;
    ensure!(is_done && said.contains("store cells 3, 4 share the uploads from"), "{said}");
    for replica in [three, four] {
        replica.process.stop().await?;
    }
    Ok(())
}

/// Two cells are out of use, and their counts stay.
async fn with_the_last_two(growing: &Growing, experiment: &Specification) -> anyhow::Result<()> {
    let day = |number| growing.day(number);
    growing.clock.set(day(3))?;
    let mut replica = growing.start(4).await?;
    growing.clock.set(day(4))?;
    until_day(&mut replica, day(4)).await?;
    let before = growing.databases.ids()?.1;
    let told = upload_all(ways(&[&replica]), experiment, numbers(500, day(4))).await?;
    ensure!(told == all(UploadStatus::Accepted), "{told:?}");
    let after = growing.databases.ids()?.1;
    ensure!(before[..2] == after[..2], "{before:?}, {after:?}");
    let told = upload_all(ways(&[&replica]), experiment, numbers(0, day(0))).await?;
    ensure!(told == all(UploadStatus::Duplicate), "{told:?}");
    let counted = replica.tallies("grows").await?[0].0;
    ensure!(counted == 480, "{counted}");
    replica.process.stop().await?;
    // When the window has passed, their ids are gone, and their counts are not.
    let mut replica = growing.start_with(&["--replay-window-days", "1"], 4).await?;
    poll_until("ids stay", async || Ok(growing.databases.ids()?.1[..2] == [0, 0])).await?;
    let counted = replica.tallies("grows").await?[0].0;
    ensure!(counted == 480, "{counted} without ids");
    replica.process.stop().await
}

/// The date of a day.
fn date_of(url: &str, day: Day) -> anyhow::Result<String> {
    let date = format!("SELECT date '1970-01-01' + {}", day.get());
    let rows = tokio::task::block_in_place(|| query(url, &date))?;
    Ok(rows.first().context("no date")?[0].clone())
}

/// Waits until a replica's day has come.
async fn until_day(replica: &mut Replica, day: Day) -> anyhow::Result<()> {
    poll_until("the day does not come", async || Ok(replica.day("grows").await? == day)).await
}

fn first_cells(server: &Postgres) -> anyhow::Result<()> {
    let databases = Databases::new(server, 2)?;
    block_on(async {
        let mut alone = Replica::start(&databases.home).await?;
        let experiment = alone.create(three_arms("first")).await?;
        let day = alone.day("first").await?;
        for number in 0..20 {
            submit(&alone, &experiment, day, number).await?;
        }
        let (is_done, said) = cells(&["show"], &databases.home, &[]).await?;
        ensure!(is_done && said.contains("all uploads are at home"), "{said}");
        let (is_done, said) = cells(&["grow"], &databases.home, &databases.cells).await?;
        let expected = format!(
            "store cells 1, 2 are new\nstore cells 1, 2 share the uploads from {} on\n",
            date_of(&databases.home, day.forward(2))?
        );
        let (store, said) = said.split_once('\n').context("one line")?;
        ensure!(store.starts_with("store postgres"), "{store}");
        ensure!(is_done && said.starts_with(&expected), "{said}");
        // The change has not begun, so both count at home, and know each other's uploads.
        let mut with_list = databases.replica().await?;
        for number in 0..40 {
            let told = submit(&with_list, &experiment, day, number).await?;
            let expected =
                if number < 20 { UploadStatus::Duplicate } else { UploadStatus::Accepted };
            ensure!(told == expected, "{number}: {told:?}");
            let told = submit(&alone, &experiment, day, number).await?;
            ensure!(told == UploadStatus::Duplicate, "{number}: {told:?}");
        }
        for replica in [&mut alone, &mut with_list] {
            let counted = replica.tallies("first").await?[0].0;
            ensure!(counted == 40, "{counted}");
        }
        for replica in [alone, with_list] {
            replica.process.stop().await?;
        }
        anyhow::Ok(())
    })?;
    let (home, cells) = databases.ids()?;
    ensure!((home, &cells[..]) == (40, &[0, 0]), "{home}, {cells:?}");
    ensure!(databases.verify()?.is_sound());
    Ok(())
}
