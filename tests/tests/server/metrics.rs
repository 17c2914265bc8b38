//! Metrics match known traffic.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use bandana_shared::identity::Day;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_shared::wire::v1::operator_client::OperatorClient;
use bandana_shared::wire::v1::{
    CreateExperimentRequest, ExperimentName, GetExperimentRequest, Learner, RetireArmRequest,
    UploadRequest, UploadStatus,
};
use bandana_tests::harness::{Aggregator, three_arms, upload};
use bandana_tests::page::{self, Samples};
use bandana_tests::watched_server::WatchedServer;
use tonic::Code;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

async fn metrics(aggregator: &Aggregator) -> anyhow::Result<String> {
    let address = aggregator.process.operator_url.strip_prefix("http://").context("a URL")?;
    let page = page::get(address, "/metrics", &[]).await?;
    assert_eq!(page.status, 200, "{}", page.body);
    assert!(page.headers["content-type"].starts_with("application/openmetrics-text"));
    Ok(page.body)
}

/// An upload for each status, and the number of times that it is sent.
fn uploads(
    running: &Specification,
    paused: &Specification,
    stopped: &Specification,
    day: Day,
) -> anyhow::Result<Vec<(UploadStatus, UploadRequest)>> {
    let good = |number| upload(number, running, day, &[(0, true), (1, false), (1, true)]);
    let too_many = UploadRequest { runs: vec![0, 16_385], bits: vec![0; 2049].into(), ..good(6)? };
    Ok(vec![
        (UploadStatus::Accepted, good(1)?),
        (UploadStatus::Accepted, good(2)?),
        (UploadStatus::Duplicate, good(1)?),
        (UploadStatus::Duplicate, good(1)?),
        (UploadStatus::Duplicate, good(2)?),
        (UploadStatus::Malformed, UploadRequest { upload_id: vec![1].into(), ..good(3)? }),
        (
            UploadStatus::UnknownSpecification,
            UploadRequest { digest: vec![7; 16].into(), ..good(4)? },
        ),
        (UploadStatus::UnknownArm, upload(5, running, day, &[(3, true)])?),
        (UploadStatus::TooManyReports, too_many),
        (UploadStatus::Expired, upload(7, running, day.back(7), &[(0, true)])?),
        (UploadStatus::FutureDay, upload(8, running, day.forward(2), &[(0, true)])?),
        (UploadStatus::Paused, upload(9, paused, day, &[(0, true)])?),
        (UploadStatus::Stopped, upload(10, stopped, day, &[(0, true)])?),
    ])
}

fn calls_are_counted(shown: &Samples, uploads: u64) -> anyhow::Result<()> {
    let call = |service: &str, method: &str, code: &str| {
        let labels = format!("service=\"bandana.v1.{service}\",method=\"{method}\"");
        shown.count(&format!("bandana_calls_total{{{labels},code=\"{code}\"}}"))
    };
    assert_eq!(call("Device", "SubmitUpload", "OK")?, uploads);
    assert_eq!(call("Device", "GetExperiment", "OK")?, 1);
    assert_eq!(call("Device", "GetExperiment", "NOT_FOUND")?, 1);
    assert_eq!(call("Operator", "CreateExperiment", "OK")?, 3);
    assert_eq!(call("Operator", "ListExperiments", "OK")?, 0);
    Ok(())
}

