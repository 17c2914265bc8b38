//! `bandana experiment`, `estimate` and `watch`, as people and scripts run them.

use std::collections::BTreeSet;
use std::process::{Output, Stdio};

use anyhow::{Context as _, ensure};
use bandana_examples::environment::CleanEnvironment as _;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::{ExperimentName, UploadStatus};
use bandana_tests::harness::{Aggregator, three_arms, upload};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// The flags of a minimal experiment.
const CHECKOUT: [&str; 12] = [
    "experiment",
    "create",
    "checkout",
    "--epsilon",
    "1",
    "--arm",
    "red",
    "--arm",
    "green",
    "--attribution-window-seconds",
    "3600",
    "--json",
];

/// A command without a terminal, for this server.
fn command(url: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).clean_environment().env("BANDANA_OPERATOR_URL", url);
    command.env("BANDANA_WAIT_SECONDS", "0");
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

async fn bandana(url: &str, arguments: &[&str]) -> anyhow::Result<Output> {
    Ok(command(url, arguments).output().await?)
}

/// The output of a command, which must succeed.
pub(super) async fn printed(url: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let output = bandana(url, arguments).await?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{arguments:?}: {}: {errors}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

pub(super) async fn object(url: &str, arguments: &[&str]) -> anyhow::Result<Value> {
    let text = printed(url, arguments).await?;
    ensure!(text.lines().count() == 1, "more than one line: {text}");
    Ok(serde_json::from_str(&text)?)
}

/// Asserts that a command fails with this exit code, and that its error contains each of `parts`.
pub(super) async fn refused(
    url: &str,
    arguments: &[&str],
    code: i32,
    parts: &[&str],
) -> anyhow::Result<()> {
    let output = bandana(url, arguments).await?;
    let errors = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
    assert!(output.stdout.is_empty(), "{arguments:?} printed something");
    for part in parts {
        assert!(errors.contains(part), "{part:?} is not in: {errors}");
    }
    Ok(())
}

/// Sends reports and has a policy made from them.
async fn report(
    aggregator: &mut Aggregator,
    number: u128,
    specification: &Specification,
    reports: &[(usize, bool)],
) -> anyhow::Result<()> {
    let day = aggregator.day(specification).await?;
    let request = upload(number, specification, day, reports)?;
    let answer = aggregator.device.submit_upload(request).await?.into_inner();
    ensure!(answer.status() == UploadStatus::Accepted, "{answer:?}");
    let name = ExperimentName { experiment_id: specification.experiment_id().to_string() };
    aggregator.operator.refresh_policy(name).await?;
    Ok(())
}

#[tokio::test]
async fn an_experiment_is_created_by_flags_and_lives_its_life() -> anyhow::Result<()> {
    let aggregator = Aggregator::start(PROGRAM).await?;
    let url = &aggregator.process.operator_url;
    assert_eq!(printed(url, &["experiment", "list"]).await?, "there are no experiments\n");

    let created = object(url, &CHECKOUT).await?;
    assert_eq!(created["experiment_id"], "checkout");
    assert_eq!((&created["state"], &created["learner"]), (&"running".into(), &"ldp-ts".into()));
    assert_eq!(created["rewards"]["kind"], "binary");
    assert_eq!(created["estimand"], "mean_reward");
    assert_eq!(created["arms"][1]["label"], "green");
    let shown = object(url, &["experiment", "show", "checkout", "--json"]).await?;
    assert_eq!(shown, created);
    let listed = object(url, &["experiment", "list", "--json"]).await?;
    assert_eq!(listed["experiments"], Value::from(vec![created]));

    for (arguments, line) in [
        (&["pause"][..], "checkout is paused, revision 1\n"),
        (&["resume"], "checkout is running, revision 1\n"),
        (&["add-arm", "blue"], "checkout is running, revision 2\n"),
        (&["retire-arm", "red"], "checkout is running, revision 3\n"),
    ] {
        let (action, rest) = arguments.split_first().context("an action")?;
        let arguments = [&["experiment", action, "checkout"], rest].concat();
        assert_eq!(printed(url, &arguments).await?, line);
    }
    let shown = printed(url, &["experiment", "show", "checkout"]).await?;
    for line in ["estimated           mean reward", "  0  red    retired", "  2  blue"] {
        assert!(shown.lines().any(|shown| shown == line), "{line:?} is not in: {shown}");
    }

    let stop = ["experiment", "stop", "checkout"];
    refused(url, &stop, 1, &["not a terminal", "--yes"]).await?;
    let stopped = object(url, &[&stop[..], &["--yes", "--json"]].concat()).await?;
    assert_eq!((&stopped["state"], &stopped["revision"]), (&"stopped".into(), &3.into()));
    let audit = object(url, &["audit", "checkout", "--limit", "3", "--json"]).await?;
    let told = audit["entries"].as_array().context("no entries")?;
    let told: Vec<_> = told.iter().map(|entry| (&entry["action"], &entry["caller"])).collect();
    let [stop_action, retire, add] = ["stop", "retire-arm", "add-arm"].map(Value::from);
    let anybody = Value::from("(anybody)");
    assert_eq!(told, [(&stop_action, &anybody), (&retire, &anybody), (&add, &anybody)]);
    let audit = printed(url, &["audit"]).await?;
    assert!(audit.contains("running -> stopped") && audit.contains("arm 2 (blue)"), "{audit}");

    let table = printed(url, &["experiment", "list"]).await?;
    let row = table.lines().nth(1).context("a row")?;
    let cells: Vec<_> = row.split_whitespace().collect();
    assert_eq!(cells, ["checkout", "stopped", "3", "2", "1", "linear", "ldp-ts", "0"]);

    let draft = [&CHECKOUT[..2], &["later"], &CHECKOUT[3..], &["--draft"]].concat();
    assert_eq!(object(url, &draft).await?["state"], "draft");
    let started = printed(url, &["experiment", "start", "later"]).await?;
    assert_eq!(started, "later is running, revision 1\n");
    Ok(())
}

#[tokio::test]
async fn an_experiment_is_created_from_a_file_under_flags() -> anyhow::Result<()> {
    let aggregator = Aggregator::start(PROGRAM).await?;
    let url = &aggregator.process.operator_url;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("experiment.toml");
    std::fs::write(
        &path,
        "experiment_id = \"price\"\nepsilon = 2\nreward_kind = \"bounded\"\nreward_low = -1.5\n\
         reward_high = 4\nout_of_range = \"clamp\"\nlearner = \"ldp-ucb\"\nfloor_weight = 0.1\n\
         attribution_window_seconds = 60\nrelease_delay_seconds_max = 30\n\
         arms = [\"low\", \"high\"]\n",
    )?;
    let file = path.to_str().context("a path in UTF-8")?;
    let create = ["experiment", "create", "--json", "--file", file];
    let created = object(url, &[&create[..], &["--epsilon", "1.5"]].concat()).await?;
    assert_eq!((&created["epsilon"], &created["floor_weight"]), (&1.5.into(), &0.1.into()));
    assert_eq!(created["learner"], "ldp-ucb");
    let rewards = serde_json::json!({
        "kind": "bounded", "low": -1.5, "high": 4.0, "out_of_range": "clamp", "default": -1.5,
    });
    assert_eq!(created["rewards"], rewards);
    assert_eq!(created["release_delay_seconds_max"], 30);

    // A nonlinear curve on bounded rewards needs explicit consent.
    let curved = ["curved", "--mechanism", "quadratic", "--curvature", "-0.5"];
    let curved = [&create[..], &curved].concat();
    refused(url, &curved, 4, &["mean of g(reward)", "--accept-nonlinear-estimand"]).await?;
    let output = bandana(url, &[&curved[..], &["--accept-nonlinear-estimand"]].concat()).await?;
    assert!(output.status.success());
    assert!(String::from_utf8(output.stderr)?.contains("warning: with a nonlinear curve"));
    let created: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(
        (&created["mechanism"], &created["curvature"]),
        (&"quadratic".into(), &(-0.5).into())
    );
    assert_eq!(created["estimand"], "mean_curved_reward");
    for arguments in [&["experiment", "show", "curved"][..], &["estimate", "curved"]] {
        let shown = printed(url, arguments).await?;
        assert!(shown.contains("mean of g(reward)"), "{shown}");
    }

    std::fs::write(&path, "epsilom = 2\n")?;
    refused(url, &create, 1, &[file, "line 1", "epsilom"]).await?;
    refused(url, &["experiment", "create", "--file", "/nowhere"], 1, &["/nowhere"]).await
}

#[tokio::test]
async fn failures_are_told_apart_by_exit_codes() -> anyhow::Result<()> {
    let aggregator = Aggregator::start(PROGRAM).await?;
    let url = aggregator.process.operator_url.clone();
    object(&url, &CHECKOUT).await?;

    refused(&url, &["experiment", "show", "No Body"], 2, &["No Body"]).await?;
    refused(&url, &["experiment", "create", "a"], 2, &["--epsilon", "--arm"]).await?;
    refused(&url, &["estimate", "checkout", "--operator-url", "nowhere"], 2, &["http://"]).await?;
    for arguments in [
        &["experiment", "show", "nobody"][..],
        &["experiment", "pause", "nobody"],
        &["experiment", "stop", "nobody", "--yes"],
        &["experiment", "add-arm", "nobody", "blue"],
        &["experiment", "export", "nobody"],
        &["estimate", "nobody"],
        &["watch", "nobody"],
    ] {
        refused(&url, arguments, 3, &["there is no experiment nobody"]).await?;
    }
    refused(&url, &CHECKOUT, 4, &["checkout"]).await?;
    refused(&url, &["experiment", "resume", "checkout"], 4, &["running"]).await?;
    refused(&url, &["experiment", "add-arm", "checkout", "red"], 4, &["red"]).await?;
    refused(&url, &["experiment", "retire-arm", "checkout", "7"], 4, &["7"]).await?;
    let arms = ["\"violet\"", "\"red\", \"green\""];
    refused(&url, &["experiment", "retire-arm", "checkout", "violet"], 4, &arms).await?;
    refused(&url, &["estimate", "checkout", "--alpha", "2"], 4, &["InvalidArgument"]).await?;
    refused(&url, &["estimate", "checkout", "--alpha", "0"], 4, &["--alpha"]).await?;

    aggregator.process.stop().await?;
    let unreachable = ["can't reach the operators' service", url.as_str()];
    refused(&url, &["experiment", "list"], 5, &unreachable).await?;
    refused(&url, &["watch", "checkout"], 5, &unreachable).await
}

#[tokio::test]
async fn estimates_are_shown_and_exported() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let url = aggregator.process.operator_url.clone();
    let mut message = three_arms("colours");
    message.arms[0].label = "red, \"dark\"".to_owned();
    let specification = aggregator.create(message).await?;
    let before = object(&url, &["estimate", "colours", "--json"]).await?;
    assert_eq!((&before["arms"][2]["estimate"], &before["best_arm"]), (&Value::Null, &Value::Null));
    // Nearly all reports of the second arm are ones, and a quarter of the others'.
    let bit = |n: usize| if n % 3 == 1 { !n.is_multiple_of(20) } else { n.is_multiple_of(4) };
    let reports: Vec<_> = (0..3000).map(|n| (n % 3, bit(n))).collect();
    report(&mut aggregator, 1, &specification, &reports).await?;

    let estimate = ["estimate", "colours", "--dishonest-share", "0.01"];
    let view = object(&url, &[&estimate[..], &["--json"]].concat()).await?;
    assert_eq!((&view["reports"], &view["alpha"]), (&3000.into(), &0.05.into()));
    assert_eq!((&view["best_arm"], &view["estimand"]), (&1.into(), &"mean_reward".into()));
    assert!(view["arms"][0]["manipulation_shift"].as_f64() > Some(0.0));
    let fields = |view: &Value| view.as_object().map(|o| o.keys().cloned().collect());
    let of_view: BTreeSet<String> = fields(&view).context("an object")?;
    let of_arm: BTreeSet<String> = fields(&view["arms"][0]).context("an object")?;

    let shown = printed(&url, &estimate).await?;
    for part in ["colours: 3000 reports", "mean reward", "best with confidence 95%: 1 (green)"] {
        assert!(shown.contains(part), "{part} is not in: {shown}");
    }
    assert!(!shown.contains('\u{1b}'), "{shown}");
    let help = printed(&url, &["estimate", "--help"]).await?;
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for field in of_view.iter().chain(&of_arm) {
        assert!(help.contains(field), "the help does not explain {field}");
    }

    let folder = tempfile::tempdir()?;
    let path = folder.path().join("colours.csv");
    let export = ["experiment", "export", "colours", "--dishonest-share", "0.01"];
    let out = [&export[..], &["--out", path.to_str().context("a path in UTF-8")?]].concat();
    assert_eq!(printed(&url, &out).await?, "");
    let text = std::fs::read_to_string(&path)?;
    assert_eq!(printed(&url, &export).await?, text);
    refused(&url, &out, 1, &["exists already"]).await?;
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    let columns: BTreeSet<_> = lines[0].split(',').map(str::to_owned).collect();
    // Symbols have separate columns.
    let lacking: Vec<_> = of_arm.difference(&columns).collect();
    assert_eq!(lacking, ["symbols"], "{}", lines[0]);
    let first = &view["arms"][0];
    let cells = format!("\"red, \"\"dark\"\"\",false,1000,{},{}", first["ones"], first["estimate"]);
    assert!(lines[1].contains(&cells), "{cells} is not in: {text}");
    Ok(())
}

