//! Data sets against attempts to learn more than was paid for: through fingerprints, a second
//! budget, refusals, and files that are no data sets.

use std::fmt::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_examples::aggregator_process::AggregatorProcess;
use bandana_examples::environment::CleanEnvironment as _;
use bandana_mechanisms::queries::price::Measure;
use bandana_mechanisms::queries::universe::Schema;
use bandana_queries::datasets::data_file::DataFile;
use bandana_shared::identity::{ExperimentId, UnixSeconds};
use bandana_shared::wire::v1::curator_client::CuratorClient;
use bandana_shared::wire::v1::operator_client::OperatorClient;
use bandana_shared::wire::v1::{
    self, AskRequest, ListAuditEntriesRequest, ListDataSetsRequest, RegisterDataSetRequest,
    ask_request, register_data_set_request,
};
use bandana_store::{
    AuditAction, AuditEntry, CuratorChange, CuratorName, DataSetRecord, EmbeddedSettings,
    EmbeddedStore, Store as _, StoreReader,
};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use prost::Message as _;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// Timeout of every step.
const PATIENCE: Duration = Duration::from_secs(30);

const ROWS: usize = 60;
const CITIES: [&str; 3] = ["Bonn", "Ulm", "Köln"];

/// Name, age, city and income of each row; two of the columns are never queried.
fn people() -> impl Iterator<Item = (String, usize, &'static str, f64)> {
    (0..ROWS).map(|row| {
        (format!("person {row}"), 18 + row, CITIES[row % 3], 1_000.0 + 0.25 * row as f64)
    })
}

fn csv(rows: impl Iterator<Item = (String, usize, &'static str, f64)>) -> anyhow::Result<String> {
    let mut text = "name,age,city,income\n".to_owned();
    for (name, age, city, income) in rows {
        writeln!(text, "{name},{age},{city},{income}")?;
    }
    Ok(text)
}

/// A server with a directory of data sets.
pub(super) struct Server {
    pub(super) process: AggregatorProcess,
    pub(super) curator: CuratorClient<Channel>,
    folder: TempDir,
}

impl Server {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        std::fs::create_dir(folder.path().join("sets"))?;
        std::fs::write(folder.path().join("sets/people.csv"), csv(people())?)?;
        Self::open(folder, None).await
    }

    async fn open(folder: TempDir, sets: Option<&Path>) -> anyhow::Result<Self> {
        let own = folder.path().join("sets");
        let sets = sets.unwrap_or(&own);
        let flags = ["--data-sets", sets.to_str().context("an odd name")?];
        let store = folder.path().join("store");
        let process = AggregatorProcess::start_with(&flags, PROGRAM.as_ref(), &store).await?;
        let endpoint = Endpoint::from_shared(process.operator_url.clone())?.timeout(PATIENCE);
        let curator = CuratorClient::new(endpoint.connect().await?);
        Ok(Self { process, curator, folder })
    }

    pub(super) async fn kill_and_restart(self) -> anyhow::Result<Self> {
        self.process.kill().await?;
        Self::open(self.folder, None).await
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join("sets").join(name)
    }

    async fn register(
        &mut self,
        name: &str,
        file: &str,
        columns: &[&str],
    ) -> Result<v1::DataSet, Status> {
        let request = RegisterDataSetRequest {
            name: name.to_owned(),
            file: file.to_owned(),
            columns: columns.iter().map(|column| (*column).to_owned()).collect(),
            budget: Some(register_data_set_request::Budget::Epsilon(1.0)),
            find: None,
        };
        Ok(self.curator.register_data_set(request).await?.into_inner())
    }

    pub(super) async fn refused(
        &mut self,
        name: &str,
        file: &str,
        columns: &[&str],
    ) -> anyhow::Result<Status> {
        let registered = self.register(name, file, columns).await;
        registered.err().with_context(|| format!("{file} was taken as {name} with {columns:?}"))
    }

    async fn spend(&mut self, data_set: &str, epsilon: f64) -> Result<(), Status> {
        let counts = v1::Counts { predicates: vec!["*".to_owned()] };
        let request = AskRequest {
            data_set: data_set.to_owned(),
            price: Some(ask_request::Price::Epsilon(epsilon)),
            question: Some(ask_request::Question::Counts(counts)),
            ..AskRequest::default()
        };
        self.curator.ask(request).await.map(drop)
    }

    async fn spent(&mut self) -> anyhow::Result<u64> {
        let listed =
            self.curator.list_data_sets(ListDataSetsRequest::default()).await?.into_inner();
        Ok(listed.data_sets.first().context("no data set")?.spent_nanos)
    }

    pub(super) async fn audit(&self) -> anyhow::Result<Vec<v1::AuditEntry>> {
        let mut operator = OperatorClient::connect(self.process.operator_url.clone()).await?;
        let request = ListAuditEntriesRequest::default();
        Ok(operator.list_audit_entries(request).await?.into_inner().entries)
    }
}

