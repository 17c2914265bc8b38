//! The page has what a decision needs: estimates over time and what a guardrail does.

use anyhow::Context as _;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::{ExperimentName, UploadStatus};
use bandana_tests::browser::Browser;
use bandana_tests::harness::{Aggregator, three_arms, upload};
use serde_json::Value;

use super::{PROGRAM, printed};

/// Widths of a desktop and of a phone, in pixels.
const WIDTHS: [u64; 2] = [1280, 390];

/// Checks that a page is not wider than its window, and has told of nothing wrong.
async fn fits(browser: &Browser, page: &str) -> anyhow::Result<()> {
    let console = browser.console().await?;
    anyhow::ensure!(console.is_empty(), "{page}: {console:#?}");
    let over = "document.documentElement.scrollWidth - document.documentElement.clientWidth";
    let over = browser.value(over).await?;
    anyhow::ensure!(over == 0, "{page} is {over} pixels too wide");
    Ok(())
}

/// Opens an experiment's page at this width.
async fn open(browser: &Browser, url: &str, id: &str, width: u64) -> anyhow::Result<()> {
    browser.resize(width, 900).await?;
    browser.open("about:blank").await?;
    browser.open(&format!("{url}/#/experiments/{id}")).await?;
    browser.until("document.getElementById('live').textContent === 'live'").await
}

/// Sends reports of so many days ago.
async fn report(
    aggregator: &mut Aggregator,
    made: &Specification,
    number: u128,
    days_ago: u32,
    reports: &[(usize, bool)],
) -> anyhow::Result<()> {
    let day = aggregator.day(made).await?.back(days_ago);
    let answer = aggregator.device.submit_upload(upload(number, made, day, reports)?).await?;
    anyhow::ensure!(answer.get_ref().status() == UploadStatus::Accepted, "{answer:?}");
    Ok(())
}

/// The machine-readable cells of the table of estimates over time, by rows.
const ROWS: &str = "[...document.querySelectorAll('#over-time tbody tr')].map((row) => \
                    [...row.cells].map((cell) => cell.querySelector('data')?.value \
                    ?? cell.querySelector('bdi')?.textContent ?? cell.textContent))";

/// Compares table and chart with what the command prints.
async fn history_is_right(browser: &Browser, url: &str) -> anyhow::Result<()> {
    let known = printed(url, &["estimate", "colour", "--over-time"]).await?;
    let days = known["days"].as_array().context("no days")?;
    let points: Vec<(&Value, &Value)> = days
        .iter()
        .flat_map(|day| day["arms"].as_array().into_iter().flatten().map(move |arm| (day, arm)))
        .collect();
    let all: u64 = points.iter().filter_map(|(_, arm)| arm["reports"].as_u64()).sum();
    browser
        .until(&format!(
            "[...document.querySelectorAll('#over-time tbody tr')].reduce((sum, row) => \
             sum + Number(row.cells[2].querySelector('data').value), 0) === {all}"
        ))
        .await?;
    let rows = browser.value(ROWS).await?;
    for (row, (day, arm)) in rows.as_array().context("no rows")?.iter().zip(points.iter().rev()) {
        assert_eq!((&row[0], &row[1]), (&day["day"], &arm["label"]));
        for (cell, name) in [(2, "reports"), (3, "estimate"), (4, "low"), (5, "high")] {
            let shown: f64 = row[cell].as_str().context("an empty cell")?.parse()?;
            let expected = arm[name].as_f64().context("no number")?;
            assert!((shown - expected).abs() < 1e-12, "{name} of {row}: {arm}");
        }
    }
    browser.until("document.getElementById('over-time-chart').plot !== undefined").await?;
    let plotted = browser.value("document.getElementById('over-time-chart').plot.data").await?;
    let lines = plotted.as_array().context("no lines")?;
    assert_eq!(lines[0].as_array().map(Vec::len), Some(days.len()));
    for (place, line) in lines[1..].iter().enumerate() {
        let name = ["low", "high", "estimate"][place % 3];
        for (at, day) in days.iter().enumerate() {
            let arm = &day["arms"].as_array().into_iter().flatten();
            let arm = arm.clone().find(|arm| arm["arm"] == place / 3);
            let expected = arm.map(|arm| arm[name].clone());
            assert_eq!(line[at].as_f64(), expected.as_ref().and_then(Value::as_f64), "{name}");
        }
    }
    let label = "document.getElementById('over-time-chart').getAttribute('aria-label')";
    let label = browser.value(label).await?;
    let label = label.as_str().context("no label")?;
    let newest = days.last().and_then(|day| day["day"].as_str()).context("no day")?;
    assert!(label.contains("green: ") && label.contains(newest), "{label}");
    Ok(())
}

