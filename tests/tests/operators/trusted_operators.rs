//! `bandana trusted`, as people and scripts run it.

use std::collections::BTreeSet;
use std::process::{Output, Stdio};

use anyhow::{Context as _, ensure};
use bandana_client::trusted::{DisclosedReward, TrustedError};
use bandana_examples::environment::CleanEnvironment as _;
use bandana_shared::wire::v1::trusted_operator_client::TrustedOperatorClient;
use bandana_shared::wire::v1::{ReleasedMean, ReleasedStatistics, TrustedExperimentName};
use bandana_tests::harness::{Aggregator, three_arms};
use bandana_tests::parquet_table::table_of_parquet;
use bandana_tests::trusted_app::{open, play, users};
use serde_json::{Value, json};
use tokio::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

const HEADLINES: [&str; 10] = [
    "create",
    "headlines",
    "--rewards-are-disclosed",
    "--rho",
    "0.5",
    "--algorithm",
    "adac-ucb",
    "--arms",
    "3",
    "--json",
];

/// A command of `bandana trusted` without a terminal, for this server.
async fn trusted(server: &Aggregator, arguments: &[&str]) -> anyhow::Result<Output> {
    let mut command = Command::new(PROGRAM);
    command
        .arg("trusted")
        .args(arguments)
        .clean_environment()
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command.env("BANDANA_OPERATOR_URL", &server.process.operator_url);
    Ok(command.output().await?)
}

/// The output of a command, which must succeed.
async fn written(server: &Aggregator, arguments: &[&str]) -> anyhow::Result<Vec<u8>> {
    let output = trusted(server, arguments).await?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{arguments:?}: {}: {errors}", output.status);
    Ok(output.stdout)
}

async fn printed(server: &Aggregator, arguments: &[&str]) -> anyhow::Result<String> {
    Ok(String::from_utf8(written(server, arguments).await?)?)
}

async fn object(server: &Aggregator, arguments: &[&str]) -> anyhow::Result<Value> {
    Ok(serde_json::from_slice(&written(server, arguments).await?)?)
}

/// Asserts that a command fails with this exit code, and that its error contains each of `parts`.
async fn refused(
    server: &Aggregator,
    arguments: &[&str],
    code: i32,
    parts: &[&str],
) -> anyhow::Result<()> {
    let output = trusted(server, arguments).await?;
    let errors = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
    assert!(output.stdout.is_empty(), "{arguments:?} printed something");
    for part in parts {
        assert!(errors.contains(part), "{arguments:?}: {part:?} is not in: {errors}");
    }
    Ok(())
}

fn keys(object: &Value) -> BTreeSet<&str> {
    object.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect()
}

#[tokio::test]
async fn nobody_creates_a_trusted_experiment_by_mistake() -> anyhow::Result<()> {
    let mut server = Aggregator::start(PROGRAM).await?;
    let without: Vec<_> =
        HEADLINES.into_iter().filter(|flag| *flag != "--rewards-are-disclosed").collect();
    let said = ["--rewards-are-disclosed", "rewards of users reach this server", "stay on devices"];
    refused(&server, &without, 2, &said).await?;

    let folder = tempfile::tempdir()?;
    let file = folder.path().join("actions.csv");
    std::fs::write(&file, "x,y\n1,0\n0.6,O.8\n")?;
    let file = file.to_str().context("a path in UTF-8")?;
    let create = |id: &'static str, rest: &[&'static str]| {
        [&["create", id, "--rewards-are-disclosed", "--rho", "1", "--algorithm"][..], rest].concat()
    };
    server.create(three_arms("colours")).await?;
    for (arguments, code, parts) in [
        (create("a", &["adac-ucb"]), 2, &["adac-ucb needs --arms"][..]),
        (
            create("a", &["lazy-release", "--arms", "2", "--beta", "1"]),
            2,
            &["not for lazy-release"],
        ),
        (create("a", &["adac-ucb", "--arms", "1"]), 4, &["2 to 1024"]),
        (create("a", &["adac-oful", "--dimension", "65"]), 4, &["64"]),
        (create("No Body", &["adac-ucb", "--arms", "2"]), 4, &["No Body"]),
        (create("colours", &["adac-ucb", "--arms", "2"]), 4, &["colours"]),
    ] {
        refused(&server, &arguments, code, parts).await?;
    }
    let gope = create("a", &["adac-gope", "--actions"]);
    refused(&server, &[&gope[..], &[file]].concat(), 2, &["line 3", "O.8"]).await?;
    refused(&server, &[&gope[..], &["/nowhere"]].concat(), 2, &["/nowhere"]).await?;
    let rho = |rho: &'static str| HEADLINES.map(|flag| if flag == "0.5" { rho } else { flag });
    for wrong in ["-1", "0", "nan", "1e9"] {
        refused(&server, &rho(wrong), 4, &["rho"]).await?;
    }
    refused(&server, &["show", "nobody"], 3, &["nobody"]).await?;
    refused(&server, &["released", "colours"], 3, &["colours"]).await?;
    assert_eq!(printed(&server, &["list"]).await?, "there are no trusted experiments\n");
    server.process.stop().await
}

