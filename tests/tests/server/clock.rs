//! A clock that jumps: the server's answers, and the recovery.

use std::path::Path;
use std::process::Output;

use bandana_shared::identity::Day;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::UploadStatus as S;
use bandana_tests::harness::{create, submit_one, tallies, three_arms};
use bandana_tests::page::{self, Samples};
use bandana_tests::test_clock::TestClock;
use bandana_tests::watched_server::WatchedServer;
use tempfile::TempDir;
use tonic::{Code, Status};

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// The correct day: 2024-10-04.
const TODAY: Day = Day::new(20_000);

const YEAR: u32 = 365;

/// A store with an experiment, and a clock for its server.
struct Site {
    folder: TempDir,
    clock: TestClock,
    experiment: Specification,
}

impl Site {
    /// A site that has counted uploads 0 and 1 of today.
    async fn new() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let clock = TestClock::at(TODAY, folder.path())?;
        let server = clock.serve(PROGRAM, &folder.path().join("data")).await?;
        let (_, mut operator) = server.clients().await?;
        let experiment = create(&mut operator, three_arms("clock")).await?;
        drop(operator);
        let site = Self { folder, clock, experiment };
        for number in [0, 1] {
            assert_eq!(site.submit(&server, TODAY, number).await?, S::Accepted);
        }
        server.stop().await?;
        Ok(site)
    }

    async fn start_on(&self, day: Day) -> anyhow::Result<WatchedServer> {
        self.clock.set(day)?;
        self.clock.serve(PROGRAM, &self.data_dir()).await
    }

    fn data_dir(&self) -> std::path::PathBuf {
        self.folder.path().join("data")
    }

    async fn submit(&self, server: &WatchedServer, day: Day, number: u128) -> anyhow::Result<S> {
        let (mut device, _) = server.clients().await?;
        submit_one(&mut device, &self.experiment, day, number).await
    }

    async fn counted(&self, server: &WatchedServer) -> anyhow::Result<u64> {
        let (_, mut operator) = server.clients().await?;
        Ok(tallies(&mut operator, &self.experiment).await?[0].0)
    }

    async fn watermark(&self, words: &[&str]) -> anyhow::Result<Output> {
        let mut command = self.clock.command(PROGRAM);
        command.arg("watermark").args(words).arg("--data-dir").arg(self.data_dir());
        Ok(command.output().await?)
    }
}

fn is_unavailable(outcome: anyhow::Result<S>) -> bool {
    let status = outcome.err().and_then(|error| error.downcast::<Status>().ok());
    status.is_some_and(|status| status.code() == Code::Unavailable)
}