const COLUMNS: [&str; 2] = ["age:0..99", "city:Bonn|Ulm|Köln"];

fn count(predicate: &str, epsilon: f64, id: u8) -> AskRequest {
    let counts = v1::Counts { predicates: vec![predicate.to_owned()] };
    AskRequest {
        data_set: "people".to_owned(),
        price: Some(ask_request::Price::Epsilon(epsilon)),
        question: Some(ask_request::Question::Counts(counts)),
        question_id: vec![id; 16].into(),
        ..AskRequest::default()
    }
}

#[tokio::test]
async fn an_answer_that_was_lost_is_paid_for_once() -> anyhow::Result<()> {
    let mut server = Server::start().await?;
    server.register("people", "people.csv", &COLUMNS).await?;
    // All at once, as if each retry assumed that the previous call was lost.
    let ask = |request| {
        let mut curator = server.curator.clone();
        tokio::spawn(async move { curator.ask(request).await.map(tonic::Response::into_inner) })
    };
    let asked: Vec<_> = (0..8).map(|_| ask(count("city=Ulm", 0.25, 1))).collect();
    let mut answers = Vec::new();
    for asked in asked {
        answers.push(asked.await??);
    }
    let paid: Vec<_> = answers.iter().filter(|answer| !answer.kept).collect();
    ensure!(paid.len() == 1, "{} of 8 were paid for", paid.len());
    ensure!(answers.iter().all(|answer| answer.answer == paid[0].answer), "{answers:?}");
    ensure!(server.spent().await? == 250_000_000);
    let mut server = server.kill_and_restart().await?;
    let again = server.curator.ask(count("city=Ulm", 0.25, 1)).await?.into_inner();
    ensure!(again.kept && again.answer == answers[0].answer, "{again:?}");
    ensure!(again.price_nanos == 250_000_000 && server.spent().await? == 250_000_000);
    // An id belongs to one question.
    for other in [count("city=Bonn", 0.25, 1), count("city=Ulm", 0.5, 1)] {
        let status = server.curator.ask(other).await.err().context("another question")?;
        ensure!(status.code() == Code::InvalidArgument, "{status}");
        ensure!(status.message().contains("make a new one"), "{status}");
    }
    let short = AskRequest { question_id: vec![1; 15].into(), ..count("*", 0.1, 1) };
    ensure!(server.curator.ask(short).await.is_err());
    ensure!(server.spent().await? == 250_000_000);
    server.curator.ask(count("city=Ulm", 0.25, 2)).await?;
    ensure!(server.spent().await? == 500_000_000);
    // A paid answer is returned even when the budget is exhausted.
    server.curator.ask(count("*", 0.5, 3)).await?;
    ensure!(server.curator.ask(count("*", 0.5, 4)).await.is_err());
    ensure!(server.curator.ask(count("*", 0.5, 3)).await?.into_inner().kept);

    let url = server.process.operator_url.clone();
    let printed = |id: &str| -> anyhow::Result<String> {
        let mut command = std::process::Command::new(PROGRAM);
        command
            .clean_environment()
            .env("BANDANA_OPERATOR_URL", &url)
            .args(["query", "count", "people"]);
        command.args(["--where", "city=Ulm", "--epsilon", "0.25", "--question-id", id]);
        let output = command.output()?;
        let said = String::from_utf8(output.stdout)? + &String::from_utf8(output.stderr)?;
        Ok(said)
    };
    // The command line sets its own beta, so its question differs.
    let refused = printed(&"01".repeat(16))?;
    ensure!(refused.contains("another question was asked"), "{refused}");
    let refused = printed(&"77".repeat(16))?;
    ensure!(refused.contains("does not suffice"), "{refused}");
    server.process.stop().await
}

