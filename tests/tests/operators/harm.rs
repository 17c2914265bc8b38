//! A guardrail pauses an experiment when its operator has said so.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_examples::environment::CleanEnvironment as _;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::{ExperimentName, UploadStatus};
use bandana_tests::harness::{Aggregator, upload};
use serde_json::{Value, json};
use tokio::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// Timeout of what a server does by itself.
const PATIENCE: Duration = Duration::from_mins(1);

const CREATE: &str = "experiment create shop --epsilon 4 --arm short --arm long \
    --attribution-window-seconds 60 --redraw --metric returned:0.5:at-most=0.3";

async fn run(aggregator: &Aggregator, line: &str) -> anyhow::Result<(bool, String, String)> {
    let url = &aggregator.process.operator_url;
    let mut command = Command::new(PROGRAM);
    command.args(line.split_whitespace()).clean_environment().env("BANDANA_OPERATOR_URL", url);
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await?;
    let text = |bytes| String::from_utf8(bytes);
    Ok((output.status.success(), text(output.stdout)?, text(output.stderr)?))
}

async fn printed(aggregator: &Aggregator, line: &str) -> anyhow::Result<Value> {
    let (succeeded, stdout, stderr) = run(aggregator, &format!("{line} --json")).await?;
    ensure!(succeeded, "{line}: {stderr}");
    Ok(serde_json::from_str(&stdout)?)
}

/// Sends reports of ones: so many of the metric for an arm.
async fn returned(
    aggregator: &mut Aggregator,
    number: u128,
    arm: usize,
    count: usize,
) -> anyhow::Result<UploadStatus> {
    let name = ExperimentName { experiment_id: "shop".to_owned() };
    let status = aggregator.operator.get_experiment_status(name).await?.into_inner();
    let made = Specification::try_from(&status.specification.context("no specification")?)?;
    let day = aggregator.day(&made).await?;
    // Cells are arms times the rewards and the metric.
    let reports = vec![(2 * arm + 1, true); count];
    let answer = aggregator.device.submit_upload(upload(number, &made, day, &reports)?).await?;
    Ok(answer.into_inner().status())
}

/// Waits until the experiment is paused, and returns it.
async fn paused(aggregator: &Aggregator) -> anyhow::Result<Value> {
    let paused = async {
        loop {
            let shown = printed(aggregator, "experiment show shop").await?;
            if shown["state"] == "paused" {
                return anyhow::Ok(shown);
            }
        }
    };
    tokio::time::timeout(PATIENCE, paused).await.context("it was not paused")?
}

/// The pauses and resumptions, the newest first: who, and what exactly.
async fn moves(aggregator: &Aggregator) -> anyhow::Result<Vec<(String, String)>> {
    let audit = printed(aggregator, "audit shop").await?;
    let entries = audit["entries"].as_array().context("no entries")?;
    let moves = entries.iter().filter(|e| e["action"] == "pause" || e["action"] == "resume");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(moves.map(|entry| (text(&entry["caller"]), text(&entry["detail"]))).collect())
}

fn rings(shown: &Value, label: &str) -> bool {
    let alarms = shown["alarms"].as_array().into_iter().flatten();
    let mut pauses = alarms.filter(|alarm| alarm["name"] == "guardrail-pause");
    pauses.any(|alarm| alarm["message"].as_str().is_some_and(|text| text.contains(label)))
}