pub(super) async fn estimates_over_time_are_those_of_the_command_line() -> anyhow::Result<()> {
    let browser = Browser::start().await?;
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let url = aggregator.process.operator_url.clone();
    let made = aggregator.create(three_arms("colour")).await?;
    open(&browser, &url, "colour", 1280).await?;
    browser
        .until("document.getElementById('history').innerText.includes('no reports yet')")
        .await?;
    let of_arm = |arm, ones: usize, all: usize| (0..all).map(move |one| (arm, one < ones));
    let first: Vec<_> = of_arm(0, 300, 500).chain(of_arm(1, 200, 500)).collect();
    report(&mut aggregator, &made, 1, 3, &first).await?;
    let third: Vec<_> = of_arm(0, 400, 500).chain(of_arm(2, 30, 40)).collect();
    report(&mut aggregator, &made, 2, 1, &third).await?;
    // The page that is open shows them without being asked.
    history_is_right(&browser, &url).await?;
    for (number, width) in (3..).zip(WIDTHS) {
        open(&browser, &url, "colour", width).await?;
        history_is_right(&browser, &url).await?;
        // Late reports of an earlier day change its point, and all after it.
        report(&mut aggregator, &made, number, 2, &[(1, true), (1, true)]).await?;
        history_is_right(&browser, &url).await?;
        browser.run("document.querySelector('#history details').open = true", &[]).await?;
        fits(&browser, &format!("history at {width}")).await?;
    }
    let known = printed(&url, &["estimate", "colour", "--over-time"]).await?;
    let now = printed(&url, &["estimate", "colour"]).await?;
    let days = known["days"].as_array().context("no days")?;
    let reports: Vec<_> = days.iter().map(|day| day["reports"].as_u64()).collect();
    assert_eq!(reports, [1000, 1004, 1544].map(Some));
    let last = days.last().context("no days")?["arms"].as_array().context("no arms")?;
    for (then, now) in last.iter().zip(now["arms"].as_array().context("no arms")?) {
        for name in ["arm", "label", "reports", "estimate", "low", "high"] {
            assert_eq!(then[name], now[name], "the last day has all reports");
        }
    }
    assert_eq!(days[0]["arms"].as_array().map(Vec::len), Some(2), "arms without reports wait");
    browser.quit().await?;
    aggregator.process.stop().await
}

const CLICK: &str = "document.querySelector(arguments[0]).click()";

/// Types into a field, or chooses in one.
const TYPE: &str = "const input = document.getElementById(arguments[0]); input.value = arguments[1];
    for (const name of ['input', 'change']) input.dispatchEvent(new Event(name, { bubbles: true }))";

pub(super) async fn a_limit_that_is_crossed_pauses_the_experiment_on_the_page() -> anyhow::Result<()>
{
    let browser = Browser::start().await?;
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let url = aggregator.process.operator_url.clone();
    for (number, width) in (1..).zip(WIDTHS) {
        let id = format!("shop-{width}");
        let create = format!(
            "experiment create {id} --epsilon 4 --arm short --arm long --redraw \
             --attribution-window-seconds 60 --metric returned:0.5:at-most=0.3"
        );
        printed(&url, &create.split_whitespace().collect::<Vec<_>>()).await?;
        open(&browser, &url, &id, width).await?;
        browser.run(CLICK, &["#record-edit summary".into()]).await?;
        browser.until("document.getElementById('record-harm').checkVisibility()").await?;
        browser.run(TYPE, &["record-harm".into(), "pause".into()]).await?;
        browser.run(CLICK, &["#record-form button[type=submit]".into()]).await?;
        let record = "document.getElementById('record').innerText";
        browser.until(&format!("{record}.includes('the experiment is paused')")).await?;

        let name = ExperimentName { experiment_id: id.clone() };
        let status = aggregator.operator.get_experiment_status(name).await?.into_inner();
        let made = Specification::try_from(&status.specification.context("no specification")?)?;
        // The metric of the second arm.
        report(&mut aggregator, &made, number, 0, &[(3, true); 1000]).await?;
        browser.until("document.getElementById('state').textContent === 'paused'").await?;
        let alarms = "document.getElementById('alarms').innerText";
        browser.until(&format!("{alarms}.includes('guardrail-pause: paused by')")).await?;
        browser
            .until(&format!("{record}.includes('long was beyond the limit of returned: paused')"))
            .await?;
        browser
            .until("document.getElementById('changes').innerText.includes('(guardrail)')")
            .await?;
        fits(&browser, &id).await?;
        browser.run(CLICK, &["#resume".into()]).await?;
        browser.until("document.getElementById('state').textContent === 'running'").await?;
        browser
            .until(&format!("{record}.includes('resumed, and not paused for that again')"))
            .await?;
        fits(&browser, &id).await?;
    }
    // Where nothing has a limit, there is nothing to choose.
    aggregator.create(three_arms("plain")).await?;
    open(&browser, &url, "plain", 390).await?;
    browser.run(CLICK, &["#record-edit summary".into()]).await?;
    browser.until("document.getElementById('record-title-text').checkVisibility()").await?;
    let is_shown = "document.getElementById('record-harm').checkVisibility()";
    assert_eq!(browser.value(is_shown).await?, false);
    browser.quit().await?;
    aggregator.process.stop().await
}
