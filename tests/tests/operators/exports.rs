//! Exports of estimates and of daily tallies.

use std::path::Path;
use std::process::Output;

use anyhow::{Context as _, ensure};
use bandana_examples::environment::CleanEnvironment as _;
use bandana_shared::identity::Day;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::operator_client::OperatorClient;
use bandana_shared::wire::v1::{DailyTally, ExperimentName, ExportTalliesRequest, UploadStatus};
use bandana_tests::harness::{create, submit_one, tallies, three_arms, upload};
use bandana_tests::parquet_table::table_of_parquet;
use bandana_tests::test_clock::TestClock;
use bandana_tests::watched_server::WatchedServer;
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use tokio::process::Command;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Streaming};

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// 2024-10-04.
const TODAY: Day = Day::new(20_000);

async fn bandana(server: &WatchedServer, arguments: &[&str]) -> anyhow::Result<Output> {
    let mut command = Command::new(PROGRAM);
    command.args(["experiment", "export"]).args(arguments).clean_environment().kill_on_drop(true);
    command.env("BANDANA_OPERATOR_URL", format!("http://{}", server.operator));
    Ok(command.output().await?)
}

/// The standard output of an export.
async fn exported(server: &WatchedServer, arguments: &[&str]) -> anyhow::Result<Vec<u8>> {
    let output = bandana(server, arguments).await?;
    ensure!(output.status.success(), "{arguments:?}: {output:?}");
    Ok(output.stdout)
}

/// CSV without line breaks within cells, as a table.
fn table_of_csv(bytes: Vec<u8>) -> anyhow::Result<Vec<Vec<String>>> {
    let text = String::from_utf8(bytes)?;
    // One label contains a comma and quotes.
    let plain = text.replace("\"red, \"\"dark\"\"\"", "LABEL");
    let label = |cell: &str| cell.replace("LABEL", "red, \"dark\"");
    Ok(plain.lines().map(|line| line.split(',').map(label).collect()).collect())
}

/// Sends an upload that must be counted.
async fn report(
    server: &WatchedServer,
    experiment: &Specification,
    (number, day): (u128, Day),
    reports: &[(usize, bool)],
) -> anyhow::Result<()> {
    let (mut device, _) = server.clients().await?;
    let answer = device.submit_upload(upload(number, experiment, day, reports)?).await?;
    ensure!(answer.get_ref().status() == UploadStatus::Accepted, "{answer:?}");
    Ok(())
}

/// A server with reports of two expired days, and of a third day.
async fn server_with_history(folder: &Path) -> anyhow::Result<(WatchedServer, Specification)> {
    let clock = TestClock::at(TODAY, folder)?;
    let data_dir = folder.join("data");
    let server = clock.serve(PROGRAM, &data_dir).await?;
    let (_, mut operator) = server.clients().await?;
    let mut message = three_arms("colours");
    "red, \"dark\"".clone_into(&mut message.arms[0].label);
    let experiment = create(&mut operator, message).await?;
    drop(operator);
    report(&server, &experiment, (1, TODAY), &[(0, true), (0, true), (0, false), (2, false)])
        .await?;
    clock.set(TODAY.forward(1))?;
    report(&server, &experiment, (2, TODAY.forward(1)), &[(0, true)]).await?;
    report(&server, &experiment, (3, TODAY), &[(2, true)]).await?;
    server.stop().await?;

    clock.set(TODAY.forward(20))?;
    let server = clock.serve(PROGRAM, &data_dir).await?;
    report(&server, &experiment, (4, TODAY.forward(20)), &[(2, true), (2, true)]).await?;
    let (mut device, _) = server.clients().await?;
    let expired = submit_one(&mut device, &experiment, TODAY, 1).await?;
    assert_eq!(expired, UploadStatus::Expired);
    Ok((server, experiment))
}

