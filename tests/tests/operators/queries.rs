//! Private queries through a real server: payments, refusals, and the state after a restart.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_examples::aggregator_process::AggregatorProcess;
use bandana_examples::environment::CleanEnvironment as _;
use bandana_shared::wire::v1::curator_client::CuratorClient;
use bandana_shared::wire::v1::{
    self, AskRequest, AskSessionRequest, ListDataSetsRequest, OpenSessionRequest,
    RegisterDataSetRequest, ask_request, ask_response, open_session_request,
    register_data_set_request,
};
use tempfile::TempDir;
use tonic::transport::Channel;
use tonic::{Code, Status};

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

const ROWS: usize = 4_000;

/// A server with a directory of data sets.
struct Server {
    process: AggregatorProcess,
    curator: CuratorClient<Channel>,
    directory: TempDir,
}

impl Server {
    async fn start() -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        std::fs::create_dir(directory.path().join("sets"))?;
        std::fs::write(directory.path().join("secret.csv"), "x\n1\n")?;
        let mut people = "age,city,ill\n".to_owned();
        for row in 0..ROWS {
            let (city, ill) = (["Bonn", "Ulm"][row % 2], ["no", "no", "no", "yes"][row % 4]);
            writeln!(people, "{},{city},{ill}", 20 + row % 50)?;
        }
        std::fs::write(directory.path().join("sets/people.csv"), people)?;
        Self::open(directory).await
    }

    async fn open(directory: TempDir) -> anyhow::Result<Self> {
        let sets = directory.path().join("sets");
        let flags = ["--data-sets", sets.to_str().context("an odd name")?];
        let store = directory.path().join("store");
        let process = AggregatorProcess::start_with(&flags, Path::new(PROGRAM), &store).await?;
        let curator = CuratorClient::connect(process.operator_url.clone()).await?;
        Ok(Self { process, curator, directory })
    }

    async fn kill_and_restart(self) -> anyhow::Result<Self> {
        self.process.kill().await?;
        Self::open(self.directory).await
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("sets/people.csv")
    }

    async fn register(&mut self, epsilon: f64) -> Result<v1::DataSet, Status> {
        let request = registration("people.csv", &["age:0..99", "city:Bonn|Ulm", "ill:no|yes"]);
        let budget = Some(register_data_set_request::Budget::Epsilon(epsilon));
        let request = RegisterDataSetRequest { budget, ..request };
        Ok(self.curator.register_data_set(request).await?.into_inner())
    }

    async fn count(&mut self, predicate: &str, epsilon: f64) -> Result<i64, Status> {
        let counts = v1::Counts { predicates: vec![predicate.to_owned()] };
        let request = AskRequest {
            data_set: "people".to_owned(),
            price: Some(ask_request::Price::Epsilon(epsilon)),
            beta: 0.0,
            question: Some(ask_request::Question::Counts(counts)),
            ..AskRequest::default()
        };
        match self.curator.ask(request).await?.into_inner().answer {
            Some(ask_response::Answer::Numbers(v1::Numbers { numbers, .. })) => {
                Ok(numbers.first().map_or(0, |number| number.value))
            }
            other => Err(Status::unknown(format!("{other:?}"))),
        }
    }

    async fn ask_session(&mut self, predicate: &str) -> Result<v1::AskSessionResponse, Status> {
        let (session, predicate) = ("habits".to_owned(), predicate.to_owned());
        let answer = self
            .curator
            .ask_session(AskSessionRequest { session, predicate, ..AskSessionRequest::default() })
            .await?;
        Ok(answer.into_inner())
    }

    async fn spent(&mut self) -> anyhow::Result<u64> {
        let listed =
            self.curator.list_data_sets(ListDataSetsRequest::default()).await?.into_inner();
        Ok(listed.data_sets.first().context("no data set")?.spent_nanos)
    }
}

fn registration(file: &str, columns: &[&str]) -> RegisterDataSetRequest {
    RegisterDataSetRequest {
        name: "people".to_owned(),
        file: file.to_owned(),
        columns: columns.iter().map(|column| (*column).to_owned()).collect(),
        budget: Some(register_data_set_request::Budget::Epsilon(1.0)),
        find: None,
    }
}

