//! The identity of a store: servers don't start without one, acknowledge nothing that the next
//! start would not find, and devices distinguish their store from another.

mod files;

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_client::grpc::Transport;
use bandana_client::{
    Acceptance, Budget, Client, Clock as _, Core, NoiseSource, Reward, SimulatedClient,
    SystemClock, Task, Timestamp,
};
use bandana_examples::aggregator_process::AggregatorProcess;
use bandana_examples::environment::CleanEnvironment as _;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::{Day, StoreId};
use bandana_shared::policy::{Policy, Weights};
use bandana_shared::rewards::Rewards;
use bandana_shared::specification::{Specification, SpecificationParts};
use bandana_shared::wire::v1::operator_client::OperatorClient;
use bandana_shared::wire::v1::{self, GetExperimentRequest, UploadStatus};
use bandana_tests::add_async;
use bandana_tests::fake_server::{Answer, Recorder, STORE};
use bandana_tests::harness::{create, submit_one, tallies, three_arms};
use bandana_tests::page;
use bandana_tests::postgres::{Postgres, query};
use bandana_tests::suite::Suite;
use prost::Message;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tonic::Code;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

const DATABASE: &str = "bandana.sqlite3";

/// The exit code when there is no store.
const NO_STORE: Option<i32> = Some(7);

/// Adds the tests.
pub(crate) fn add(suite: &mut Suite) {
    suite.add(
        "identity::a_server_without_a_store_does_not_start_and_makes_nothing",
        a_server_without_a_store_does_not_start_and_makes_nothing,
    );
    suite.add(
        "identity::files::a_store_is_opened_once_whatever_becomes_of_the_lock_file",
        files::a_store_is_opened_once_whatever_becomes_of_the_lock_file,
    );
    add_async!(suite, "identity";
        files::files_of_a_store_are_for_their_owner,
        files::a_server_whose_lock_is_removed_ends,
        files::nothing_is_acknowledged_once_a_file_is_written_over,
        files::a_server_that_nobody_calls_notices_what_is_written_over_it,
        files::nothing_is_acknowledged_once_another_program_has_restored_a_backup,
        files::a_program_that_takes_nothing_away_ends_no_server,
        files::what_was_acknowledged_is_missed_when_its_log_is_gone,
        a_store_is_made_once_and_keeps_its_id_in_a_backup,
        files::nothing_is_acknowledged_once_the_database_is_removed,
        files::nothing_is_acknowledged_once_the_database_is_replaced,
        files::nothing_is_acknowledged_once_the_log_is_removed,
        files::nothing_is_acknowledged_once_the_directory_is_moved,
        files::a_server_that_nobody_calls_notices_too,
        devices_keep_their_reports_when_their_server_has_an_empty_directory,
        devices_keep_their_reports_when_their_server_has_an_empty_database,
        a_replica_takes_nothing_while_its_database_is_another_store,
        what_callers_repeat_is_logged_with_a_count,
        no_request_tells_which_store_a_device_has_heard_of,
    );
}

fn bandana(arguments: &[&str]) -> anyhow::Result<Output> {
    Ok(Command::new(PROGRAM).args(arguments).clean_environment().output()?)
}

/// Starts a server that must fail to start, and returns its exit code and output.
fn serve_in_vain(store: &[&str]) -> anyhow::Result<(Option<i32>, String)> {
    let addresses = ["serve", "--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"];
    let output = bandana(&[&addresses[..], store].concat())?;
    ensure!(output.stdout.is_empty(), "it serves");
    Ok((output.status.code(), String::from_utf8(output.stderr)?))
}

fn names(folder: &Path) -> anyhow::Result<Vec<(OsString, u64)>> {
    let entry = |entry: fs::DirEntry| anyhow::Ok((entry.file_name(), entry.metadata()?.len()));
    let mut names: Vec<_> =
        fs::read_dir(folder)?.map(|found| entry(found?)).collect::<anyhow::Result<_>>()?;
    names.sort();
    Ok(names)
}