/// A caller who knows a file except for one field of one row must not find that out by trying.
#[tokio::test]
async fn nothing_that_is_told_of_a_data_set_depends_on_a_value() -> anyhow::Result<()> {
    let mut told = Vec::new();
    for income in [1_000.0, 2_000.0] {
        let mut server = Server::start().await?;
        let with = |(row, person): (usize, (_, _, _, f64))| {
            let (name, age, city, own) = person;
            (name, age, city, if row == 7 { income } else { own })
        };
        std::fs::write(server.file("people.csv"), csv(people().enumerate().map(with))?)?;
        let mut registered = server.register("people", "people.csv", &COLUMNS).await?;
        let listed =
            server.curator.list_data_sets(ListDataSetsRequest::default()).await?.into_inner();
        let mut listed = listed.data_sets.into_iter().next().context("no data set")?;
        (registered.unix_seconds, listed.unix_seconds) = (0, 0);
        told.push((registered.encode_to_vec(), listed.encode_to_vec()));
        server.process.stop().await?;
    }
    ensure!(told[0] == told[1], "who tries both finds out which one it is");
    Ok(())
}

/// The same rows as Parquet.
fn parquet() -> anyhow::Result<Vec<u8>> {
    let message = "message people { required int64 age; required binary name (UTF8);
        required double income; required binary city (UTF8); }";
    let schema = Arc::new(parse_message_type(message)?);
    let mut file = SerializedFileWriter::new(Vec::new(), schema, Arc::default())?;
    let mut group = file.next_row_group()?;
    let ages: Vec<i64> = people().map(|row| i64::try_from(row.1)).collect::<Result<_, _>>()?;
    let names: Vec<ByteArray> = people().map(|row| ByteArray::from(&*row.0)).collect();
    let incomes: Vec<f64> = people().map(|row| row.3).collect();
    let cities: Vec<ByteArray> = people().map(|row| ByteArray::from(row.2)).collect();
    let mut column = group.next_column()?.context("no column")?;
    column.typed::<Int64Type>().write_batch(&ages, None, None)?;
    column.close()?;
    let mut column = group.next_column()?.context("no column")?;
    column.typed::<ByteArrayType>().write_batch(&names, None, None)?;
    column.close()?;
    let mut column = group.next_column()?.context("no column")?;
    column.typed::<parquet::data_type::DoubleType>().write_batch(&incomes, None, None)?;
    column.close()?;
    let mut column = group.next_column()?.context("no column")?;
    column.typed::<ByteArrayType>().write_batch(&cities, None, None)?;
    column.close()?;
    group.close()?;
    Ok(file.into_inner()?)
}