/// A watch, and its output lines.
fn watch(url: &str, arguments: &[&str]) -> anyhow::Result<(Child, Lines<BufReader<ChildStdout>>)> {
    let mut watch = command(url, &[&["watch", "colours"], arguments].concat());
    let mut watch = watch.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let stdout = watch.stdout.take().context("a watch has standard output")?;
    Ok((watch, BufReader::new(stdout).lines()))
}

#[tokio::test]
async fn a_watch_tells_every_policy_until_it_is_interrupted() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let url = aggregator.process.operator_url.clone();
    let specification = aggregator.create(three_arms("colours")).await?;
    let (mut watched, mut lines) = watch(&url, &["--json"])?;
    let (mut counted, mut texts) = watch(&url, &["--updates", "2"])?;
    let first: Value = serde_json::from_str(&lines.next_line().await?.context("a line")?)?;
    assert_eq!(first["reports"], 0);
    let nothing = "0 reports, mean reward and traffic; red - at 33.3%; green - at 33.3%; blue - at \
                   33.3%";
    assert_eq!(texts.next_line().await?.as_deref(), Some(nothing));

    report(&mut aggregator, 1, &specification, &[(0, true), (1, false)]).await?;
    let second: Value = serde_json::from_str(&lines.next_line().await?.context("a line")?)?;
    assert_eq!(second["reports"], 2);
    assert_ne!(second["policy_version"], first["policy_version"]);
    assert!(texts.next_line().await?.is_some_and(|line| line.starts_with("2 reports")));
    // The requested number of lines.
    assert_eq!(texts.next_line().await?, None);
    assert_eq!(counted.wait().await?.code(), Some(0));

    let id = i32::try_from(watched.id().context("a running watch")?)?;
    kill_process(Pid::from_raw(id).context("an id")?, Signal::INT)?;
    assert_eq!(watched.wait().await?.code(), Some(0));

    // Shutdown of the server ends a watch, and a watch does not delay the shutdown.
    let (mut left, mut lines) = watch(&url, &[])?;
    assert!(lines.next_line().await?.is_some());
    aggregator.process.stop().await?;
    assert_eq!(left.wait().await?.code(), Some(5));
    Ok(())
}