fn a_server_without_a_store_does_not_start_and_makes_nothing() -> anyhow::Result<()> {
    let parent = tempfile::tempdir()?;
    let place = |name: &str| parent.path().join(name);
    // A disk that is not mounted, a file that was cut off, a log that was left.
    fs::create_dir(place("empty"))?;
    fs::create_dir(place("cut"))?;
    fs::write(place("cut").join(DATABASE), "")?;
    fs::create_dir(place("log"))?;
    fs::write(place("log").join("bandana.sqlite3-wal"), [7; 4096])?;
    // What else a store leaves whose database is lost.
    for (name, file) in [("acknowledged", "-acknowledged"), ("index", "-shm"), ("no log", "-wal")] {
        fs::create_dir(place(name))?;
        fs::write(place(name).join(format!("{DATABASE}{file}")), "")?;
    }
    let cases = [
        ("empty", "there is no store in"),
        ("missing", "there is no store in"),
        ("cut", "is empty, and no store ever is"),
        ("log", "there is no store in"),
        ("acknowledged", "there is no store in"),
        ("index", "there is no store in"),
    ];
    for (name, words) in cases {
        let folder = place(name);
        let before = names(&folder).unwrap_or_default();
        let directory = folder.to_str().context("UTF-8")?;
        let (code, said) = serve_in_vain(&["--data-dir", directory])?;
        ensure!(code == NO_STORE && said.contains(words), "{name}: {code:?}: {said}");
        assert_eq!(
            (folder.exists(), names(&folder).unwrap_or_default()),
            (name != "missing", before)
        );
    }
    // No store is created beside foreign files either.
    let left = "move what is left of the old one away first";
    for (name, words) in [
        ("cut", "move it away first"),
        ("log", left),
        ("acknowledged", left),
        ("index", left),
        ("no log", left),
    ] {
        let directory = place(name).to_string_lossy().into_owned();
        for command in [&["init"][..], &["serve", "--init", "--operator-listen", "127.0.0.1:0"]] {
            let output = bandana(&[command, &["--data-dir", &directory]].concat())?;
            let said = String::from_utf8(output.stderr)?;
            ensure!(output.status.code() == NO_STORE && said.contains(words), "{name}: {said}");
        }
    }
    Ok(())
}

async fn a_store_is_made_once_and_keeps_its_id_in_a_backup() -> anyhow::Result<()> {
    let parent = tempfile::tempdir()?;
    let directory = parent.path().join("data").to_string_lossy().into_owned();
    let made = bandana(&["init", "--data-dir", &directory, "--json"])?;
    let made: serde_json::Value = serde_json::from_slice(&made.stdout)?;
    let id = made["id"].as_str().context("no id")?.to_owned();
    ensure!(id.len() == 32 && made["store"] == directory.as_str(), "{made}");
    let again = bandana(&["init", "--data-dir", &directory])?;
    let said = String::from_utf8(again.stderr)?;
    ensure!(again.status.code() == NO_STORE && said.contains("left as it is"), "{said}");

    let serve = ["serve", "--operator-listen", "127.0.0.1:0", "--listen", "127.0.0.1:0"];
    let mut child = tokio::process::Command::new(PROGRAM)
        .args(serve)
        .args(["--data-dir", &directory])
        .clean_environment()
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut line = String::new();
    let stdout = child.stdout.take().context("no output")?;
    tokio::io::AsyncBufReadExt::read_line(&mut BufReader::new(stdout), &mut line).await?;
    ensure!(line.starts_with("device="), "{line}");
    let restored = parent.path().join("restored");
    fs::create_dir(&restored)?;
    let file = restored.join(DATABASE).to_string_lossy().into_owned();
    let copied = bandana(&["backup", "--data-dir", &directory, "--out", &file])?;
    ensure!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    child.kill().await?;
    let kept = rusqlite::Connection::open(file)?.query_row(
        "SELECT lower(hex(id)) FROM store",
        [],
        |row| row.get::<_, String>(0),
    )?;
    assert_eq!(kept, id);
    Ok(())
}