#[tokio::test]
async fn a_budget_is_spent_before_the_answer_and_never_comes_back() -> anyhow::Result<()> {
    let mut server = Server::start().await?;
    let registered = server.register(2.0).await?;
    ensure!((registered.rows, registered.budget_nanos) == (4_000, 2_000_000_000));
    // Noise of scale 2: beyond 40 once in 10^8.
    let ill = server.count("ill=yes", 0.5).await?;
    ensure!((960..=1_040).contains(&ill), "{ill}");
    ensure!(server.spent().await? == 500_000_000);

    let mut server = server.kill_and_restart().await?;
    ensure!(server.spent().await? == 500_000_000);
    ensure!(server.register(9.0).await.is_err_and(|status| status.code() == Code::AlreadyExists));
    server.count("city=Ulm", 1.0).await?;
    let refused = server.count("city=Ulm", 0.500_000_001).await;
    let status = refused.err().context("the budget was overdrawn")?;
    ensure!(status.code() == Code::FailedPrecondition, "{status}");
    let left = "this costs 0.500000001, and 0.5 of 2 is left; nothing was spent";
    ensure!(status.message().contains(left), "{status}");
    ensure!(server.spent().await? == 1_500_000_000);

    // The registered file is the one that counts.
    let file = std::fs::read(server.file())?;
    std::fs::write(server.file(), "age,city,ill\n1,Ulm,no\n")?;
    let mut server = server.kill_and_restart().await?;
    let status = server.count("*", 0.5).await.err().context("an answer about another file")?;
    ensure!(status.code() == Code::FailedPrecondition, "{status}");
    ensure!(status.message().contains("is not the one that was registered"), "{status}");
    let plan = v1::SessionChoice { updates: 1, threshold: 1 };
    let refused = server.curator.open_session(opening(plan, 0.5)).await;
    ensure!(refused.is_err_and(|status| status.code() == Code::FailedPrecondition));
    ensure!(server.spent().await? == 1_500_000_000);
    std::fs::write(server.file(), file)?;
    server.count("*", 0.5).await?;
    ensure!(server.count("*", 1e-9).await.is_err());
    ensure!(server.spent().await? == 2_000_000_000);
    server.process.stop().await
}

fn opening(choice: v1::SessionChoice, epsilon: f64) -> OpenSessionRequest {
    OpenSessionRequest {
        session: "habits".to_owned(),
        data_set: "people".to_owned(),
        columns: vec!["city".to_owned(), "ill".to_owned()],
        price: Some(open_session_request::Price::Epsilon(epsilon)),
        plan: Some(open_session_request::Plan::Choice(choice)),
    }
}

#[tokio::test]
async fn a_session_goes_on_after_a_crash_and_ends_when_its_updates_do() -> anyhow::Result<()> {
    let mut server = Server::start().await?;
    server.register(20.0).await?;
    let plan = v1::SessionChoice { updates: 2, threshold: 300 };
    let opened = server.curator.open_session(opening(plan, 20.0)).await?.into_inner();
    ensure!((opened.cells, opened.updates_max, opened.price_nanos) == (4, 2, 20_000_000_000));
    // A quarter of the rows are ill, and the first hypothesis expects half.
    let first = server.ask_session("ill=yes").await?;
    ensure!(first.updated && first.updates_left == 1, "{first:?}");
    ensure!((950.0..=1_050.0).contains(&first.answer), "{first:?}");

    let mut server = server.kill_and_restart().await?;
    let again = server.ask_session("ill=yes").await?;
    ensure!(!again.updated && again.updates_left == 1, "what was learnt is gone: {again:?}");
    ensure!((again.answer - 1_000.0).abs() < 300.0, "{again:?}");
    // All of them live in Ulm, which the hypothesis does not know.
    let second = server.ask_session("city=Ulm,ill=yes").await?;
    ensure!(second.updated && second.updates_left == 0, "{second:?}");
    for _ in 0..2 {
        let status = server.ask_session("ill=no").await.err().context("it should have ended")?;
        ensure!(status.code() == Code::FailedPrecondition, "{status}");
        ensure!(status.message().contains("used all of its 2 updates"), "{status}");
    }
    let mut server = server.kill_and_restart().await?;
    ensure!(server.ask_session("ill=no").await.is_err());
    ensure!(server.spent().await? == 20_000_000_000);
    server.process.stop().await
}