#[tokio::test]
async fn estimates_over_time_are_of_each_day_and_those_before_it() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (server, _) = server_with_history(folder.path()).await?;
    let over_time = table_of_csv(exported(&server, &["colours", "--what", "over-time"]).await?)?;
    let names = ["experiment_id", "estimand", "alpha", "day", "arm", "label", "reports"];
    assert_eq!(over_time[0][..7], names);
    assert_eq!(over_time[0][7..], ["estimate", "low", "high"]);
    let counts: Vec<_> = over_time[1..].iter().map(|row| row[3..7].join("|")).collect();
    assert_eq!(
        counts,
        [
            // A report of that day came a day later.
            "2024-10-04|0|red, \"dark\"|3",
            "2024-10-04|2|blue|2",
            "2024-10-05|0|red, \"dark\"|4",
            "2024-10-05|2|blue|2",
            "2024-10-24|0|red, \"dark\"|4",
            "2024-10-24|2|blue|4",
        ]
    );
    // The last day has what `estimate` has now.
    let now = table_of_csv(exported(&server, &["colours"]).await?)?;
    let place = |name: &str| now[0].iter().position(|column| column == name);
    for (row, arm) in [(5, 1), (6, 3)] {
        for (column, name) in [(4, "arm"), (6, "reports"), (7, "estimate"), (8, "low"), (9, "high")]
        {
            let of_now = &now[arm][place(name).context("no such column")?];
            assert_eq!(&over_time[row][column], of_now, "{name}");
        }
    }
    // A lower confidence makes narrower bounds, and what makes no sense is refused.
    let narrow = exported(&server, &["colours", "--what", "over-time", "--alpha", "0.5"]).await?;
    let narrow = table_of_csv(narrow)?;
    assert!(narrow[6][9].parse::<f64>()? <= over_time[6][9].parse::<f64>()?);
    for (wrong, says) in [
        (["--alpha", "2"], "between 0 and 1"),
        (["--dishonest-share", "0.1"], "--what estimates"),
        (["--first-day", "2024-10-05"], "--what tallies"),
    ] {
        let arguments = [&["colours", "--what", "over-time"][..], &wrong[..]].concat();
        let refused = bandana(&server, &arguments).await?;
        assert!(!refused.status.success(), "{wrong:?}");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains(says), "{wrong:?}: {said}");
    }
    server.stop().await?;
    Ok(())
}