#[tokio::test]
async fn a_clock_that_jumps_under_a_running_server_loses_nothing() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let mut server = site.start_on(TODAY).await?;
    for (number, jump) in [(10, TODAY.forward(YEAR)), (20, TODAY.back(YEAR))] {
        site.clock.set(jump)?;
        assert_eq!(site.submit(&server, TODAY, number).await?, S::Accepted);
        assert_eq!(site.submit(&server, TODAY, number).await?, S::Duplicate);
        // Days that only a wrong clock has seen are refused.
        let wrong = TODAY.forward(YEAR);
        assert_eq!(site.submit(&server, wrong, number + 1).await?, S::FutureDay);
        // The window has moved by one day at most: earlier days are not forgotten.
        assert_eq!(site.submit(&server, TODAY.back(5), number + 2).await?, S::Accepted);
        assert_eq!(site.submit(&server, TODAY, 0).await?, S::Duplicate);
    }
    server.log_until("restart the server").await?;
    let days_ahead = async || -> anyhow::Result<f64> {
        let page = page::get(&server.operator, "/metrics", &[]).await?;
        Ok(Samples::parse(&page.body)?.get("bandana_clock_ahead_seconds")? / 86_400.0)
    };
    site.clock.set(TODAY.forward(YEAR))?;
    assert_eq!(site.submit(&server, TODAY, 0).await?, S::Duplicate);
    // One day is trusted.
    assert!((days_ahead().await? - f64::from(YEAR - 1)).abs() < 0.5);
    site.clock.set(TODAY)?;
    assert_eq!(site.submit(&server, TODAY, 30).await?, S::Accepted);
    assert!(days_ahead().await? < 0.5);
    assert_eq!(site.counted(&server).await?, 7);
    server.stop().await?;

    let server = site.start_on(TODAY).await?;
    for number in [0, 1, 10, 20, 30] {
        assert_eq!(site.submit(&server, TODAY, number).await?, S::Duplicate);
    }
    assert_eq!(site.counted(&server).await?, 7);
    server.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_server_that_starts_a_year_ahead_takes_the_right_day() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let mut server = site.start_on(TODAY.forward(YEAR)).await?;
    server.log_until("so the clock may be wrong").await?;
    assert_eq!(site.submit(&server, TODAY, 0).await?, S::Duplicate);
    assert_eq!(site.submit(&server, TODAY, 2).await?, S::Accepted);
    server.stop().await?;
    // The clock is corrected; no other repair is needed.
    let server = site.start_on(TODAY).await?;
    assert_eq!(site.submit(&server, TODAY, 2).await?, S::Duplicate);
    assert_eq!(site.submit(&server, TODAY, 3).await?, S::Accepted);
    assert_eq!(site.counted(&server).await?, 4);
    server.stop().await?;

    // A year has really passed: the first upload of the new days confirms it.
    let later = TODAY.forward(YEAR);
    let server = site.start_on(later).await?;
    assert_eq!(site.submit(&server, TODAY, 4).await?, S::Accepted);
    assert_eq!(site.submit(&server, later.back(1), 5).await?, S::Accepted);
    for number in [0, 4, 6] {
        assert_eq!(site.submit(&server, TODAY, number).await?, S::Expired);
    }
    assert_eq!(site.counted(&server).await?, 6);
    server.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_server_that_starts_a_year_behind_waits_for_its_clock() -> anyhow::Result<()> {
    let site = Site::new().await?;
    // On the eighth day the window has moved normally.
    let server = site.start_on(TODAY.forward(7)).await?;
    assert_eq!(site.submit(&server, TODAY.forward(7), 2).await?, S::Accepted);
    server.stop().await?;

    let server = site.start_on(TODAY.back(YEAR)).await?;
    for day in [TODAY, TODAY.back(YEAR)] {
        assert!(is_unavailable(site.submit(&server, day, 3).await));
    }
    let shown = Samples::parse(&page::get(&server.operator, "/metrics", &[]).await?.body)?;
    let behind = "bandana_uploads_turned_away_total{reason=\"clock_behind\"}";
    assert_eq!(shown.count(behind)?, 2);
    // Late time synchronisation needs no restart.
    site.clock.set(TODAY.forward(7))?;
    assert_eq!(site.submit(&server, TODAY.forward(7), 3).await?, S::Accepted);
    assert_eq!(site.submit(&server, TODAY.forward(7), 2).await?, S::Duplicate);
    assert_eq!(site.submit(&server, TODAY, 0).await?, S::Expired);
    assert_eq!(site.counted(&server).await?, 4);
    server.stop().await?;

    // Also after days without a server; and no further than at a start.
    let server = site.start_on(TODAY.back(YEAR)).await?;
    assert!(is_unavailable(site.submit(&server, TODAY, 4).await));
    site.clock.set(TODAY.forward(YEAR))?;
    assert_eq!(site.submit(&server, TODAY.forward(7), 2).await?, S::Duplicate);
    server.stop().await?;
    let server = site.start_on(TODAY.back(YEAR)).await?;
    assert!(is_unavailable(site.submit(&server, TODAY, 4).await));
    site.clock.set(TODAY.forward(12))?;
    assert_eq!(site.submit(&server, TODAY.forward(12), 4).await?, S::Accepted);
    assert_eq!(site.submit(&server, TODAY.forward(7), 2).await?, S::Duplicate);
    assert_eq!(site.counted(&server).await?, 5);
    server.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_clock_that_is_behind_by_less_than_the_window_is_told_of() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let seconds_behind = async |server: &WatchedServer| -> anyhow::Result<f64> {
        let page = page::get(&server.operator, "/metrics", &[]).await?;
        Samples::parse(&page.body)?.get("bandana_clock_behind_seconds")
    };
    // At noon, three days before a day with counted uploads.
    let mut server = site.start_on(TODAY.back(3)).await?;
    server.log_until("the clock is behind").await?;
    assert!((seconds_behind(&server).await? - 2.5 * 86_400.0).abs() < 1.0);
    assert_eq!(site.submit(&server, TODAY.back(3), 2).await?, S::Accepted);
    assert_eq!(site.submit(&server, TODAY, 3).await?, S::FutureDay);
    assert!((seconds_behind(&server).await? - 2.5 * 86_400.0).abs() < 1.0);
    server.stop().await?;

    let server = site.start_on(TODAY).await?;
    assert!(seconds_behind(&server).await?.abs() < 0.5);
    assert_eq!(site.submit(&server, TODAY, 3).await?, S::Accepted);
    assert!(seconds_behind(&server).await?.abs() < 0.5);
    let log = server.stop().await?;
    assert!(!log.contains("the clock is behind"), "{log}");
    Ok(())
}

