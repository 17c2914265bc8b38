//! Burn-in, holdout and alarms of a real server, with real uploads.

use std::process::Stdio;

use anyhow::{Context as _, ensure};
use bandana_examples::environment::CleanEnvironment as _;
use bandana_shared::identity::Day;
use bandana_shared::specification::Specification;
use bandana_shared::wire::decode_specification;
use bandana_shared::wire::v1::{
    AddArmRequest, CreateExperimentRequest, ExperimentName, GetExperimentRequest, Learner,
    SelectArmRequest, UploadStatus,
};
use bandana_tests::harness::{Aggregator, three_arms, upload};
use bandana_tests::page::{self, Samples};
use serde_json::Value;
use tokio::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// The output of a command, which must succeed.
async fn printed(aggregator: &Aggregator, arguments: &[&str]) -> anyhow::Result<String> {
    let url = &aggregator.process.operator_url;
    let mut command = Command::new(PROGRAM);
    command
        .args(arguments)
        .clean_environment()
        .env("BANDANA_OPERATOR_URL", url)
        .stdin(Stdio::null());
    let output = command.kill_on_drop(true).output().await?;
    ensure!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

async fn object(aggregator: &Aggregator, arguments: &[&str]) -> anyhow::Result<Value> {
    Ok(serde_json::from_str(&printed(aggregator, arguments).await?)?)
}

/// The revision that devices currently get, the shares of its arms, and the day.
async fn fetched(
    aggregator: &mut Aggregator,
    id: &str,
) -> anyhow::Result<(Specification, Vec<f64>, Day)> {
    let request = GetExperimentRequest { experiment_id: id.to_owned() };
    let fetched = aggregator.device.get_experiment(request).await?.into_inner();
    let experiment = fetched.experiment.context("no experiment")?;
    let weights = fetched.policy.context("no policy")?.weights;
    let shares = weights.iter().map(|weight| *weight as f64 / 2.0_f64.powi(32)).collect();
    let specification = decode_specification(&experiment.specification)?;
    Ok((specification, shares, Day::new(fetched.server_day)))
}

/// Sends this number of reports for each arm in one upload, ones for the last arm and zeros for the
/// others, and has a policy made from them.
async fn report(
    aggregator: &mut Aggregator,
    id: &str,
    number: u128,
    counts: &[usize],
) -> anyhow::Result<()> {
    let (specification, _, day) = fetched(aggregator, id).await?;
    let last = counts.len() - 1;
    let reports: Vec<(usize, bool)> = counts
        .iter()
        .enumerate()
        .flat_map(|(arm, count)| std::iter::repeat_n((arm, arm == last), *count))
        .collect();
    let request = upload(number, &specification, day, &reports)?;
    let answer = aggregator.device.submit_upload(request).await?.into_inner();
    ensure!(answer.status() == UploadStatus::Accepted, "{answer:?}");
    let name = ExperimentName { experiment_id: id.to_owned() };
    aggregator.operator.refresh_policy(name).await?;
    Ok(())
}

fn near(shares: &[f64], expected: &[f64]) {
    let close = shares.iter().zip(expected).all(|(share, wanted)| (share - wanted).abs() < 1e-3);
    assert!(shares.len() == expected.len() && close, "{shares:?} instead of {expected:?}");
}

const THIRD: f64 = 1.0 / 3.0;

#[tokio::test]
async fn priors_and_costs_move_the_weights_and_costs_the_comparisons() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("before.csv");
    std::fs::write(&file, "arm,mean,worth\nred,0.2,400\nblue,0.8,400\ngrey,0.5,9\n")?;
    let file = file.display().to_string();
    let create = "experiment create warm --epsilon 2 --arm red --arm green --arm blue \
                  --attribution-window-seconds 60 --arm-cost green=0.25 --json --prior";
    let create: Vec<&str> = create.split_whitespace().chain([&*file]).collect();
    let created = object(&aggregator, &create).await?;
    let record = &created["record"];
    assert_eq!(record["prior_discount"], 0.5);
    assert_eq!(record["priors"].as_array().map(Vec::len), Some(2));
    assert_eq!(record["arm_costs"][0]["cost"], 0.25);
    // It begins as after 200 reports of each that was known; of the one that costs nothing is known.
    let warm = fetched(&mut aggregator, "warm").await?.1;
    assert!(warm[2] > 0.5 && warm[0] < 0.01 && warm[1] < 0.5, "{warm:?}");
    let estimates = object(&aggregator, &["estimate", "warm", "--json"]).await?;
    assert_eq!((&estimates["reports"], &estimates["best_arm"]), (&0.into(), &Value::Null));
    assert_eq!(estimates["arms"][1]["cost"], 0.25);
    let mut aggregator = aggregator.kill_and_restart().await?;
    near(&fetched(&mut aggregator, "warm").await?.1, &warm);

    // Reports overrule the prior: blue is better than both by 1, less what it costs.
    report(&mut aggregator, "warm", 1, &[300, 300, 300]).await?;
    let lead = |estimates: &Value| estimates["lead"]["difference"].as_f64().unwrap_or_default();
    let before = object(&aggregator, &["estimate", "warm", "--json"]).await?;
    let record =
        ["experiment", "record", "warm", "--arm-cost", "blue=0.5", "--arm-cost", "green=0"];
    printed(&aggregator, &record).await?;
    let after = object(&aggregator, &["estimate", "warm", "--json"]).await?;
    assert!((lead(&before) - lead(&after) - 0.5).abs() < 1e-9, "{before} {after}");
    let summary = after["summary"].as_str().unwrap_or_default();
    assert!(summary.ends_with("Rewards less costs are compared."), "{summary}");
    let shown = printed(&aggregator, &["experiment", "show", "warm"]).await?;
    assert!(shown.contains("a choice of blue costs 0.5"), "{shown}");
    assert!(shown.contains("in no estimate or verdict"), "{shown}");
    let audit = printed(&aggregator, &["audit", "warm"]).await?;
    assert!(audit.contains("arm 2 costs 0.5"), "{audit}");
    aggregator.process.stop().await
}