/// Runs all of a client's tasks that are due at this time.
async fn turn<N: NoiseSource>(
    client: &mut Core<N>,
    transport: &mut Transport,
    now: Timestamp,
) -> anyhow::Result<()> {
    loop {
        match client.next_task(now)? {
            Task::Fetch(task) => match transport.fetch(&task).await {
                Ok(fetched) => client.on_fetched(&task, fetched, now)?,
                // The server without the experiment is the subject of this test.
                Err(_) => client.on_fetch_failed(&task, None, now)?,
            },
            Task::Upload(task) => {
                let outcome = transport.upload(&task).await;
                client.on_upload_result(task.id(), &outcome, now)?;
            }
            Task::Shuffled(task) => {
                let outcome = transport.upload_shuffled(&task).await;
                client.on_upload_result(task.id(), &outcome, now)?;
            }
            Task::Wait(_) | Task::Done => return Ok(()),
        }
    }
}

/// Checks that devices keep their reports when they find a server on an empty store in place of
/// their own.
async fn keeps_reports(own: AggregatorProcess, wrong: AggregatorProcess) -> anyhow::Result<()> {
    let mut operator = OperatorClient::connect(own.operator_url.clone()).await?;
    let quick = v1::Specification { attribution_window_seconds: 1, ..three_arms("kept") };
    let experiment = create(&mut operator, quick).await?;
    let id = experiment.experiment_id().clone();
    let mut client = Client::new(Budget::UNLIMITED);
    client.enroll(
        id.clone(),
        Acceptance::unsigned(Epsilon::new(1.0)?, Rewards::binary())
            .least_release_delay(Duration::ZERO),
    );
    let mut right = Transport::to(&own.device_url)?;
    let mut wrong_one = Transport::to(&wrong.device_url)?;
    let begin = SystemClock.now();
    let after = |minutes| begin.after(Duration::from_mins(minutes));
    turn(&mut client, &mut right, begin).await?;
    for _ in 0..3 {
        let chosen = client.draw(&id, begin)?;
        client.reward(chosen.id(), Reward::new(1.0)?, begin)?;
    }
    for minutes in 1..4 {
        turn(&mut client, &mut wrong_one, after(minutes)).await?;
    }
    let statistics = client.statistics();
    ensure!(statistics.uploads_postponed >= 3, "nothing was sent: {statistics:?}");
    let kept = (statistics.uploads_refused, client.waiting_reports());
    ensure!(kept == (0, 3), "reports were dropped: {statistics:?}");
    turn(&mut client, &mut right, after(10)).await?;
    assert_eq!(client.statistics().uploads_accepted, 3);
    operator.refresh_policy(v1::ExperimentName { experiment_id: "kept".to_owned() }).await?;
    let arms = tallies(&mut operator, &experiment).await?;
    assert_eq!(arms.iter().map(|(reports, _)| *reports).sum::<u64>(), 3);
    own.stop().await?;
    wrong.stop().await
}

async fn devices_keep_their_reports_when_their_server_has_an_empty_directory() -> anyhow::Result<()>
{
    let (own, wrong) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let start = async |folder: &Path| AggregatorProcess::start(PROGRAM.as_ref(), folder).await;
    keeps_reports(start(own.path()).await?, start(wrong.path()).await?).await
}

async fn devices_keep_their_reports_when_their_server_has_an_empty_database() -> anyhow::Result<()>
{
    let server = Arc::new(tokio::task::spawn_blocking(Postgres::start).await??);
    let fresh = async || {
        let server = Arc::clone(&server);
        tokio::task::spawn_blocking(move || server.database()).await?
    };
    let (own, wrong) = (fresh().await?, fresh().await?);
    let (code, said) = serve_in_vain(&["--store", &own])?;
    ensure!(code == NO_STORE && said.contains("no tables of Bandana"), "{code:?}: {said}");
    let made = bandana(&["init", "--store", &own])?;
    ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let again = bandana(&["init", "--store", &own])?;
    ensure!(again.status.code() == NO_STORE, "{again:?}");
    let start = async |url: &str| AggregatorProcess::start_replica(PROGRAM.as_ref(), url).await;
    keeps_reports(start(&own).await?, start(&wrong).await?).await
}