#[tokio::test]
async fn a_crossed_limit_pauses_once_and_a_resumption_holds() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let made = printed(&aggregator, CREATE).await?;
    assert_eq!(made["record"]["on_harm"], "stop-arm", "the default");
    printed(&aggregator, "experiment record shop --on-harm pause").await?;
    assert_eq!(returned(&mut aggregator, 1, 1, 1000).await?, UploadStatus::Accepted);
    let shown = paused(&aggregator).await?;
    assert!(rings(&shown, "arm 1 (long)"), "{shown}");
    let pauses = &shown["record"]["harm_pauses"];
    assert_eq!(
        (&pauses[0]["arm"], &pauses[0]["metric"], &pauses[0]["acknowledged"], &pauses[1]),
        (&json!(1), &json!("returned"), &json!(false), &Value::Null)
    );
    let (who, what) = moves(&aggregator).await?.remove(0);
    assert_eq!(who, "(guardrail)");
    assert_eq!(what, "running -> paused: arm 1 (long) is beyond the limit of returned");
    assert_eq!(returned(&mut aggregator, 2, 1, 10).await?, UploadStatus::Paused);

    // It outlasts a death, with its reason, and no restart pauses it twice.
    let mut aggregator = aggregator.kill_and_restart().await?;
    assert!(rings(&paused(&aggregator).await?, "arm 1 (long)"));
    assert_eq!(moves(&aggregator).await?.len(), 1);

    // Resumed with the same evidence it runs, also with more of it and after a restart. That the
    // guardrail looks is seen by the other arm, whose harm is news.
    let resumed = printed(&aggregator, "experiment resume shop").await?;
    assert_eq!((&resumed["state"], rings(&resumed, "arm")), (&json!("running"), false));
    assert_eq!(returned(&mut aggregator, 3, 1, 1000).await?, UploadStatus::Accepted);
    let mut aggregator = aggregator.stop_and_restart().await?;
    assert_eq!(returned(&mut aggregator, 4, 0, 1000).await?, UploadStatus::Accepted);
    let shown = paused(&aggregator).await?;
    assert!(rings(&shown, "arm 0 (short)") && !rings(&shown, "arm 1"), "{shown}");
    let details: Vec<_> = moves(&aggregator).await?.into_iter().map(|(_, what)| what).collect();
    assert_eq!(
        details,
        [
            "running -> paused: arm 0 (short) is beyond the limit of returned",
            "paused -> running, although arm 1 (long) is beyond the limit of returned",
            "running -> paused: arm 1 (long) is beyond the limit of returned",
        ]
    );
    // A pause by hand is none of the guardrail's.
    printed(&aggregator, "experiment resume shop").await?;
    let by_hand = printed(&aggregator, "experiment pause shop").await?;
    assert!(!rings(&by_hand, "arm"), "{by_hand}");
    printed(&aggregator, "experiment resume shop").await?;
    // Saying it again has all arms watched again.
    printed(&aggregator, "experiment record shop --on-harm pause").await?;
    let shown = paused(&aggregator).await?;
    assert!(rings(&shown, "arm 0 (short)") && rings(&shown, "arm 1 (long)"), "{shown}");
    let text = run(&aggregator, "experiment show shop").await?.1;
    assert!(text.contains("was beyond the limit of returned: paused"), "{text}");
    aggregator.process.stop().await
}

#[tokio::test]
async fn without_being_told_so_a_guardrail_pauses_nothing() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    // There is no limit that could be crossed.
    printed(&aggregator, &CREATE.replace("shop", "plain").replace(":at-most=0.3", "")).await?;
    let (succeeded, _, said) = run(&aggregator, "experiment record plain --on-harm pause").await?;
    assert!(!succeeded && said.contains("no metric of the experiment has a limit"), "{said}");
    let (succeeded, _, said) = run(&aggregator, "experiment record plain --on-harm retire").await?;
    assert!(!succeeded && said.contains("stop-arm"), "{said}");

    printed(&aggregator, CREATE).await?;
    printed(&aggregator, "experiment record shop --on-harm pause").await?;
    printed(&aggregator, "experiment record shop --on-harm stop-arm").await?;
    assert_eq!(returned(&mut aggregator, 1, 1, 1000).await?, UploadStatus::Accepted);
    // A retired arm does no harm any more, so only what is said last counts.
    printed(&aggregator, "experiment retire-arm shop long").await?;
    printed(&aggregator, "experiment record shop --on-harm pause").await?;
    assert_eq!(returned(&mut aggregator, 2, 0, 1000).await?, UploadStatus::Accepted);
    let shown = paused(&aggregator).await?;
    assert!(rings(&shown, "arm 0 (short)") && !rings(&shown, "arm 1"), "{shown}");
    assert_eq!(moves(&aggregator).await?.len(), 1);
    // What has ended is not resumed, and no alarm is left.
    let stopped = printed(&aggregator, "experiment stop shop --yes").await?;
    assert!(!rings(&stopped, "arm"), "{stopped}");
    aggregator.process.stop().await
}

#[tokio::test]
async fn a_wrong_run_is_named_by_arm_segment_and_metric() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    printed(&aggregator, &format!("{CREATE} --segments platform=ios,android")).await?;
    let name = ExperimentName { experiment_id: "shop".to_owned() };
    let status = aggregator.operator.get_experiment_status(name).await?.into_inner();
    let made = Specification::try_from(&status.specification.context("no specification")?)?;
    let day = aggregator.day(&made).await?;
    let mut request = upload(1, &made, day, &[(0, true)])?;
    for (runs, says) in [
        (vec![0, 1, 7, 0], "the run of arm 1, segment android, metric returned (index 7) has no"),
        (vec![4, 1, 4, 1], "the run of arm 1, segment ios (index 4) is out of order"),
    ] {
        request.runs = runs;
        let answer = aggregator.device.submit_upload(request.clone()).await?.into_inner();
        assert_eq!(answer.status(), UploadStatus::Malformed);
        assert!(answer.message.contains(says), "{}", answer.message);
    }
    aggregator.process.stop().await
}