#[tokio::test]
async fn one_content_has_one_budget_whatever_it_is_called() -> anyhow::Result<()> {
    let mut server = Server::start().await?;
    let text = csv(people())?;
    let mut swapped = "city,income,name,age\r\n".to_owned();
    for (name, age, city, income) in people() {
        write!(swapped, "{city},{income:.3},\"{name}\",0{age}\r\n")?;
    }
    let (heading, rows) = text.split_once('\n').context("no heading")?;
    let backwards: Vec<&str> = rows.lines().rev().collect();
    let backwards = format!("{heading}\n{}\n", backwards.join("\n"));
    std::fs::write(server.file("copy.csv"), &text)?;
    std::fs::write(server.file("backwards.csv"), backwards)?;
    std::fs::write(server.file("swapped.csv"), swapped)?;
    std::fs::write(server.file("people.parquet"), parquet()?)?;
    std::fs::write(server.file("doubled.csv"), format!("{text}{rows}"))?;
    std::fs::write(server.file("one-more.csv"), format!("{text}one more,18,Bonn,1\n"))?;

    server.register("people", "people.csv", &COLUMNS).await?;
    let same = ["people.csv", "copy.csv", "backwards.csv", "swapped.csv", "people.parquet"];
    for round in 0..3 {
        for file in same {
            for columns in [&COLUMNS[..], &["age:18..90"], &["city:Ulm|Bonn|Köln", "age:1..80"]] {
                let status = server.refused("again", file, columns).await?;
                ensure!(status.code() == Code::AlreadyExists, "{file}: {status}");
                ensure!(status.message().contains("people"), "{file}: {status}");
            }
        }
        match round {
            // The answer stays the same even when the budget is exhausted.
            0 => server.spend("people", 1.0).await?,
            _ => server = server.kill_and_restart().await?,
        }
    }
    // A file with other rows is another data set, even if a row is only repeated.
    server.register("doubled", "doubled.csv", &COLUMNS).await?;
    server.register("more", "one-more.csv", &COLUMNS).await?;
    // A file in another order is still the same data set; one with another value in an undeclared
    // column is not.
    std::fs::copy(server.file("one-more.csv"), server.file("kept"))?;
    let lines: Vec<String> =
        format!("{text}one more,18,Bonn,1\n").lines().map(str::to_owned).collect();
    let mut other_order = lines.clone();
    other_order[1..].reverse();
    std::fs::write(server.file("one-more.csv"), other_order.join("\n"))?;
    let mut server = server.kill_and_restart().await?;
    server.spend("more", 0.1).await?;
    let changed = format!("{text}one more,18,Bonn,2\n");
    std::fs::write(server.file("one-more.csv"), changed)?;
    // Without a restart: what is in memory is of the file that was there.
    let status = server.spend("more", 0.1).await.err().context("another file was asked")?;
    ensure!(status.code() == Code::FailedPrecondition, "{status}");
    ensure!(status.message().contains("is not the one that was registered"), "{status}");
    std::fs::remove_file(server.file("one-more.csv"))?;
    let status = server.spend("more", 0.1).await.err().context("no file was asked")?;
    ensure!(status.code() == Code::NotFound, "{status}");
    std::fs::copy(server.file("kept"), server.file("one-more.csv"))?;
    server.spend("more", 0.1).await?;
    // With two columns of one name, their order would decide which one is meant.
    for (name, text) in [("one", "ill,ill\nno,yes\n"), ("other", "ill,ill\nyes,no\n")] {
        std::fs::write(server.file("ill.csv"), text)?;
        let status = server.refused(name, "ill.csv", &["ill:no|yes"]).await?;
        ensure!(status.code() == Code::InvalidArgument, "{status}");
        ensure!(status.message().contains("give each a name of its own"), "{status}");
    }
    server.process.stop().await
}

/// The same rows, as PostgreSQL, DuckDB, pandas and others write them.
#[tokio::test]
async fn files_that_mean_the_same_have_one_budget() -> anyhow::Result<()> {
    let mut server = Server::start().await?;
    let table = |heading: &str, row: &dyn Fn(usize) -> String| {
        let rows: Vec<String> = (0..30).map(row).collect();
        format!("{heading}\n{}\n", rows.join("\n"))
    };
    let minute = |row: usize| format!("{:02}:{:02}", 3 + row / 6, row % 6 * 10);
    let plain = |row: usize| {
        let ill = ["true", "false", ""][row % 3];
        format!("2024-05-01T{}:00Z,{ill},{}", minute(row), 18 + row % 7)
    };
    let files = [
        ("utc.csv", table("seen at,ill,age", &plain)),
        (
            "postgres.csv",
            table("seen_at,ill,age", &|row| {
                let ill = ["t", "f", "\\N"][row % 3];
                format!("2024-05-01 {}:00+00,{ill},{}", minute(row), 18 + row % 7)
            }),
        ),
        (
            "duckdb.csv",
            table("Seen_At,Ill,age", &|row| {
                let ill = ["1", "0", "NULL"][row % 3];
                format!(
                    "2024-05-01 {:02}:{:02}:00+05:30,{ill},{}",
                    8 + (row * 10 + 30) / 60,
                    (row * 10 + 30) % 60,
                    18 + row % 7
                )
            }),
        ),
        (
            "pandas.csv",
            table(",SEEN AT,ill,age", &|row| {
                let ill = ["True", "False", "NaN"][row % 3];
                format!("{row},2024-05-01 {}:00+00:00,{ill},{}", minute(row), 18 + row % 7)
            }),
        ),
        (
            "numbered.csv",
            table("age,id,seen-at,ill", &|row| {
                let ill = ["yes", "no", ""][row % 3];
                format!("{},{},2024-05-01 {},{ill}", 18 + row % 7, (row * 7) % 30 + 1, minute(row))
            }),
        ),
    ];
    for (name, text) in &files {
        std::fs::write(server.file(name), text)?;
    }
    server.register("visits", "utc.csv", &["age:18..30"]).await?;
    for (name, _) in &files {
        let status = server.refused("again", name, &["age:18..30"]).await?;
        ensure!(status.code() == Code::AlreadyExists, "{name}: {status}");
        ensure!(status.message().contains("visits"), "{name}: {status}");
    }
    // An instant that is another one is another value.
    let later = files[1].1.replacen("+00,", "-07,", 1);
    std::fs::write(server.file("later.csv"), later)?;
    server.register("later", "later.csv", &["age:18..30"]).await?;
    server.process.stop().await
}