#[tokio::test]
async fn times_have_units_and_arms_are_called_by_their_labels() -> anyhow::Result<()> {
    let aggregator = Aggregator::start(PROGRAM).await?;
    let url = &aggregator.process.operator_url;
    let create = ["experiment", "create", "py", "--epsilon", "1", "--json"];
    let arms = ["--arm", "violet", "--arm", "1", "--arm", "blue", "--arm", "green"];
    let times = ["--attribution-window-seconds", "1h", "--release-delay-seconds-max", "2 min"];
    let created = object(url, &[&create[..], &arms, &times].concat()).await?;
    assert_eq!(created["attribution_window_seconds"], 3600);
    assert_eq!(created["release_delay_seconds_max"], 120);
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("file.toml");
    std::fs::write(&file, "attribution_window_seconds = \"90m\"\narms = [\"a\", \"b\"]\n")?;
    let file = file.to_str().context("a path in UTF-8")?;
    let from_file = ["experiment", "create", "file", "--epsilon", "1", "--file", file, "--json"];
    assert_eq!(object(url, &from_file).await?["attribution_window_seconds"], 5400);
    let odd = [&create[..], &arms, &["--attribution-window-seconds", "soon"]].concat();
    refused(url, &odd, 2, &["soon", "3600, 1h, 90m"]).await?;

    let retire = async |arm: &[&str]| {
        let arguments = [&["experiment", "retire-arm", "py"], arm, &["--json"]].concat();
        let retired = object(url, &arguments).await?;
        let arms = retired["arms"].as_array().context("arms")?.iter();
        anyhow::Ok(arms.map(|arm| arm["retired"] == true).collect::<Vec<_>>())
    };
    assert_eq!(retire(&["violet"]).await?, [true, false, false, false]);
    // The label of arm 1.
    assert_eq!(retire(&["1"]).await?, [true, true, false, false]);
    assert_eq!(retire(&["--index", "3"]).await?, [true, true, false, true]);
    refused(url, &["experiment", "retire-arm", "py"], 2, &["<ARM>"]).await?;
    aggregator.process.stop().await
}