/// The exit code of a command, and its output.
fn said(output: Output) -> anyhow::Result<(Option<i32>, String)> {
    let words = [output.stdout, output.stderr].concat();
    Ok((output.status.code(), String::from_utf8(words)?))
}

#[tokio::test]
async fn a_window_that_a_wrong_clock_moved_is_mended_without_counting_twice() -> anyhow::Result<()>
{
    let site = Site::new().await?;
    let wrong = TODAY.forward(YEAR);
    // A device whose clock is wrong too confirms the server's clock.
    let server = site.start_on(wrong).await?;
    assert_eq!(site.submit(&server, wrong, 50).await?, S::Accepted);
    assert_eq!(site.submit(&server, TODAY, 0).await?, S::Expired);
    let (code, words) = said(site.watermark(&["show"]).await?)?;
    assert_eq!(code, Some(1), "{words}");
    assert!(words.contains("in use by another process"), "{words}");
    server.stop().await?;

    let mut server = site.start_on(TODAY).await?;
    server.log_until("the replay window begins after today").await?;
    assert!(is_unavailable(site.submit(&server, TODAY, 2).await));
    server.stop().await?;

    let (code, words) = said(site.watermark(&["show"]).await?)?;
    assert_eq!(code, Some(0), "{words}");
    for part in ["begins on 2025-09-28", "after today, 2024-10-04", "is 2024-10-05"] {
        assert!(words.contains(part), "{part:?} is not in {words}");
    }
    let (_, words) = said(site.watermark(&["show", "--json"]).await?)?;
    let dates = r#"{"oldest_day":"2025-09-28","earliest_day":"2024-10-05","today":"2024-10-04","trusted":[]}"#;
    assert_eq!(words.trim_end(), dates);
    // Uploads of the 4th were counted, and their ids are gone.
    for (day, part) in [
        ("2024-10-04", "on 2024-10-05 at the earliest"),
        ("1970-01-01", "could be counted again"),
        ("2025-09-29", "only the server moves it forward"),
    ] {
        let (code, words) = said(site.watermark(&["set", "--day", day]).await?)?;
        assert_eq!(code, Some(4), "{words}");
        assert!(words.contains(part), "{part:?} is not in {words}");
    }
    let (code, words) = said(site.watermark(&["set", "--day", "2024-10-05"]).await?)?;
    assert_eq!(code, Some(0), "{words}");

    // Only today is indistinguishable; tomorrow everything is as before.
    let server = site.start_on(TODAY).await?;
    assert!(is_unavailable(site.submit(&server, TODAY, 2).await));
    server.stop().await?;
    let tomorrow = TODAY.forward(1);
    let server = site.start_on(tomorrow).await?;
    assert_eq!(site.submit(&server, tomorrow, 2).await?, S::Accepted);
    for number in [0, 1] {
        assert_eq!(site.submit(&server, TODAY, number).await?, S::Expired);
    }
    assert_eq!(site.submit(&server, wrong, 50).await?, S::FutureDay);
    assert_eq!(site.counted(&server).await?, 4);
    server.stop().await?;
    // Uploads counted ahead of time are known when their day comes.
    let server = site.start_on(wrong).await?;
    assert_eq!(site.submit(&server, wrong, 50).await?, S::Duplicate);
    assert_eq!(site.submit(&server, tomorrow, 2).await?, S::Expired);
    assert_eq!(site.counted(&server).await?, 4);
    server.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_watermark_is_that_of_a_store() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let nowhere = site.folder.path().join("nowhere");
    let mut command = site.clock.command(PROGRAM);
    command.args(["watermark", "show", "--data-dir"]).arg(&nowhere);
    let (code, words) = said(command.output().await?)?;
    assert_eq!(code, Some(7), "{words}");
    assert!(words.contains(&format!("there is no store in {}", nowhere.display())), "{words}");
    assert!(!Path::exists(&nowhere), "it makes a store");
    Ok(())
}