#[tokio::test]
async fn metrics_count_what_happened_and_nothing_else() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let running = aggregator.create(three_arms("running")).await?;
    let paused = aggregator.create(three_arms("paused")).await?;
    let stopped = aggregator.create(three_arms("stopped")).await?;
    let name = |id: &str| ExperimentName { experiment_id: id.to_owned() };
    aggregator.operator.pause_experiment(name("paused")).await?;
    aggregator.operator.stop_experiment(name("stopped")).await?;
    let day = aggregator.day(&running).await?;
    let before = Samples::parse(&metrics(&aggregator).await?)?;
    assert!(before.get("bandana_last_commit_age_seconds").is_err());

    let mut expected: BTreeMap<UploadStatus, u64> = BTreeMap::new();
    let uploads = uploads(&running, &paused, &stopped, day)?;
    let calls = uploads.len() as u64;
    for (status, request) in uploads {
        let answer = aggregator.device.submit_upload(request).await?.into_inner();
        assert_eq!(answer.status(), status, "{}", answer.message);
        *expected.entry(status).or_default() += 1;
    }
    let unknown = GetExperimentRequest { experiment_id: "x".to_owned() };
    aggregator.device.get_experiment(unknown).await.unwrap_err();
    aggregator.operator.refresh_policy(name("running")).await?;
    let retire = RetireArmRequest { experiment_id: "running".to_owned(), arm: 2 };
    aggregator.operator.retire_arm(retire).await?;

    let shown = Samples::parse(&metrics(&aggregator).await?)?;
    for number in 1..=10 {
        let status = UploadStatus::try_from(number)?;
        let label = status.as_str_name().trim_start_matches("UPLOAD_STATUS_").to_lowercase();
        let count = shown.count(&format!("bandana_uploads_total{{outcome=\"{label}\"}}"))?;
        assert_eq!(Some(&count), expected.get(&status), "{label}");
    }
    assert_eq!(shown.sum("bandana_uploads_total")?, calls);
    assert_eq!(shown.sum("bandana_uploads_turned_away_total")?, 0);
    calls_are_counted(&shown, calls)?;
    let entropy_max = "bandana_experiment_policy_entropy_max_nats{experiment=\"running\"}";
    for (name, value) in [
        ("bandana_ready", 1),
        ("bandana_reports_accepted_total", 6),
        ("bandana_ids_remembered", 2),
        ("bandana_ids_remembered_max", 50_000_000),
        ("bandana_commit_uploads_sum", 2),
        ("bandana_commit_uploads_count", 2),
        ("bandana_commit_duration_seconds_count", 2),
        ("bandana_queue_length", 0),
        ("bandana_queue_capacity", 8192),
        ("bandana_replay_window_start_timestamp_seconds", u64::from(day.back(6).get()) * 86_400),
        ("bandana_experiments{state=\"running\"}", 1),
        ("bandana_experiments{state=\"paused\"}", 1),
        ("bandana_experiments{state=\"stopped\"}", 1),
        ("bandana_experiment_reports_total{experiment=\"running\"}", 6),
        ("bandana_experiment_reports_total{experiment=\"paused\"}", 0),
        ("bandana_experiment_arms_in_play{experiment=\"running\"}", 2),
        ("bandana_operator_calls_unauthorised_total", 0),
        // One of each client, and that of the page itself.
        ("bandana_connections{service=\"device\"}", 1),
        ("bandana_connections{service=\"operator\"}", 2),
        ("bandana_connections_refused_total{service=\"device\"}", 0),
        ("bandana_handshakes_failed_total{service=\"operator\"}", 0),
    ] {
        assert_eq!(shown.count(name)?, value, "{name}");
    }
    let entropy = shown.get("bandana_experiment_policy_entropy_nats{experiment=\"running\"}")?;
    let entropy_max = shown.get(entropy_max)?;
    assert!((entropy_max - 2.0_f64.ln()).abs() < 1e-12, "{entropy_max}");
    assert!(entropy > 0.0 && entropy <= entropy_max, "{entropy}");
    for age in [
        "bandana_last_commit_age_seconds",
        "bandana_experiment_policy_age_seconds{experiment=\"paused\"}",
    ] {
        assert!((0.0..60.0).contains(&shown.get(age)?), "{age}");
    }
    aggregator.process.stop().await
}

#[tokio::test]
async fn uploads_that_must_come_again_are_counted_by_reason() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let server = WatchedServer::start(PROGRAM, folder.path(), &["--ids-max=1"]).await?;
    let mut operator = OperatorClient::connect(format!("http://{}", server.operator)).await?;
    let create = CreateExperimentRequest {
        specification: Some(three_arms("small")),
        learner: Learner::LdpTs.into(),
        ..Default::default()
    };
    let created = operator.create_experiment(create).await?.into_inner().specification;
    let small = Specification::try_from(&created.context("no experiment")?)?;
    let mut device = DeviceClient::connect(format!("http://{}", server.device)).await?;
    let question = GetExperimentRequest { experiment_id: "small".to_owned() };
    let day = Day::new(device.get_experiment(question).await?.into_inner().server_day);
    device.submit_upload(upload(1, &small, day, &[(0, true)])?).await?;
    for _ in 0..2 {
        let refused = device.submit_upload(upload(2, &small, day, &[(0, true)])?).await;
        assert_eq!(refused.unwrap_err().code(), Code::ResourceExhausted);
    }
    let shown = Samples::parse(&page::get(&server.operator, "/metrics", &[]).await?.body)?;
    assert_eq!(shown.sum("bandana_uploads_turned_away_total")?, 2);
    assert_eq!(shown.count("bandana_uploads_turned_away_total{reason=\"ids_full\"}")?, 2);
    assert_eq!(shown.sum("bandana_uploads_total")?, 1);
    assert_eq!(shown.count("bandana_ids_remembered_max")?, 1);
    let labels = "service=\"bandana.v1.Device\",method=\"SubmitUpload\"";
    let exhausted = format!("bandana_calls_total{{{labels},code=\"RESOURCE_EXHAUSTED\"}}");
    assert_eq!(shown.count(&exhausted)?, 2);
    drop((device, operator));
    server.stop().await?;
    Ok(())
}