#[tokio::test]
async fn a_trusted_experiment_is_created_and_lives_its_life() -> anyhow::Result<()> {
    let server = Aggregator::start(PROGRAM).await?;
    let created = object(&server, &HEADLINES).await?;
    let expected = json!({
        "experiment_id": "headlines", "state": "running", "rewards_are_disclosed": true,
        "rho": 0.5, "algorithm": "adac-ucb", "arms": 3, "beta": 1.0, "actions": null,
        "delta": null, "dimension": null, "reward_low": 0.0, "reward_high": 1.0, "rewards": 0,
        "releases": 0, "archived": false, "one_person": created["one_person"],
    });
    assert_eq!(created, expected);
    let of_one: Vec<_> = (0..3).map(|place| &created["one_person"][place]).collect();
    assert_eq!(of_one.iter().map(|cost| &cost["rewards"]).collect::<Vec<_>>(), [1, 10, 300]);
    assert_eq!(of_one.iter().map(|cost| &cost["rho"]).collect::<Vec<_>>(), [0.5, 50.0, 45_000.0]);
    assert_eq!(object(&server, &["show", "headlines", "--json"]).await?, expected);
    let listed = object(&server, &["list", "--json"]).await?;
    assert_eq!(listed["experiments"], json!([expected]));
    let shown = printed(&server, &["show", "headlines"]).await?;
    for part in [
        "reach the server; 0 to 1",
        "rho 0.5",
        "everybody but the server",
        "k^2 rho",
        "10 rewards: rho 50, epsilon 101",
        "300 rewards: rho 45000, epsilon 46600",
        "delta 1e-6",
    ] {
        assert!(shown.contains(part), "{part:?} is not in: {shown}");
    }

    let experiment = open(&server.process.device_url, "headlines").await?;
    assert_eq!(printed(&server, &["pause", "headlines"]).await?, "headlines is paused\n");
    refused(&server, &["pause", "headlines"], 4, &["paused"]).await?;
    let ledger = users()?;
    let waiting = experiment.disclosure(0, DisclosedReward::new(1.0)?)?;
    let paused = experiment.disclose(&waiting, &ledger).await;
    assert!(matches!(paused, Err(TrustedError::Paused)), "{paused:?}");
    assert_eq!(printed(&server, &["resume", "headlines"]).await?, "headlines is running\n");
    experiment.disclose(&waiting, &ledger).await?;
    refused(&server, &["stop", "headlines"], 1, &["not a terminal", "--yes"]).await?;
    let stopped = object(&server, &["stop", "headlines", "--yes", "--json"]).await?;
    assert_eq!((&stopped["state"], &stopped["rewards"]), (&json!("stopped"), &json!(1)));
    let late = experiment.disclosure(0, DisclosedReward::new(1.0)?)?;
    let late = experiment.disclose(&late, &ledger).await;
    assert!(matches!(late, Err(TrustedError::Stopped { .. })), "{late:?}");

    let table = printed(&server, &["list"]).await?;
    let row = table.lines().nth(1).context("a row")?;
    let cells: Vec<_> = row.split_whitespace().collect();
    assert_eq!(cells, ["headlines", "stopped", "adac-ucb", "3", "arms", "0.5", "1", "1"]);

    let mut audit = Command::new(PROGRAM);
    audit.args(["audit", "headlines", "--json"]).clean_environment();
    let audit = audit.env("BANDANA_OPERATOR_URL", &server.process.operator_url).output().await?;
    let audit: Value = serde_json::from_slice(&audit.stdout)?;
    let entries = audit["entries"].as_array().context("no entries")?;
    let actions: Vec<_> = entries.iter().map(|entry| &entry["action"]).collect();
    assert_eq!(actions, ["stop", "resume", "pause", "create"]);
    let detail = entries[3]["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("trusted") && detail.contains("rho 0.5"), "{detail}");
    server.process.stop().await
}

/// CSV without quotes as a table.
fn table_of_csv(bytes: Vec<u8>) -> anyhow::Result<Vec<Vec<String>>> {
    let text = String::from_utf8(bytes)?;
    Ok(text.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect())
}

/// JSON parsers may differ in the last digit.
fn near(shown: &Value, expected: Option<f64>) -> bool {
    let shown = shown.as_f64();
    shown.zip(expected).map_or(shown == expected, |(s, e)| (s - e).abs() <= 1e-12)
}

async fn exports_are_right(
    server: &Aggregator,
    truth: &ReleasedStatistics,
    releases: &Value,
) -> anyhow::Result<()> {
    let csv = table_of_csv(written(server, &["export", "headlines"]).await?)?;
    assert_eq!(
        csv[0],
        [
            "experiment_id",
            "algorithm",
            "rho",
            "rewards_in_all",
            "releases",
            "arm",
            "mean",
            "rewards",
            "noise_deviation",
        ]
    );
    for (arm, row) in csv[1..].iter().enumerate() {
        let ReleasedMean { mean, rewards, noise_deviation } = truth.means[arm];
        let releases = releases.to_string();
        let mean = mean.map(|mean| mean.to_string()).unwrap_or_default();
        let (rewards, noise) = (rewards.to_string(), noise_deviation.to_string());
        let expected = [
            "headlines",
            "adac-ucb",
            "0.5",
            "100",
            &releases,
            &arm.to_string(),
            &mean,
            &rewards,
            &noise,
        ];
        assert_eq!(row, &expected);
    }
    let parquet = written(server, &["export", "headlines", "--format", "parquet"]).await?;
    assert_eq!(table_of_parquet(parquet)?, csv);
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("released.csv");
    let out = ["export", "headlines", "--out", file.to_str().context("a path in UTF-8")?];
    written(server, &out).await?;
    assert_eq!(table_of_csv(std::fs::read(&file)?)?, csv);
    refused(server, &out, 1, &["is not overwritten"]).await
}

#[tokio::test]
async fn what_was_released_is_shown_and_exported_and_nothing_else() -> anyhow::Result<()> {
    let server = Aggregator::start(PROGRAM).await?;
    object(&server, &HEADLINES).await?;
    let empty = object(&server, &["released", "headlines", "--json"]).await?;
    assert_eq!(
        empty["means"][2],
        json!({
            "arm": 2, "mean": null, "rewards": 0, "noise_deviation": null,
        })
    );
    play(&open(&server.process.device_url, "headlines").await?, 100).await?;

    let released = object(&server, &["released", "headlines", "--json"]).await?;
    let fields =
        ["algorithm", "experiment_id", "means", "parameter", "releases", "rewards", "rho", "state"];
    assert_eq!(keys(&released), BTreeSet::from(fields));
    let of_a_mean = BTreeSet::from(["arm", "mean", "noise_deviation", "rewards"]);
    let mut operator = TrustedOperatorClient::connect(server.process.operator_url.clone()).await?;
    let name = TrustedExperimentName { experiment_id: "headlines".to_owned() };
    let truth = operator.get_released(name).await?.into_inner();
    assert_eq!((released["rewards"].as_u64(), truth.rewards), (Some(100), 100));
    assert!(released["releases"].as_u64() > Some(3), "{released}");
    for (arm, expected) in truth.means.iter().enumerate() {
        let shown = &released["means"][arm];
        assert_eq!(keys(shown), of_a_mean);
        assert_eq!(shown["arm"], arm);
        assert_eq!(shown["rewards"], expected.rewards);
        assert!(near(&shown["mean"], expected.mean), "{shown} {expected:?}");
        assert!(near(&shown["noise_deviation"], Some(expected.noise_deviation)), "{shown}");
    }

    let text = printed(&server, &["released", "headlines"]).await?;
    for part in [
        "100 rewards",
        "each reward, from everybody but the server, by rho 0.5",
        "k rewards of one person by up to k^2 rho",
        "released statistics, with noise",
        "noise deviation",
    ] {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }

    exports_are_right(&server, &truth, &released["releases"]).await?;
    server.process.stop().await
}

#[tokio::test]
async fn linear_experiments_show_actions_and_parameters() -> anyhow::Result<()> {
    let server = Aggregator::start(PROGRAM).await?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("actions.json");
    std::fs::write(&file, "[[1, 0], [0, 1], [-0.5, 0.5]]")?;
    let file = file.to_str().context("a path in UTF-8")?;
    let create = |id: &'static str, algorithm: &'static str| {
        ["create", id, "--rewards-are-disclosed", "--rho", "2", "--json", "--algorithm", algorithm]
    };
    let gope = [&create("fixed", "adac-gope")[..], &["--actions", file, "--delta", "0.1"]].concat();
    let fixed = object(&server, &gope).await?;
    assert_eq!(fixed["actions"], json!([[1.0, 0.0], [0.0, 1.0], [-0.5, 0.5]]));
    assert_eq!((&fixed["delta"], &fixed["reward_low"]), (&json!(0.1), &json!(-1.0)));
    let csv = table_of_csv(written(&server, &["export", "fixed"]).await?)?;
    assert_eq!(csv[0][5..], ["arm", "mean", "coordinate_0", "coordinate_1"]);
    assert_eq!(csv[3][5..], ["2", "", "-0.5", "0.5"]);

    let oful = [&create("changing", "adac-oful")[..], &["--dimension", "2"]].concat();
    object(&server, &oful).await?;
    let experiment = open(&server.process.device_url, "changing").await?;
    let ledger = users()?;
    for _ in 0..40 {
        let reward = DisclosedReward::new(1.0)?;
        let disclosure = experiment.disclosure_of(vec![0.6, 0.8], reward)?;
        experiment.disclose(&disclosure, &ledger).await?;
    }
    let released = object(&server, &["released", "changing", "--json"]).await?;
    let parameter = released["parameter"].as_array().context("no parameter")?;
    assert!(parameter.len() == 2 && released["means"] == json!([]), "{released}");
    let csv = table_of_csv(written(&server, &["export", "changing"]).await?)?;
    assert_eq!(csv[0][5..], ["coordinate", "parameter"]);
    for (place, row) in csv[1..].iter().enumerate() {
        let exported = row[6].parse::<f64>()?;
        assert!(row[5] == place.to_string() && near(&parameter[place], Some(exported)), "{row:?}");
    }
    let text = printed(&server, &["released", "changing"]).await?;
    assert!(text.contains("coordinate  parameter"), "{text}");
    server.process.stop().await
}