/// An earlier version compared contents by fewer forms. What it registered keeps its one budget.
#[tokio::test]
async fn a_data_set_of_an_earlier_version_is_compared_as_today() -> anyhow::Result<()> {
    let server = Server::start().await?;
    let (folder, sets) = (server.folder.path().join("store"), server.file(""));
    server.process.stop().await?;
    let rows = |yes: &str, no: &str| format!("ill,age\n{yes},20\n{no},30\n{no},20\n");
    std::fs::write(sets.join("first.csv"), rows("true", "false"))?;
    std::fs::write(sets.join("again.csv"), rows("t", "f"))?;
    std::fs::write(sets.join("fewer.csv"), rows("t", "f").replace("f,20\n", ""))?;
    let settings = EmbeddedSettings { replay_window_days: 30, ids_max: 1000 };
    let mut store = EmbeddedStore::open(&folder, settings)?;
    let file = DataFile::open(&sets, "first.csv")?;
    let (_, content) = file.rows_and_content(&Schema::parse(&["age:18..30"])?)?;
    let key = StoreReader::new(&folder).fingerprint_key()?;
    let record = DataSetRecord {
        name: CuratorName::new("first")?,
        file: "first.csv".to_owned(),
        fingerprint: key.of_file(&file.digest()),
        content: Some(key.of_earlier_content(&content)),
        rows: 3,
        columns: "age:18..30".to_owned(),
        measure: Measure::Pure,
        budget: 1_000_000_000,
        spent: 0,
        at: UnixSeconds::new(1),
    };
    let entry = AuditEntry {
        at: record.at,
        caller: "someone".to_owned(),
        action: AuditAction::RegisterDataSet,
        experiment: ExperimentId::new("first")?,
        detail: String::new(),
    };
    store.apply_query_change(&CuratorChange::Register(Box::new(record), None, entry))?;
    Box::new(store).close()?;

    let mut server = Server::open(server.folder, None).await?;
    let status = server.refused("again", "again.csv", &["age:18..30"]).await?;
    ensure!(status.message().contains("first"), "{status}");
    server.register("fewer", "fewer.csv", &["age:18..30"]).await?;
    // Without its file nobody knows.
    std::fs::remove_file(server.file("first.csv"))?;
    let status = server.refused("again", "again.csv", &["age:18..30"]).await?;
    ensure!(status.code() == Code::AlreadyExists, "{status}");
    ensure!(status.message().contains("put it back"), "{status}");
    server.process.stop().await
}