#[tokio::test]
async fn tallies_of_every_day_come_as_csv_and_as_parquet() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (server, _) = server_with_history(folder.path()).await?;
    let tallies = ["colours", "--what", "tallies"];
    let csv = table_of_csv(exported(&server, &tallies).await?)?;
    let names = ["experiment_id", "day", "arm", "label", "reports", "ones", "estimate"];
    assert_eq!(csv[0][..7], names);
    assert_eq!(csv[0][7], "standard_error");
    let counts: Vec<_> = csv[1..].iter().map(|row| row[..6].join("|")).collect();
    assert_eq!(
        counts,
        [
            "colours|2024-10-04|0|red, \"dark\"|3|2",
            "colours|2024-10-04|2|blue|2|1",
            "colours|2024-10-05|0|red, \"dark\"|1|1",
            "colours|2024-10-24|2|blue|2|2",
        ]
    );
    // epsilon = 1: t0/2^64 = 1/(1+e), so a share of 1/2 estimates a reward of 1/2, and the error of
    // the share is multiplied by 1/(1 - 2 t0/2^64) = (e+1)/(e-1).
    let number = |row: usize, column: usize| csv[row][column].parse::<f64>();
    let gain = (1_f64.exp() + 1.0) / (1_f64.exp() - 1.0);
    assert!((number(2, 6)? - 0.5).abs() < 1e-12, "{:?}", csv[2]);
    assert!((number(2, 7)? - gain * (0.25_f64 / 2.0).sqrt()).abs() < 1e-12, "{:?}", csv[2]);
    assert!((number(1, 6)? - (0.5 + gain / 6.0)).abs() < 1e-12, "{:?}", csv[1]);

    let path = folder.path().join("tallies.parquet");
    let out = path.to_str().context("a path in UTF-8")?;
    let as_parquet = [&tallies[..], &["--format", "parquet"]].concat();
    let to_file = [&as_parquet[..], &["--out", out]].concat();
    assert!(exported(&server, &to_file).await?.is_empty());
    assert_eq!(table_of_parquet(std::fs::read(&path)?)?, csv);
    assert_eq!(exported(&server, &as_parquet).await?, std::fs::read(&path)?);

    let days = ["--first-day", "2024-10-05", "--last-day", "2024-10-23"];
    let some = table_of_csv(exported(&server, &[&tallies[..], &days].concat()).await?)?;
    assert_eq!(some, [csv[0].clone(), csv[3].clone()]);
    let none = ["--last-day", "2024-10-03", "--format", "parquet"];
    let none = exported(&server, &[&tallies[..], &none].concat()).await?;
    assert_eq!(table_of_parquet(none)?, [csv[0].clone()]);
    server.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_parquet_file_has_types() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (server, _) = server_with_history(folder.path()).await?;
    let estimates = ["colours", "--dishonest-share", "0.01"];
    let csv = table_of_csv(exported(&server, &estimates).await?)?;
    let as_parquet = [&estimates[..], &["--format", "parquet"]].concat();
    let parquet = exported(&server, &as_parquet).await?;
    assert_eq!(table_of_parquet(parquet.clone())?, csv);
    let estimate = csv[0].iter().position(|name| name == "estimate").context("a column")?;
    assert_eq!(csv[2][estimate], "", "the second arm has no reports");

    let tallies = ["colours", "--what", "tallies", "--format", "parquet"];
    let files = [parquet, exported(&server, &tallies).await?];
    let mut found = Vec::new();
    for bytes in files {
        let reader = SerializedFileReader::new(prost::bytes::Bytes::from(bytes))?;
        for column in reader.metadata().file_metadata().schema_descr().columns() {
            let nullable = column.self_type().get_basic_info().repetition() == Repetition::OPTIONAL;
            let name = column.name().to_owned();
            found.push((
                name,
                column.physical_type(),
                column.logical_type_ref().cloned(),
                nullable,
            ));
        }
    }
    for (name, physical, logical, nullable) in [
        ("label", Physical::BYTE_ARRAY, Some(LogicalType::String), false),
        ("retired", Physical::BOOLEAN, None, false),
        ("arm", Physical::INT32, None, false),
        ("reports", Physical::INT64, None, false),
        ("low", Physical::DOUBLE, None, false),
        ("estimate", Physical::DOUBLE, None, true),
        ("day", Physical::INT32, Some(LogicalType::Date), false),
        ("standard_error", Physical::DOUBLE, None, true),
    ] {
        let expected = (name.to_owned(), physical, logical, nullable);
        assert!(found.contains(&expected), "{expected:?} is not in {found:?}");
    }
    server.stop().await?;
    Ok(())
}

#[tokio::test]
async fn exports_that_can_not_be_are_explained() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (server, _) = server_with_history(folder.path()).await?;
    for (arguments, code, part) in [
        (&["colours", "--what", "tallies", "--alpha", "0.1"][..], 2, "--what estimates"),
        (&["colours", "--first-day", "2024-10-04"], 2, "--what tallies"),
        (&["colours", "--what", "tallies", "--first-day", "4.10.2024"], 2, "2026-03-01"),
        (&["nobody", "--what", "tallies"], 3, "there is no experiment nobody"),
        (
            &[
                "colours",
                "--what",
                "tallies",
                "--first-day",
                "2024-10-05",
                "--last-day",
                "2024-10-04",
            ],
            4,
            "must not be after",
        ),
    ] {
        let output = bandana(&server, arguments).await?;
        let errors = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        assert!(errors.contains(part), "{part:?} is not in {errors}");
        assert!(output.stdout.is_empty());
    }
    server.stop().await?;
    Ok(())
}