#[tokio::test]
async fn a_taken_port_is_told_with_the_flag_that_changes_it() -> anyhow::Result<()> {
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = taken.local_addr()?.to_string();
    let folder = tempfile::tempdir()?;
    let data_dir = folder.path().to_str().context("a path in UTF-8")?;
    for (flag, other, section) in [
        ("--listen", "--operator-listen", "[devices]"),
        ("--operator-listen", "--listen", "[operators]"),
    ] {
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "--data-dir", data_dir, flag, &address, other, "127.0.0.1:0"]);
        let output = command.clean_environment().kill_on_drop(true).output().await?;
        let errors = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.code(), Some(1), "{errors}");
        let told = format!("can't listen on {address}, which another program uses; choose another");
        for part in [&told, &format!("with {flag},"), section] {
            assert!(errors.contains(part), "{part:?} is not in: {errors}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn an_experiment_about_refusals_says_what_its_categories_mean() -> anyhow::Result<()> {
    let aggregator = Aggregator::start(PROGRAM).await?;
    let url = aggregator.process.operator_url.clone();
    let words = ["experiment", "create", "refusals", "--refusals", "--epsilon", "0.5", "--json"];
    let made = object(&url, &words).await?;
    assert_eq!((&made["rewards"]["kind"], &made["symbols"]), (&"categorical".into(), &8.into()));
    assert_eq!((&made["sticky"]["report_days"], &made["learner"]), (&28.into(), &"uniform".into()));
    assert_eq!(made["arms"].as_array().map(Vec::len), Some(1));
    let estimate = object(&url, &["estimate", "refusals", "--json"]).await?;
    let meaning = &estimate["arms"][0]["symbols"][1]["meaning"];
    assert_eq!(meaning, "more epsilon than the app accepts");
    let table = printed(&url, &["estimate", "refusals"]).await?;
    assert!(table.contains("no signature that the app demands"), "{table}");
    let with_arm = ["experiment", "create", "x", "--refusals", "--epsilon", "1", "--arm", "a"];
    refused(&url, &with_arm, 2, &["--refusals", "--arm"]).await?;
    // The categories of others are numbers.
    let other =
        ["experiment", "create", "other", "--categories", "8", "--arm", "a", "--epsilon", "1"];
    printed(&url, &[&other[..], &["--attribution-window-seconds", "60"]].concat()).await?;
    let estimate = object(&url, &["estimate", "other", "--json"]).await?;
    assert_eq!(estimate["arms"][0]["symbols"][1]["meaning"], Value::Null);
    aggregator.process.stop().await?;
    Ok(())
}

#[tokio::test]
async fn operators_say_who_takes_part() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let url = aggregator.process.operator_url.clone();
    let create = async |rest: &str| {
        let arms = "--arm a --arm b --epsilon 1 --attribution-window-seconds 60 --json";
        let words = format!("experiment create {rest} {arms}");
        object(&url, &words.split_whitespace().collect::<Vec<_>>()).await
    };
    let plain = create("plain").await?;
    assert_eq!(plain["sticky"], serde_json::json!({"until_weight_below": 0.01, "report_days": 0}));
    assert_eq!((&plain["layer"], &plain["enrolment_share"]), (&Value::Null, &1.0.into()));
    assert_eq!(create("redrawn --redraw").await?["sticky"], Value::Null);
    let first = "first --layer page:0-0.25 --enrolment-share 0.05 --report-days 28";
    let first = create(first).await?;
    assert_eq!(first["layer"], serde_json::json!({"name": "page", "from": 0.0, "to": 0.25}));
    assert_eq!(first["sticky"]["report_days"], 28);

    let arms = ["--arm", "a", "--epsilon", "1", "--attribution-window-seconds", "60"];
    let refuses = async |rest: &[&str], code: i32, parts: &[&str]| {
        let words = [&["experiment", "create"], rest, &arms].concat();
        refused(&url, &words, code, parts).await
    };
    refuses(&["x", "--layer", "page:0.2-0.5"], 4, &["page:0-0.25", "experiment first"]).await?;
    refuses(&["x", "--layer", "page"], 4, &["checkout:0-0.5"]).await?;
    refuses(&["x", "--layer", "page:0.5-0.5"], 4, &["ends after it begins"]).await?;
    refuses(&["x", "--enrolment-share", "0"], 4, &["above 0"]).await?;
    refuses(&["x", "--enrolment-share", "1.5"], 4, &["from 0 to 1"]).await?;
    refuses(&["x", "--redraw", "--report-days", "1"], 4, &["--redraw"]).await?;
    for (share, says) in [("1", "share below 1"), ("-0.1", "from 0 to 1"), ("1e-7", "millionth")] {
        refuses(&["x", &format!("--holdout-group={share}")], 4, &[says]).await?;
    }
    create("second --layer page:0.25-1").await?;
    create("elsewhere --layer search:0-1").await?;
    // What has ended gets no reports any more.
    printed(&url, &["experiment", "stop", "first", "--yes"]).await?;
    create("third --layer page:0-0.25").await?;

    let grown = ["experiment", "enrol", "second", "0.5", "--json"];
    let before = create("fourth --enrolment-share 0.5").await?["digest"].clone();
    let grown = object(&url, &grown).await?;
    assert_eq!((&grown["revision"], &grown["enrolment_share"]), (&2.into(), &0.5.into()));
    refused(&url, &["experiment", "enrol", "second", "0.5"], 4, &["enrolled already"]).await?;
    refused(&url, &["experiment", "enrol", "second", "0"], 4, &["nobody"]).await?;
    let audit = printed(&url, &["audit", "second"]).await?;
    assert!(audit.contains("set-enrolment") && audit.contains("a share of 0.5"), "{audit}");
    // A draft too has its part of a layer; and all of it outlasts the server.
    printed(&url, &["experiment", "enrol", "fourth", "1"]).await?;
    aggregator = aggregator.kill_and_restart().await?;
    let url = aggregator.process.operator_url.clone();
    let shown = object(&url, &["experiment", "show", "fourth", "--json"]).await?;
    assert_eq!((&shown["revision"], &shown["enrolment_share"]), (&2.into(), &1.0.into()));
    assert_ne!(shown["digest"], before);
    let words = printed(&url, &["experiment", "show", "second"]).await?;
    for part in
        ["page, 0.25 to 1", "0.5 of the installations", "kept until one weighs less than 0.01"]
    {
        assert!(words.contains(part), "{part:?} is not in: {words}");
    }
    aggregator.process.stop().await
}