#[tokio::test]
async fn burn_in_and_holdout_are_in_the_weights_that_devices_get() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let create = "experiment create guarded --epsilon 1 --arm red --arm green --arm blue \
                  --attribution-window-seconds 60 --burn-in-reports 100 --holdout-share 0.3 --json";
    let created = object(&aggregator, &create.split_whitespace().collect::<Vec<_>>()).await?;
    assert_eq!(
        (&created["burn_in_reports"], &created["holdout_share"]),
        (&100.into(), &0.3.into())
    );
    near(&fetched(&mut aggregator, "guarded").await?.1, &[THIRD; 3]);
    // The best arm is clear, but one arm lacks a report.
    report(&mut aggregator, "guarded", 1, &[99, 100, 100]).await?;
    near(&fetched(&mut aggregator, "guarded").await?.1, &[THIRD; 3]);
    report(&mut aggregator, "guarded", 2, &[1, 0, 0]).await?;
    near(&fetched(&mut aggregator, "guarded").await?.1, &[0.1, 0.1, 0.8]);

    let add = AddArmRequest { experiment_id: "guarded".into(), label: "grey".into() };
    aggregator.operator.add_arm(add).await?;
    let with_a_new_arm = [0.075, 0.075, 0.6, 0.25];
    near(&fetched(&mut aggregator, "guarded").await?.1, &with_a_new_arm);
    let mut aggregator = aggregator.kill_and_restart().await?;
    near(&fetched(&mut aggregator, "guarded").await?.1, &with_a_new_arm);
    let shown = printed(&aggregator, &["experiment", "show", "guarded"]).await?;
    for line in
        ["burn-in             100 reports for each arm", "holdout             0.3 of the traffic"]
    {
        assert!(shown.lines().any(|shown| shown == line), "{line:?} is not in: {shown}");
    }
    let audit = printed(&aggregator, &["audit", "guarded"]).await?;
    assert!(audit.contains("a burn-in of 100 reports for each arm"), "{audit}");

    let message = CreateExperimentRequest {
        specification: Some(three_arms("senseless")),
        learner: Learner::LdpTs.into(),
        holdout_share: 1.5,
        ..Default::default()
    };
    let refused = aggregator.operator.create_experiment(message).await.unwrap_err();
    assert!(refused.message().contains("holdout share 1.5"), "{refused}");
    Ok(())
}