/// Opens an export whose reader has a small window, and reads its first message.
async fn slow_export(
    server: &WatchedServer,
) -> anyhow::Result<Result<(DailyTally, Streaming<DailyTally>), Code>> {
    let endpoint = Endpoint::from_shared(format!("http://{}", server.operator))?;
    let endpoint = endpoint.initial_stream_window_size(4096).initial_connection_window_size(65_535);
    let channel: Channel = endpoint.connect().await?;
    let experiment_id = "colours".to_owned();
    let request = ExportTalliesRequest { experiment_id, ..Default::default() };
    match OperatorClient::new(channel).export_tallies(request).await {
        Ok(answer) => {
            let mut stream = answer.into_inner();
            let first = stream.message().await?.context("an export without tallies")?;
            Ok(Ok((first, stream)))
        }
        Err(status) => Ok(Err(status.code())),
    }
}

#[tokio::test]
async fn slow_exports_hold_up_neither_uploads_nor_the_end() -> anyhow::Result<()> {
    const DAYS: u64 = 40_000;
    let folder = tempfile::tempdir()?;
    let (server, experiment) = server_with_history(folder.path()).await?;
    server.stop().await?;
    let data_dir = folder.path().join("data");
    let database = rusqlite::Connection::open(data_dir.join("bandana.sqlite3"))?;
    // More than the buffers hold, so that the server must wait for its readers.
    database.execute_batch(&format!(
        "DELETE FROM tally;
         WITH RECURSIVE days (day) AS (SELECT 1 UNION ALL SELECT day + 1 FROM days LIMIT {DAYS})
         INSERT INTO tally (experiment, day, arm, reports, ones)
         SELECT 1, day, arm, 3, 1 FROM days, (SELECT 0 AS arm UNION SELECT 1)"
    ))?;
    drop(database);
    bandana_store::seal_directory(&data_dir)?;
    let clock = TestClock::at(TODAY.forward(20), folder.path())?;
    let server = clock.serve(PROGRAM, &data_dir).await?;
    let mut exports = Vec::new();
    for _ in 0..4 {
        let opened = slow_export(&server).await?;
        exports.push(opened.map_err(|code| anyhow::anyhow!("{code}"))?);
    }
    assert_eq!(slow_export(&server).await?.err(), Some(Code::ResourceExhausted));
    report(&server, &experiment, (5, TODAY.forward(20)), &[(2, true)]).await?;
    let name = ExperimentName { experiment_id: "colours".to_owned() };
    let (_, mut operator) = server.clients().await?;
    operator.pause_experiment(name.clone()).await?;
    operator.resume_experiment(name).await?;
    assert_eq!(tallies(&mut operator, &experiment).await?[2], (1, 1));

    // Each day is read when it is sent, so an upload committed since is in the export.
    let (first, mut stream) = exports.pop().context("an export")?;
    let mut before = (first.day, first.arm);
    let mut rows = 1;
    while let Some(DailyTally { day, arm, .. }) = stream.message().await? {
        let is_since = (day, arm) == (TODAY.forward(20).get(), 2);
        assert!((day, arm) > before && (arm < 2 || is_since), "{before:?}, then {day}, {arm}");
        (before, rows) = ((day, arm), rows + 1);
    }
    assert_eq!(rows, 2 * DAYS + 1);
    drop(stream);
    // Its slot is free again once the server has noticed.
    let free = async {
        loop {
            if let Ok(opened) = slow_export(&server).await? {
                return anyhow::Ok(opened);
            }
        }
    };
    exports.push(tokio::time::timeout(std::time::Duration::from_mins(1), free).await??);

    let (_, mut cut) = exports.pop().context("an export")?;
    drop((operator, exports));
    let stopped = tokio::spawn(server.stop());
    let end = loop {
        match cut.message().await {
            Ok(row) => ensure!(row.is_some(), "an export ended as if that was all"),
            Err(end) => break end,
        }
    };
    assert_eq!(end.code(), Code::Unavailable, "{end}");
    stopped.await??;
    Ok(())
}