#[tokio::test]
async fn the_doctor_tells_whether_devices_take_part_and_why_not() -> anyhow::Result<()> {
    let aggregator = Aggregator::start(PROGRAM).await?;
    let url = aggregator.process.operator_url.clone();
    let create = "experiment create colour --epsilon 1 --arm a --arm b \
                  --attribution-window-seconds 60 --release-delay-seconds-max 60";
    printed(&url, &create.split_whitespace().collect::<Vec<_>>()).await?;
    let server = aggregator.process.device_url.clone();
    let doctor = |rest: &[&'static str]| {
        let words = ["doctor", "colour", "--server", &server].map(str::to_owned);
        words.into_iter().chain(rest.iter().map(|word| (*word).to_owned())).collect::<Vec<_>>()
    };
    let asks = async |rest: &[&'static str]| {
        let words = doctor(rest);
        bandana(&url, &words.iter().map(String::as_str).collect::<Vec<_>>()).await
    };
    let fitting = asks(&["--least-release-delay-seconds", "60"]).await?;
    let text = String::from_utf8(fitting.stdout)?;
    assert!(fitting.status.success() && text.ends_with("terms take part\n"), "{text}");
    let key = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    for (rest, check) in [
        (&[][..], "release-delay"),
        (&["--epsilon-max", "0.5"], "epsilon"),
        (&["--budget", "0.9"], "budget"),
        (&["--reward-kind", "bounded"], "rewards"),
        (&["--range", "-1:1"], "rewards"),
        (&["--signer", key], "signatures"),
        (&["--shuffled"], "shuffling"),
    ] {
        let delay = ["--least-release-delay-seconds", "60", "--json"];
        let given = if rest.is_empty() { vec!["--json"] } else { [rest, &delay].concat() };
        let unfit = asks(&given).await?;
        assert_eq!(unfit.status.code(), Some(4), "{rest:?}");
        assert!(String::from_utf8(unfit.stderr)?.contains(check), "{rest:?}");
        let view: Value = serde_json::from_slice(&unfit.stdout)?;
        let findings = view["findings"].as_array().context("findings")?.iter();
        let bad = findings.filter(|one| one["good"] == false).map(|one| &one["check"]);
        assert_eq!(bad.collect::<Vec<_>>(), [check], "{view}");
    }
    // What a batch is worth is compared with what the app accepts.
    let create = "experiment create pair --epsilon 1 --arm a --arm b --attribution-window-seconds 60 \
                  --shuffle-batch 2";
    printed(&url, &create.split_whitespace().collect::<Vec<_>>()).await?;
    for (rest, good, says) in [
        (&[][..], false, "add --shuffled"),
        (&["--shuffled"], true, "not compared"),
        (&["--shuffled", "--central-epsilon", "0.25"], false, "accepts up to 0.25"),
        (&["--shuffled", "--central-epsilon", "1"], true, "accepts up to 1"),
    ] {
        let words = ["doctor", "pair", "--server", &server, "--json"];
        let found = bandana(&url, &[&words[..], rest].concat()).await?;
        let view: Value = serde_json::from_slice(&found.stdout)?;
        let mut findings = view["findings"].as_array().context("findings")?.iter();
        let shuffling = findings.find(|one| one["check"] == "shuffling").context("shuffling")?;
        assert_eq!(shuffling["good"], good, "{shuffling}");
        assert!(shuffling["says"].as_str().context("words")?.contains(says), "{shuffling}");
    }
    // An experiment that nobody made, and a server that is not there.
    let absent = bandana(&url, &["doctor", "absent", "--server", &server]).await?;
    assert_eq!(absent.status.code(), Some(4));
    assert!(String::from_utf8(absent.stdout)?.contains("NotFound"));
    let nowhere = bandana(&url, &["doctor", "colour", "--server", "http://127.0.0.1:1"]).await?;
    assert_eq!(nowhere.status.code(), Some(5));
    assert!(String::from_utf8(nowhere.stderr)?.contains("can't reach the device service"));
    Ok(())
}