/// The position and number of invalid rows are in the host's log only.
#[tokio::test]
async fn a_refused_registration_tells_the_column_and_nothing_else() -> anyhow::Result<()> {
    let mut server = Server::start().await?;
    let text = csv(people())?;
    let many = text.replace(",30,", ",,").replace(",41,", ",old,");
    std::fs::write(server.file("many.csv"), many)?;
    let mut binary = text.clone().into_bytes();
    let place = text.find(",50,").context("nobody is 50")?;
    binary[place + 1] = 0xff;
    std::fs::write(server.file("binary.csv"), binary)?;
    let mut refusals = Vec::new();
    for (file, ages) in [
        ("people.csv", "age:18..60"),
        ("people.csv", "age:18..44"),
        ("people.csv", "age:19..77"),
        ("people.csv", "age:18|19"),
        ("many.csv", "age:18..77"),
        ("binary.csv", "age:18..77"),
    ] {
        // Some of the cities are undeclared too: the error names the first declared column.
        let status = server.refused("people", file, &[ages, "city:Bonn|Köln"]).await?;
        ensure!(status.code() == Code::InvalidArgument, "{status}");
        ensure!(status.message().contains("column \"age\""), "{status}");
        refusals.push(status.message().to_owned());
    }
    ensure!(refusals.iter().all(|refusal| *refusal == refusals[0]), "{refusals:#?}");
    std::fs::write(server.file("short.csv"), text.replace(",41,Köln", ",41"))?;
    let status = server.refused("people", "short.csv", &COLUMNS).await?;
    ensure!(!status.message().chars().any(|c| c.is_ascii_digit()), "{status}");

    server.register("people", "people.csv", &COLUMNS).await?;
    let status = server.refused("twice", "people.csv", &COLUMNS).await?;
    ensure!(status.code() == Code::AlreadyExists, "{status}");
    server.refused("No name", "people.csv", &COLUMNS).await?;
    server.refused("nobody", "nobody.csv", &COLUMNS).await?;
    // Each attempt is in the audit log, with its caller and the error.
    let audit = server.audit().await?;
    ensure!(audit.len() == 11, "{audit:#?}");
    ensure!(audit.iter().all(|entry| entry.caller == "(anybody)"), "{audit:#?}");
    let registered = audit.iter().filter(|entry| {
        entry.action() == v1::AuditAction::RegisterDataSet && entry.detail.starts_with("epsilon 1")
    });
    ensure!(registered.count() == 1, "{audit:#?}");
    let details: Vec<&str> = audit.iter().map(|entry| entry.detail.as_str()).collect();
    ensure!(details[0].contains("nobody.csv") && details[1].contains("No name"), "{details:#?}");
    ensure!(details[10].contains("age:18..60") && details[10].contains(&refusals[0]));
    ensure!(!audit.iter().any(|entry| entry.detail.contains("line")), "{audit:#?}");
    server.process.stop().await
}

#[tokio::test]
async fn only_files_of_the_directory_itself_are_read() -> anyhow::Result<()> {
    let mut server = Server::start().await?;
    let outside = server.folder.path().join("outside.csv");
    std::fs::write(&outside, csv(people())?)?;
    symlink(&outside, server.file("link.csv"))?;
    symlink("people.csv", server.file("within.csv"))?;
    symlink(server.folder.path(), server.file("folder"))?;
    symlink("/dev/null", server.file("zeros.csv"))?;
    mknodat(CWD, server.file("pipe.csv"), FileType::Fifo, Mode::from_raw_mode(0o600), 0)?;
    std::fs::create_dir(server.file("directory.csv"))?;
    let _socket = std::os::unix::net::UnixListener::bind(server.file("socket.csv"))?;
    let not_files =
        ["link.csv", "within.csv", "zeros.csv", "pipe.csv", "directory.csv", "socket.csv"];
    for file in not_files {
        let status = server.refused("people", file, &COLUMNS).await?;
        ensure!(status.code() == Code::InvalidArgument, "{file}: {status}");
        ensure!(status.message().contains("is no regular file"), "{file}: {status}");
    }
    for file in
        ["folder/outside.csv", "../outside.csv", "/etc/passwd", ".", "..", "directory.csv/", ""]
    {
        let status = server.refused("people", file, &COLUMNS).await?;
        ensure!(status.code() == Code::InvalidArgument, "{file}: {status}");
        ensure!(status.message().contains("is no name of a file"), "{file}: {status}");
    }
    // The server still works after all these attempts.
    server.register("people", "people.csv", &COLUMNS).await?;
    std::fs::remove_file(server.file("people.csv"))?;
    symlink(&outside, server.file("people.csv"))?;
    let mut server = server.kill_and_restart().await?;
    let status = server.spend("people", 0.1).await.err().context("a link was followed")?;
    ensure!(status.message().contains("is no regular file"), "{status}");
    server.process.kill().await?;
    let mut server = Server::open(server.folder, Some("/dev".as_ref())).await?;
    let status = server.refused("device", "null", &COLUMNS).await?;
    ensure!(status.message().contains("is no regular file"), "{status}");
    server.process.stop().await
}