#[tokio::test]
async fn a_session_of_rho_goes_on_after_a_crash() -> anyhow::Result<()> {
    use open_session_request::{Plan, Price};

    let mut server = Server::start().await?;
    let columns = ["age:0..99", "city:Bonn|Ulm", "ill:no|yes"];
    let budget = Some(register_data_set_request::Budget::Rho(9.0));
    let request = RegisterDataSetRequest { budget, ..registration("people.csv", &columns) };
    server.curator.register_data_set(request).await?;
    let choice = v1::SessionChoice { updates: 2, threshold: 300 };
    let request = |price, plan| {
        let (price, plan) = (Some(price), Some(plan));
        OpenSessionRequest { price, plan, ..opening(choice, 0.0) }
    };
    let opened = server.curator.open_session(request(Price::Rho(8.0), Plan::Choice(choice)));
    let opened = opened.await?.into_inner();
    ensure!((opened.updates_max, opened.price_nanos) == (2, 8_000_000_000), "{opened:?}");
    // A quarter of the rows are ill, and the first hypothesis expects half.
    let first = server.ask_session("ill=yes").await?;
    ensure!(first.updated && (990.0..=1_010.0).contains(&first.answer), "{first:?}");
    let mut server = server.kill_and_restart().await?;
    let again = server.ask_session("ill=yes").await?;
    ensure!(!again.updated && again.updates_left == 1, "what was learnt is gone: {again:?}");
    let second = server.ask_session("city=Ulm,ill=yes").await?;
    ensure!(second.updated && second.updates_left == 0, "{second:?}");
    ensure!(server.ask_session("ill=no").await.is_err());

    let both = v1::ApproximateBudget { epsilon: 1.0, delta: 1e-6 };
    let promise = v1::SessionPromise { queries: 9, beta: 0.0 };
    let request = request(Price::Approximate(both), Plan::Promise(promise));
    let request = OpenSessionRequest { session: "sure".to_owned(), ..request };
    let opened = server.curator.open_session(request).await?.into_inner();
    // The rho of (1, 10^-6); and so few queries have noise each, of deviation sqrt(9/(2 rho)).
    ensure!((20_000_000..25_000_000).contains(&opened.price_nanos), "{opened:?}");
    ensure!((opened.threshold, opened.updates_max) == (0, 9), "{opened:?}");
    ensure!((30.0..45.0).contains(&opened.accuracy), "{opened:?}");
    ensure!(server.spent().await? == 8_000_000_000 + opened.price_nanos);
    server.process.stop().await
}