/// Creates an experiment with a long burn-in.
async fn create_even(aggregator: &mut Aggregator, id: &str) -> anyhow::Result<()> {
    let request = CreateExperimentRequest {
        specification: Some(three_arms(id)),
        learner: Learner::LdpTs.into(),
        burn_in_reports: 1_000_000,
        ..Default::default()
    };
    aggregator.operator.create_experiment(request).await?;
    Ok(())
}

/// The names of an experiment's active alarms, from `/metrics`.
async fn ringing(aggregator: &Aggregator, id: &str) -> anyhow::Result<Vec<&'static str>> {
    let address = aggregator.process.operator_url.strip_prefix("http://").context("a URL")?;
    let samples = Samples::parse(&page::get(address, "/metrics", &[]).await?.body)?;
    let mut ringing = Vec::new();
    for name in [
        "sample-ratio-mismatch",
        "stalled-reporting",
        "never-reported",
        "collapsed-entropy",
        "reports-outgrow-selections",
        "report-surge",
        "guardrail-pause",
    ] {
        let sample = format!("bandana_alarm{{experiment=\"{id}\",name=\"{name}\"}}");
        if samples.count(&sample)? == 1 {
            ringing.push(name);
        }
    }
    assert_eq!(samples.count("bandana_alarm{experiment=\"\",name=\"refusals-jump\"}")?, 0);
    Ok(ringing)
}

#[tokio::test]
async fn alarms_ring_wherever_operators_look() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    for id in ["healthy", "skewed", "drawn"] {
        create_even(&mut aggregator, id).await?;
    }
    report(&mut aggregator, "healthy", 1, &[331, 340, 329]).await?;
    report(&mut aggregator, "skewed", 2, &[34, 33, 33]).await?;
    assert_eq!(ringing(&aggregator, "skewed").await?, Vec::<&str>::new());
    report(&mut aggregator, "skewed", 3, &[500, 200, 200]).await?;

    let mut drawn = [0; 3];
    for _ in 0..200 {
        let request = SelectArmRequest { experiment_id: "drawn".into(), ..Default::default() };
        let arm = aggregator.device.select_arm(request).await?.into_inner().arm;
        drawn[usize::try_from(arm)?] += 1;
    }
    report(&mut aggregator, "drawn", 4, &drawn).await?;
    assert_eq!(ringing(&aggregator, "drawn").await?, Vec::<&str>::new());
    report(&mut aggregator, "drawn", 5, &[40; 3]).await?;

    assert_eq!(ringing(&aggregator, "healthy").await?, Vec::<&str>::new());
    assert_eq!(ringing(&aggregator, "skewed").await?, ["sample-ratio-mismatch"]);
    // Whether server or devices draw the arms is detectable after some weeks only; see
    // `aggregator/tests/alarms`.
    assert_eq!(ringing(&aggregator, "drawn").await?, Vec::<&str>::new());

    let estimate = object(&aggregator, &["estimate", "skewed", "--json"]).await?;
    let alarm = &estimate["alarms"][0];
    assert_eq!(alarm["name"], "sample-ratio-mismatch");
    let message = alarm["message"].as_str().context("no message")?;
    let said = "arm 0 (red) has 53.4% of 1000 reports, and the policies asked for 33.3%";
    assert!(message.starts_with(said), "{message}");
    assert!(alarm["seen"].as_f64() >= alarm["threshold"].as_f64(), "{alarm}");
    assert!(alarm["since_unix_seconds"].as_u64().context("no time")? > 1_700_000_000, "{alarm}");
    let shown = object(&aggregator, &["experiment", "show", "skewed", "--json"]).await?;
    assert_eq!(shown["alarms"][0]["name"], alarm["name"]);
    for command in [&["estimate", "skewed"][..], &["experiment", "show", "skewed"]] {
        let text = printed(&aggregator, command).await?;
        let line = format!("  sample-ratio-mismatch: {message}");
        assert!(text.contains("\nalarms\n") && text.contains(&line), "{text}");
    }
    let list = printed(&aggregator, &["experiment", "list"]).await?;
    let last = |id: &str| {
        let row = list.lines().find(|line| line.starts_with(id));
        row.and_then(|row| row.split_whitespace().last()).map(str::to_owned)
    };
    assert_eq!(last("skewed").as_deref(), Some("sample-ratio-mismatch"), "{list}");
    assert_eq!(last("healthy").as_deref(), Some("1000"), "{list}");
    let address = aggregator.process.operator_url.strip_prefix("http://").context("a URL")?;
    let page = page::get(address, "/api/experiments/skewed", &[]).await?;
    let moment: Value = serde_json::from_str(&page.body)?;
    assert_eq!(moment["estimates"]["alarms"][0]["message"], message);
    Ok(())
}