/// Replaces a replica's store by another one, or by the right one again.
async fn set_id(url: &str, id: &str) -> anyhow::Result<()> {
    let (url, id) = (url.to_owned(), id.to_owned());
    let change = format!(
        "ALTER TABLE store DISABLE TRIGGER USER; UPDATE store SET id = decode('{id}', 'hex'); \
         ALTER TABLE store ENABLE TRIGGER USER"
    );
    tokio::task::spawn_blocking(move || query(&url, &change)).await?.map(drop)
}

async fn a_replica_takes_nothing_while_its_database_is_another_store() -> anyhow::Result<()> {
    let server = Arc::new(tokio::task::spawn_blocking(Postgres::start).await??);
    let of_server = Arc::clone(&server);
    let url = tokio::task::spawn_blocking(move || of_server.database()).await??;
    let replica = AggregatorProcess::start_replica(PROGRAM.as_ref(), &url).await?;
    let process = replica.server()?;
    let mut operator = OperatorClient::connect(replica.operator_url.clone()).await?;
    let mut device = v1::device_client::DeviceClient::connect(process.device.clone()).await?;
    let experiment = create(&mut operator, three_arms("other")).await?;
    let request = GetExperimentRequest { experiment_id: experiment.experiment_id().to_string() };
    let told = device.get_experiment(request.clone()).await?.into_inner();
    let own = StoreId::try_from(&told.store_id[..])?;
    let day = Day::new(told.server_day);
    assert_eq!(submit_one(&mut device, &experiment, day, 1).await?, UploadStatus::Accepted);

    // With connections that stay open, and with new ones.
    for is_cut in [false, true] {
        set_id(&url, &"ab".repeat(16)).await?;
        if is_cut {
            let url = url.clone();
            let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE application_name = 'bandana'";
            tokio::task::spawn_blocking(move || query(&url, cut)).await??;
        }
        for number in 2..12 {
            let request = bandana_tests::harness::upload(number, &experiment, day, &[(0, true)])?;
            let refused = device.submit_upload(request).await.err().context("it was taken")?;
            assert_eq!(refused.code(), Code::Unavailable, "{refused}");
        }
        let change = v1::ExperimentName { experiment_id: "other".to_owned() };
        ensure!(operator.pause_experiment(change).await.is_err(), "it was changed elsewhere");
        let address = replica.operator_url.strip_prefix("http://").context("no address")?;
        until(async || Ok(page::get(address, "/readyz", &[]).await?.status == 503)).await?;
        set_id(&url, &own.to_string()).await?;
        until(async || Ok(page::get(address, "/readyz", &[]).await?.status == 200)).await?;
    }
    assert_eq!(submit_one(&mut device, &experiment, day, 2).await?, UploadStatus::Accepted);
    let counted = "SELECT count(*) FROM upload".to_owned();
    let rows = tokio::task::spawn_blocking(move || query(&url, &counted)).await??;
    assert_eq!(rows, [["2"]]);
    replica.stop().await
}