#[tokio::test]
async fn a_question_whose_caller_goes_away_is_paid_for_and_keeps_no_list_waiting()
-> anyhow::Result<()> {
    let mut server = Server::start().await?;
    server.register(2.0).await?;
    // A million candidates take longer than the test waits.
    let synthetic = v1::Synthetic {
        columns: vec!["city".to_owned(), "ill".to_owned()],
        predicates: vec!["city=Bonn,ill=yes".to_owned(); 60],
        size: Some(v1::synthetic::Size::Rows(180)),
    };
    let request = AskRequest {
        data_set: "people".to_owned(),
        price: Some(ask_request::Price::Epsilon(0.25)),
        question: Some(ask_request::Question::Synthetic(synthetic)),
        ..AskRequest::default()
    };
    let mut curator = server.curator.clone();
    // Whether the answer arrives in time is irrelevant; the work was started.
    match tokio::time::timeout(Duration::from_secs(1), curator.ask(request)).await {
        Ok(answered) => drop(answered?),
        Err(_) => eprintln!("given up"),
    }
    let paid = async {
        while server.spent().await? != 250_000_000 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(Duration::from_mins(2), paid).await.context("nothing was paid")??;
    server.process.stop().await
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_and_costs_nothing() -> anyhow::Result<()> {
    let mut server = Server::start().await?;
    let columns = ["age:0..99", "city:Bonn|Ulm", "ill:no|yes"];
    for (file, columns, code, message) in [
        ("../secret.csv", &["x:0..9"][..], Code::InvalidArgument, "is no name of a file"),
        ("/etc/passwd", &["x:0..9"], Code::InvalidArgument, "is no name of a file"),
        ("nobody.csv", &["x:0..9"], Code::NotFound, "has no file \"nobody.csv\""),
        ("people.csv", &[], Code::InvalidArgument, "the universe is empty"),
        ("people.csv", &["age:0..30"], Code::InvalidArgument, "column \"age\" has something"),
        ("people.csv", &["size:0..9"], Code::InvalidArgument, "no column \"size\""),
        ("people.csv", &["age:9..0"], Code::InvalidArgument, "lowest value is above"),
    ] {
        let refused = server.curator.register_data_set(registration(file, columns)).await;
        let status = refused.err().with_context(|| format!("{file} was taken"))?;
        ensure!(status.code() == code && status.message().contains(message), "{status}");
        ensure!(!status.message().contains("31"), "a value of the data: {status}");
    }
    for budget in [0.0, -1.0, 33.0, f64::NAN] {
        let status = server.register(budget).await.err().context("a budget out of range")?;
        ensure!(status.message().contains("it must be a number from 0.000000001"), "{status}");
    }
    let approximate = v1::ApproximateBudget { epsilon: 1.0, delta: 0.0 };
    let budget = Some(register_data_set_request::Budget::Approximate(approximate));
    let request = RegisterDataSetRequest { budget, ..registration("people.csv", &columns) };
    ensure!(server.curator.register_data_set(request).await.is_err());

    server.register(1.0).await?;
    for (predicate, epsilon, message) in [
        ("*", 0.0, "epsilon is 0"),
        ("*", f64::INFINITY, "epsilon is inf"),
        ("age=200", 0.1, "can't have the value \"200\": it has integers 0..99"),
        ("name=Anna", 0.1, "no column \"name\"; the columns are age, city, ill"),
        ("ill", 0.1, "is no predicate"),
    ] {
        let status = server.count(predicate, epsilon).await.err().context("an answer")?;
        ensure!(status.code() == Code::InvalidArgument, "{status}");
        ensure!(status.message().contains(message), "{status}");
    }
    let gaussian = AskRequest {
        data_set: "people".to_owned(),
        price: Some(ask_request::Price::Rho(0.1)),
        beta: 0.0,
        question: Some(ask_request::Question::Histogram(v1::Histogram {
            columns: vec!["city".to_owned()],
            predicate: "ill=yes".to_owned(),
        })),
        ..AskRequest::default()
    };
    let status =
        server.curator.ask(gaussian).await.err().context("rho from a budget of epsilon")?;
    ensure!(status.message().contains("budget is in pure epsilon"), "{status}");
    let nothing = v1::SessionChoice { updates: 0, threshold: 10 };
    ensure!(server.curator.open_session(opening(nothing, 0.1)).await.is_err());
    let choice = v1::SessionChoice { updates: 3, threshold: 10 };
    let price = Some(open_session_request::Price::Rho(0.1));
    let of_rho = OpenSessionRequest { price, ..opening(choice, 0.1) };
    let status = server.curator.open_session(of_rho).await.err().context("rho from epsilon")?;
    ensure!(status.message().contains("budget is in pure epsilon"), "{status}");
    let free = OpenSessionRequest { price: None, ..opening(choice, 0.1) };
    let status = server.curator.open_session(free).await.err().context("a session for nothing")?;
    ensure!(status.message().contains("epsilon is 0"), "{status}");
    ensure!(server.ask_session("*").await.is_err_and(|status| status.code() == Code::NotFound));
    ensure!(server.spent().await? == 0);
    server.process.stop().await
}

#[tokio::test]
async fn choices_that_make_no_sense_or_cost_next_to_nothing_are_refused() -> anyhow::Result<()> {
    let mut server = Server::start().await?;
    server.register(1.0).await?;
    for (chooser, weights, epsilon, message) in [
        (7, vec![], 0.1, "there is no chooser 7"),
        (-1, vec![1, 1], 0.1, "there is no chooser -1"),
        (2, vec![1, 1], 0.1, "report noisy max has no weights"),
        (1, vec![1], 0.1, "weights"),
        (1, vec![], 0.1, "only a quantile has an interval"),
        // What an answer tells beside its noise is not to be had for next to nothing.
        (1, vec![], 1e-9, "a question costs at least 0.0001 of epsilon"),
    ] {
        let choice = v1::Choice {
            column: "ill".to_owned(),
            aim: Some(v1::choice::Aim::MostCommon(v1::MostCommon {})),
            chooser,
            weights,
            interval: message.contains("interval"),
            ..v1::Choice::default()
        };
        let request = AskRequest {
            data_set: "people".to_owned(),
            price: Some(ask_request::Price::Epsilon(epsilon)),
            question: Some(ask_request::Question::Choice(choice)),
            ..AskRequest::default()
        };
        let status = server.curator.ask(request).await.err().context(message)?;
        ensure!(status.code() == Code::InvalidArgument, "{status}");
        ensure!(status.message().contains(message), "{status}");
    }
    let cheap = opening(v1::SessionChoice { updates: 1, threshold: 10 }, 1e-6);
    ensure!(server.curator.open_session(cheap).await.is_err(), "a session for next to nothing");
    ensure!(server.spent().await? == 0);
    server.process.stop().await
}

#[tokio::test]
async fn a_data_set_that_was_withdrawn_is_answered_no_more() -> anyhow::Result<()> {
    let mut server = Server::start().await?;
    server.register(30.0).await?;
    let plan = v1::SessionChoice { updates: 9, threshold: 300 };
    server.curator.open_session(opening(plan, 20.0)).await?;
    server.ask_session("ill=yes").await?;
    server.count("*", 1.0).await?;
    let withdrawal = |name: &str| v1::WithdrawDataSetRequest { name: name.to_owned() };
    let unknown = server.curator.withdraw_data_set(withdrawal("nobody")).await;
    ensure!(unknown.is_err_and(|status| status.code() == Code::NotFound));
    for _ in 0..2 {
        let set = server.curator.withdraw_data_set(withdrawal("people")).await?.into_inner();
        ensure!(set.withdrawn && set.spent_nanos == 30_000_000_000, "{set:?}");
        let listed = server.curator.list_data_sets(ListDataSetsRequest::default()).await?;
        ensure!(listed.into_inner().data_sets == [set]);
        for _ in 0..2 {
            for refused in [server.count("*", 0.1).await.err(), server.ask_session("*").await.err()]
            {
                let status = refused.context("an answer")?;
                ensure!(status.code() == Code::FailedPrecondition, "{status}");
                ensure!(status.message().contains("people was withdrawn"), "{status}");
            }
            server = server.kill_and_restart().await?;
        }
    }
    // Its rows have no other budget.
    let status = server.register(1.0).await.err().context("a second budget")?;
    ensure!(status.code() == Code::AlreadyExists, "{status}");
    server.process.stop().await
}

fn bandana(url: &str, arguments: &[&str]) -> anyhow::Result<Output> {
    let mut command = Command::new(PROGRAM);
    command.clean_environment().env("BANDANA_OPERATOR_URL", url);
    Ok(command.arg("query").args(arguments).output()?)
}

/// The output of a command, which must succeed.
fn printed(url: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let Output { status, stdout, stderr } = bandana(url, arguments)?;
    ensure!(status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&stderr));
    Ok(String::from_utf8(stdout)?)
}

#[tokio::test]
async fn the_command_line_asks_the_same() -> anyhow::Result<()> {
    let server = Server::start().await?;
    let url = server.process.operator_url.clone();
    let printed = |arguments: &[&str]| printed(&url, arguments);
    let register = ["register", "people", "--file", "people.csv", "--column", "age:0..99"];
    let more = ["--column", "city:Bonn|Ulm", "--column", "ill:no|yes", "--epsilon", "1"];
    let budget = ["--delta", "0.000001"];
    let registered = printed(&[&register[..], &more, &budget].concat())?;
    ensure!(registered.contains("rho"), "{registered}");
    let price = ["--rho", "0.01"];
    let counted = printed(&[&["count", "people", "--where", "ill=yes"][..], &price].concat())?;
    ensure!(counted.contains("ill=yes") && counted.contains("paid: 0.01"), "{counted}");
    let sums = printed(&[&["sum", "people", "--column", "age", "--json"][..], &price].concat())?;
    let sums: serde_json::Value = serde_json::from_str(&sums)?;
    let mean = sums["numbers"]["numbers"][0]["value"].as_f64().context("no value")? / ROWS as f64;
    ensure!((40.0..49.0).contains(&mean), "{sums}");
    let choose = ["choose", "people", "--column", "ill", "--most-common", "--epsilon", "0.05"];
    let chosen = printed(&choose)?;
    // 0.05^2/8.
    ensure!(chosen.starts_with("no\n") && chosen.ends_with("paid: 0.0003125\n"), "{chosen}");
    let synthetic = ["synthetic", "people", "--column", "city", "--column", "ill", "--rows", "4"];
    let released = printed(&[&synthetic[..], &["--epsilon", "0.05"]].concat())?;
    ensure!(released.lines().count() == 6 && released.starts_with("city,ill\n"), "{released}");
    let debits = printed(&["debits", "people"])?;
    ensure!(debits.contains("synthetic database of city, ill, epsilon 0.05"), "{debits}");
    ensure!(debits.lines().count() == 5, "{debits}");
    let long = format!("age={}", vec!["20..29"; 200].join("|"));
    printed(&["count", "people", "--rho", "0.001", "--where", &long])?;
    let debits = printed(&["debits", "people"])?;
    let longest = debits.lines().map(|line| line.chars().count()).max();
    ensure!(
        longest < Some(650) && debits.contains("… ("),
        "what a question names is kept in short: {debits}"
    );
    let dear = bandana(&url, &["count", "people", "--where", "*", "--rho", "100"])?;
    ensure!(dear.status.code() == Some(4), "{dear:?}");
    let nobody = bandana(&url, &["count", "nobody", "--where", "*", "--rho", "0.1"])?;
    ensure!(nobody.status.code() == Some(3), "{nobody:?}");
    let choice = printed(&["plan-choice", "--candidates", "100", "--epsilon", "0.1"])?;
    let stated = "a choice among 100 for epsilon 0.1 (rho 0.00125): at most 52.6 rows worse than the \
                  best on average, and 153 with probability 0.95\n";
    ensure!(choice == stated, "{choice}");
    let needed = printed(&["plan-choice", "--candidates", "100", "--mean-rows", "52.6", "--json"])?;
    let needed: serde_json::Value = serde_json::from_str(&needed)?;
    let nanos = needed["epsilon_nanos"].as_u64().context("no epsilon")?;
    ensure!((99_900_000..100_000_000).contains(&nanos), "{needed}");
    let plan = printed(&["plan", "--epsilon", "1", "--queries", "100"])?;
    ensure!(plan.starts_with("100 counts: none is off by more than 758 rows"), "{plan}");
    server.process.stop().await
}

#[tokio::test]
async fn synthetic_tables_are_written_paid_once_and_on_record() -> anyhow::Result<()> {
    let server = Server::start().await?;
    let url = server.process.operator_url.clone();
    let register = ["register", "people", "--file", "people.csv", "--column", "age:0..99"];
    let more = ["--column", "city:Bonn|Ulm", "--column", "ill:no|yes", "--rho", "1"];
    printed(&url, &[&register[..], &more].concat())?;
    let out = |name: &str| server.directory.path().join(name).display().to_string();
    let (csv, parquet) = (out("made.csv"), out("made.parquet"));
    let table = ["synthetic-table", "people", "--rows", "800", "--rho", "0.25", "--out"];
    let again = ["--question-id", "000102030405060708090a0b0c0d0e0f"];
    let made = printed(&url, &[&table[..], &[&csv], &again].concat())?;
    ensure!(made.contains("800 rows\nof 3 marginals") && made.contains("paid: 0.25"), "{made}");
    let rows = std::fs::read_to_string(&csv)?;
    ensure!(rows.starts_with("age,city,ill\n") && rows.lines().count() == 801, "{rows}");
    // Whoever is ill lives in Ulm, half of them.
    let ill = |city: &str| rows.lines().filter(|row| row.ends_with(&format!("{city},yes"))).count();
    ensure!(ill("Bonn") < 8 && (190..=210).contains(&ill("Ulm")), "{} {}", ill("Bonn"), ill("Ulm"));
    // A file that is there is not overwritten, which costs nothing.
    let taken = bandana(&url, &[&table[..], &[&csv]].concat())?;
    ensure!(!taken.status.success() && std::fs::read_to_string(&csv)? == rows, "{taken:?}");

    let server = server.kill_and_restart().await?;
    let url = server.process.operator_url.clone();
    let kept = printed(&url, &[&table[..], &[&parquet], &again, &["--json"]].concat())?;
    let kept: serde_json::Value = serde_json::from_str(&kept)?;
    ensure!(kept["kept"] == true && kept["price_nanos"] == 250_000_000, "{kept}");
    let largest = kept["largest"]["value"].as_f64().context("no error")?;
    ensure!(largest < 0.3 && kept["largest"]["accuracy"].as_f64() > Some(0.0), "{kept}");
    ensure!(std::fs::read(&parquet)?.starts_with(b"PAR1"));
    let debits = printed(&url, &["debits", "people"])?;
    ensure!(debits.lines().count() == 2, "{debits}");
    ensure!(debits.contains("synthetic table of 800 rows, rho 0.25"), "{debits}");
    let dear = ["synthetic-table", "people", "--rows", "9", "--rho", "0.9", "--out"];
    let none = server.directory.path().join("none.csv");
    let dear = bandana(&url, &[&dear[..], &[&none.display().to_string()]].concat())?;
    ensure!(dear.status.code() == Some(4) && !none.exists(), "{dear:?}");
    server.process.stop().await
}

#[tokio::test]
async fn sessions_are_opened_and_asked_from_the_command_line() -> anyhow::Result<()> {
    let server = Server::start().await?;
    let url = server.process.operator_url.clone();
    let printed = |arguments: &[&str]| printed(&url, arguments);
    let register = ["register", "people", "--file", "people.csv", "--column", "age:0..99"];
    let more = ["--column", "city:Bonn|Ulm", "--column", "ill:no|yes", "--epsilon", "32"];
    printed(&[&register[..], &more].concat())?;
    let open = ["--data-set", "people", "--column", "city", "--column", "ill", "--epsilon"];
    let own = ["20", "--updates", "2", "--threshold", "300"];
    let opened = printed(&[&["open", "habits"][..], &open, &own].concat())?;
    let (first, rest) = opened.split_once("; ").context("one clause only")?;
    ensure!(first == "session habits over 4 cells: at most 2 updates, threshold 300 rows");
    ensure!(rest == "nothing is promised about errors; paid: 20\n", "{opened}");
    let promise = ["2", "--queries", "9"];
    let promised = printed(&[&["open", "sure"][..], &open, &promise].concat())?;
    ensure!(promised.contains("no answer is off by more than "), "{promised}");

    let ask = ["ask", "habits", "--where", "ill=yes", "--question-id"];
    let id = "07".repeat(16);
    let answer = printed(&[&ask[..], &[&id]].concat())?;
    let (number, left) = answer.split_once('\n').context("one line only")?;
    let number: f64 = number.parse()?;
    ensure!(
        (950.0..=1_050.0).contains(&number)
            && left.starts_with("updates left: 1; nothing is promised"),
        "{answer}"
    );
    // The same question is not answered again with new noise.
    let again = printed(&[&ask[..], &[&id, "--json"]].concat())?;
    let again: serde_json::Value = serde_json::from_str(&again)?;
    ensure!(again["kept"] == true && again["updates_left"] == 1, "{again}");
    ensure!(again["answer"].as_f64().map(f64::round) == Some(number), "{again}");
    let nobody = bandana(&url, &["ask", "nobody", "--where", "*"])?;
    ensure!(nobody.status.code() == Some(3), "{nobody:?}");

    let by_city = printed(&["histogram", "people", "--column", "city", "--epsilon", "5"])?;
    ensure!(by_city.contains("city=Bonn") && by_city.contains("city=Ulm"), "{by_city}");
    let rho = ["open", "other", "--data-set", "people", "--rho", "0.1", "--queries", "9"];
    let refused = bandana(&url, &rho)?;
    let said = String::from_utf8_lossy(&refused.stderr);
    ensure!(!refused.status.success() && said.contains("pure epsilon"), "{said}");
    let median = ["choose", "people", "--column", "age", "--quantile", "0.5", "--epsilon", "5"];
    let median = printed(&median)?;
    let age: u32 = median.lines().next().context("nothing was printed")?.parse()?;
    ensure!((42..=47).contains(&age), "{median}");
    let within = printed(&["plan", "--epsilon", "1", "--alpha-rows", "758"])?;
    ensure!(within.starts_with("100 counts: none is off by more than 7"), "{within}");
    let never = printed(&["plan", "--epsilon", "1", "--alpha-rows", "1"])?;
    ensure!(never == "not one count is that accurate at this price\n", "{never}");
    server.process.stop().await
}