#[tokio::test]
async fn the_doctor_asks_for_the_segments_and_metrics_that_an_app_has_agreed_to()
-> anyhow::Result<()> {
    let aggregator = Aggregator::start(PROGRAM).await?;
    let url = aggregator.process.operator_url.clone();
    let create = "experiment create cells --epsilon 1 --arm a --arm b --attribution-window-seconds 60 \
                  --segments platform=ios,android --metric returned:0.2 --metric minutes:0.1:0..60";
    printed(&url, &create.split_whitespace().collect::<Vec<_>>()).await?;
    let server = aggregator.process.device_url.clone();
    let [segment, metric] = ["--segment", "--metric"];
    let [ios, returned, minutes] = ["platform=ios", "returned", "minutes:0..60"];
    let agreed = [segment, ios, metric, returned, metric, minutes];
    for (rest, bad) in [
        (&agreed[..], &[][..]),
        (&[], &["segments", "metrics", "metrics"]),
        (&agreed[2..], &["segments"]),
        (&[segment, "platform=web", metric, returned, metric, minutes], &["segments"]),
        (&[segment, ios, metric, returned, metric, "minutes"], &["metrics"]),
    ] {
        let words = ["doctor", "cells", "--server", &server, "--json"];
        let found = bandana(&url, &[&words[..], rest].concat()).await?;
        let expected = if bad.is_empty() { 0 } else { 4 };
        assert_eq!(found.status.code(), Some(expected), "{rest:?}");
        let view: Value = serde_json::from_slice(&found.stdout)?;
        let findings = view["findings"].as_array().context("findings")?.iter();
        let unfit = findings.filter(|one| one["good"] == false).map(|one| &one["check"]);
        assert_eq!(unfit.collect::<Vec<_>>(), bad, "{view}");
    }
    Ok(())
}