/// The names of the documented table with their types and labels.
fn documented() -> anyhow::Result<BTreeSet<(String, String, String)>> {
    let page = bandana_tests::committed::root().join("docs/metrics.md");
    let page = std::fs::read_to_string(page)?;
    let row = |line: &str| {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind, labels, _] = cells[..] else { return None };
        let name = name.strip_prefix('`')?.strip_suffix('`')?;
        let ours = name.starts_with("bandana_") || name.starts_with("process_");
        ours.then(|| (name.to_owned(), kind.to_owned(), labels.replace('`', "")))
    };
    Ok(page.lines().filter(|line| line.starts_with("| `")).filter_map(row).collect())
}

/// The metrics on a page, in the same form.
fn exposed(text: &str) -> BTreeSet<(String, String, String)> {
    let kinds = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let of = |(name, kind): (&str, &str)| {
        let suffix = match kind {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        let kind = kind.replace("info", "gauge");
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        let labels = samples.filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            let rest = ["_total", "_info", "_bucket", "_sum", "_count"]
                .iter()
                .find_map(|suffix| rest.strip_prefix(suffix))
                .unwrap_or(rest);
            let labels = rest.strip_prefix('{')?.split_once('}')?.0;
            Some(
                labels
                    .split("\",")
                    .filter_map(|label| label.split_once('='))
                    .map(|(label, _)| label),
            )
        });
        let labels: Vec<_> = labels.flatten().filter(|label| *label != "le").collect();
        let mut distinct: Vec<_> = Vec::new();
        for label in labels {
            if !distinct.contains(&label) {
                distinct.push(label);
            }
        }
        (format!("{name}{suffix}"), kind, distinct.join(", "))
    };
    kinds.map(of).collect()
}

/// The names of metrics in a text.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_lowercase() || c == '_'));
    let ours = |word: &&str| {
        ["bandana_", "process_"]
            .iter()
            .any(|start| word.len() > start.len() && word.starts_with(start))
    };
    let of = |word: &str| {
        let mut parts = ["_bucket", "_sum", "_count"].iter();
        let whole = parts.find_map(|part| word.strip_suffix(part));
        whole.unwrap_or(word).to_owned()
    };
    words.filter(ours).map(of).collect()
}

#[tokio::test]
async fn every_metric_of_the_board_and_of_the_alert_rules_is_there() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let running = aggregator.create(three_arms("running")).await?;
    let day = aggregator.day(&running).await?;
    aggregator.device.submit_upload(upload(1, &running, day, &[(0, true)])?).await?;
    let page = metrics(&aggregator).await?;
    let exposed: BTreeSet<_> = exposed(&page).into_iter().map(|(name, ..)| name).collect();
    for file in ["alerts.yml", "alerts-test.yml", "grafana.json"] {
        let path = bandana_tests::committed::root().join("aggregator/packaging/monitoring");
        let names = named(&std::fs::read_to_string(path.join(file))?);
        let lacking: Vec<_> = names.difference(&exposed).collect();
        assert!(names.len() > 5 && lacking.is_empty(), "{file}: {lacking:?} of {names:?}");
    }
    aggregator.process.stop().await
}

#[tokio::test]
async fn every_metric_is_documented_and_no_other() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let running = aggregator.create(three_arms("running")).await?;
    let day = aggregator.day(&running).await?;
    let request = upload(1, &running, day, &[(0, true)])?;
    aggregator.device.submit_upload(request).await?;
    let exposed = exposed(&metrics(&aggregator).await?);
    let documented = documented()?;
    let lacking: Vec<_> = exposed.difference(&documented).collect();
    let gone: Vec<_> = documented.difference(&exposed).collect();
    assert!(lacking.is_empty() && gone.is_empty(), "lacking {lacking:#?}, gone {gone:#?}");
    aggregator.process.stop().await
}