/// Uploads that are refused one by one, each in a separate attempt.
async fn what_callers_repeat_is_logged_with_a_count() -> anyhow::Result<()> {
    let server = Arc::new(tokio::task::spawn_blocking(Postgres::start).await??);
    let of_server = Arc::clone(&server);
    let url = tokio::task::spawn_blocking(move || of_server.database()).await??;
    let folder = tempfile::tempdir()?;
    let log = folder.path().join("log");
    let mut child = tokio::process::Command::new(PROGRAM)
        .args(["serve", "--init", "--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"])
        .args(["--store", &url])
        .clean_environment()
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(fs::File::create(&log)?)
        .kill_on_drop(true)
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
    let mut address = async || {
        let line = lines.next_line().await?.context("it does not serve")?;
        anyhow::Ok(format!("http://{}", line.split_once('=').context("no address")?.1))
    };
    let mut device = v1::device_client::DeviceClient::connect(address().await?).await?;
    let mut operator = OperatorClient::connect(address().await?).await?;
    let experiment = create(&mut operator, three_arms("repeated")).await?;
    let request = GetExperimentRequest { experiment_id: experiment.experiment_id().to_string() };
    let day = Day::new(device.get_experiment(request).await?.into_inner().server_day);
    set_id(&url, &"ab".repeat(16)).await?;
    for number in 0..300 {
        let request = bandana_tests::harness::upload(number, &experiment, day, &[(0, true)])?;
        ensure!(device.submit_upload(request).await.is_err(), "it was taken");
    }
    child.kill().await?;
    let log = fs::read_to_string(&log)?;
    let told = log.lines().filter(|line| line.contains("uploads were not acknowledged"));
    let told = told.count();
    ensure!((1..60).contains(&told), "{told} lines: {log}");
    Ok(())
}

/// Waits until the condition holds.
async fn until(is_so: impl AsyncFn() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let waiting = async {
        while !is_so().await? {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    };
    tokio::time::timeout(Duration::from_mins(1), waiting).await?
}

/// All messages of a client with this seed. The server states one store with the specification, and
/// another one with the answers to uploads.
async fn sent(stores: [Option<StoreId>; 2]) -> anyhow::Result<(Vec<Vec<u8>>, Vec<String>)> {
    let now = Timestamp::from_unix_ms(1_728_000_000_000);
    let recorder = Recorder::start(now.day())?;
    recorder.set_store(stores[0]);
    let floor = bandana_shared::channel::Floor::for_epsilon(Epsilon::new(1.0)?).get();
    let message = v1::Specification {
        floor,
        revision: 1,
        simulation: true,
        attribution_window_seconds: 0,
        ..three_arms("silent")
    };
    let parts = SpecificationParts::try_from(&message)?;
    let specification = Specification::new(parts)?;
    let weights = Weights::uniform(&specification.active_arms())?;
    recorder.serve(&specification, &Policy { version: 3, weights, time_to_live_seconds: 60 });
    recorder.plan([Answer::Status(UploadStatus::UnknownSpecification, "unknown"), Answer::Accept]);
    let id = specification.experiment_id().clone();
    let mut client = SimulatedClient::seeded(5, 6);
    client.enroll(
        id.clone(),
        Acceptance::unsigned(Epsilon::new(1.0)?, Rewards::binary())
            .least_release_delay(Duration::ZERO),
    );
    let mut transport = Transport::new(recorder.channel()?);
    for hours in 0..4_u64 {
        let now = now.after(Duration::from_hours(2 * hours));
        turn(&mut client, &mut transport, now).await?;
        recorder.set_store(stores[usize::from(hours < 2)]);
        client.draw(&id, now)?;
    }
    let uploads = recorder.uploads();
    // The name of an upload is random for every seed: a tag, a length, and 16 bytes.
    let mut bytes: Vec<_> = uploads.iter().map(|upload| upload.bytes[18..].to_vec()).collect();
    bytes.extend(recorder.questions().iter().map(Message::encode_to_vec));
    let metadata = uploads.iter().map(|upload| format!("{:?}", upload.metadata)).collect();
    Ok((bytes, metadata))
}

async fn no_request_tells_which_store_a_device_has_heard_of() -> anyhow::Result<()> {
    let silent = sent([None, None]).await?;
    // Three reports, one of them sent twice, and the requests for the experiment.
    ensure!(silent.1.len() == 4, "{silent:?}");
    let marked = Some(StoreId::new([0xc5; 16]));
    for stores in [[Some(STORE), marked], [marked, Some(STORE)], [None, marked], [marked, None]] {
        assert_eq!(sent(stores).await?, silent);
    }
    Ok(())
}