/// The arms x and y with a metric that an arm's mean may not exceed.
const GUARDED: &[&str] = &[
    "experiment",
    "create",
    "guarded",
    "--epsilon=4",
    "--arm=x",
    "--arm=y",
    "--attribution-window-seconds=60",
    "--metric=returned:0.5:at-most=0.3",
];

#[tokio::test]
async fn harm_is_told_as_it_is_and_is_neither_a_verdict_nor_an_alarm() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    printed(&aggregator, GUARDED).await?;
    let (specification, _, day) = fetched(&mut aggregator, "guarded").await?;
    // Rewards and returns of x, then of y: y has the better rewards, and is sent back.
    let ones = [500, 50, 600, 950].into_iter().enumerate();
    let reports: Vec<(usize, bool)> =
        ones.flat_map(|(cell, ones)| (0..1000).map(move |place| (cell, place < ones))).collect();
    let request = upload(1, &specification, day, &reports)?;
    let answer = aggregator.device.submit_upload(request).await?.into_inner();
    ensure!(answer.status() == UploadStatus::Accepted, "{answer:?}");
    let name = ExperimentName { experiment_id: "guarded".to_owned() };
    aggregator.operator.refresh_policy(name.clone()).await?;

    let found = object(&aggregator, &["estimate", "guarded", "--json"]).await?;
    let summary = found["summary"].as_str().context("summary")?;
    assert!(summary.contains("y does harm and gets no traffic: returned is"), "{summary}");
    assert_eq!(found["metrics"][0]["harmful_arms"], serde_json::json!([1]));
    assert_ne!(found["best_arm"], 1, "{found}");
    assert_eq!(found["alarms"], serde_json::json!([]), "{found}");
    assert_eq!(fetched(&mut aggregator, "guarded").await?.1, [1.0, 0.0]);

    // Once it is the only one in play, it has all traffic, and the words say so.
    printed(&aggregator, &["experiment", "retire-arm", "guarded", "0"]).await?;
    aggregator.operator.refresh_policy(name).await?;
    assert_eq!(fetched(&mut aggregator, "guarded").await?.1, [0.0, 1.0]);
    let text = printed(&aggregator, &["estimate", "guarded"]).await?;
    assert!(
        text.contains("y does harm, and keeps its traffic, since all in play do harm"),
        "{text}"
    );
    assert!(!text.contains("no traffic"), "{text}");
    Ok(())
}

#[tokio::test]
async fn a_guardrail_that_could_not_hold_is_refused() -> anyhow::Result<()> {
    let aggregator = Aggregator::start(PROGRAM).await?;
    for (more, complaint) in [
        ("--until-weight-below=0", "give a share above 0"),
        ("--metric=x:0.1:-5..5:at-least=-4:at-most=4", "two ranges or two limits"),
        ("--metric=rewards:0.1", "another name"),
    ] {
        let refused = printed(&aggregator, &[GUARDED, &[more]].concat()).await.unwrap_err();
        assert!(refused.to_string().contains(complaint), "{refused}");
    }
    Ok(())
}
