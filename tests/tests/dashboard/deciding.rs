//! The page has what a decision needs: estimates over time and what a guardrail does.

use anyhow::Context as _;
use bandana_shared::alphabet::Symbol;
use bandana_shared::identity::{CellIndex, UploadId};
use bandana_shared::specification::Specification;
use bandana_shared::upload::{PackedReports, Upload};
use bandana_shared::wire::v1::{ExperimentName, UploadRequest, UploadStatus};
use bandana_tests::browser::Browser;
use bandana_tests::harness::{Aggregator, three_arms, upload};
use bandana_tests::watched_server::WatchedServer;
use prost::Message as _;
use serde_json::{Value, json};

use super::{PROGRAM, printed, written};

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
    // The ends of the intervals of each arm, then the estimates of all.
    let arms = (lines.len() - 1) / 3;
    let ends = (0..arms).flat_map(|arm| [(arm, "low"), (arm, "high")]);
    let named = ends.chain((0..arms).map(|arm| (arm, "estimate")));
    for ((place, name), line) in named.zip(&lines[1..]) {
        for (at, day) in days.iter().enumerate() {
            let mut known = day["arms"].as_array().into_iter().flatten();
            let arm = known.find(|arm| arm["arm"] == place);
            let expected = arm.and_then(|arm| arm[name].as_f64());
            assert_eq!(line[at].as_f64(), expected, "{name} of arm {place}");
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
        browser
            .until(&format!("{alarms}.includes('guardrail-pause: a guardrail has paused')"))
            .await?;
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
            .until(&format!("{record}.includes('resumed; the same does not pause it again')"))
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

/// A form's fields and what is typed into them, what the experiment must have then, and fields
/// that are not shown with it.
type Form =
    (&'static str, &'static [(&'static str, &'static str)], fn() -> Value, &'static [&'static str]);

const FORMS: [Form; 3] = [
    (
        "things",
        &[("reward_kind", "categorical"), ("categories", "5"), ("levels", "99")],
        || json!({"symbols": 5, "learner": "uniform", "estimand": "frequencies", "shuffled": null}),
        &["reward_low", "mechanism", "levels", "learner", "memory"],
    ),
    (
        "stars",
        &[
            ("reward_kind", "bounded"),
            ("reward_high", "4"),
            ("mechanism", "k-ary"),
            ("levels", "5"),
            ("epsilon", "4"),
            ("memory", "window"),
            ("window_days", "7"),
        ],
        || json!({"mechanism": "k-ary", "symbols": 5, "window_days": 7, "discount_per_day": null}),
        &["categories", "curvature", "discount_per_day"],
    ),
    (
        "taps",
        &[
            ("memory", "discount"),
            ("discount_per_day", "0.8"),
            ("shuffle_batch", "100"),
            // What is wrong in a field that is not shown any more holds up nothing.
            ("mechanism", "quadratic"),
            ("curvature", "7"),
            ("mechanism", "linear"),
        ],
        || json!({"mechanism": "linear", "symbols": null, "discount_per_day": 0.8, "window_days": null}),
        &["levels", "categories", "window_days", "curvature"],
    ),
];

pub(super) async fn the_form_has_what_the_command_line_has() -> anyhow::Result<()> {
    let browser = Browser::start().await?;
    let aggregator = Aggregator::start(PROGRAM).await?;
    let url = &aggregator.process.operator_url;
    for width in WIDTHS {
        for (name, fields, expected, hidden) in FORMS {
            let id = format!("{name}-{width}");
            browser.resize(width, 900).await?;
            browser.open("about:blank").await?;
            browser.open(&format!("{url}/#/new")).await?;
            browser.until("document.getElementById('create') !== null").await?;
            let named = [("experiment_id", &*id), ("arms", "red\ngreen")];
            for (field, text) in named.into_iter().chain(fields.iter().copied()) {
                browser.run(TYPE, &[field.into(), text.into()]).await?;
            }
            browser.run("document.getElementById('more').open = true", &[]).await?;
            for field in hidden {
                let shown = format!("document.getElementById('{field}').checkVisibility()");
                assert_eq!(browser.value(&shown).await?, false, "{id}: {field}");
            }
            fits(&browser, &id).await?;
            browser.run(CLICK, &["#create button[type=submit]".into()]).await?;
            browser.until(&format!("location.hash === '#/experiments/{id}'")).await?;
            // A copy has the same, with nothing lost in the form.
            browser.open("about:blank").await?;
            browser.open(&format!("{url}/#/new/from/{id}")).await?;
            browser.until("document.getElementById('copied') !== null").await?;
            let copy = format!("{id}-again");
            browser.run(TYPE, &["experiment_id".into(), (&*copy).into()]).await?;
            browser.run(CLICK, &["#create button[type=submit]".into()]).await?;
            browser.until(&format!("location.hash === '#/experiments/{copy}'")).await?;
            let made = printed(url, &["experiment", "show", &id]).await?;
            let again = printed(url, &["experiment", "show", &copy]).await?;
            for (field, value) in expected().as_object().context("no object")? {
                assert_eq!((&made[field], &again[field]), (value, value), "{id}: {field}");
            }
            for field in ["rewards", "epsilon", "shuffled", "sticky", "floor_weight"] {
                assert_eq!(made[field], again[field], "{id}: {field}");
            }
        }
    }
    let batch = &printed(url, &["experiment", "show", "taps-390"]).await?["shuffled"]["batch"];
    assert_eq!(*batch, 100);
    browser.quit().await?;
    aggregator.process.stop().await
}

pub(super) async fn data_sets_are_listed_with_what_is_left_of_their_budgets() -> anyhow::Result<()>
{
    let browser = Browser::start().await?;
    let folder = tempfile::tempdir()?;
    let sets = folder.path().join("sets");
    std::fs::create_dir(&sets)?;
    std::fs::write(sets.join("people.csv"), "age,city\n20,Ulm\n30,Bonn\n40,Ulm\n")?;
    let sets = sets.to_str().context("a path in UTF-8")?;
    let data_dir = folder.path().join("data");
    let server = WatchedServer::start(PROGRAM, &data_dir, &["--data-sets", sets]).await?;
    let url = format!("http://{}", server.operator);
    browser.open(&format!("{url}/#/data-sets")).await?;
    browser.until("document.body.innerText.includes('There are no data sets')").await?;
    let register = "query register people --file people.csv --column age:0..120 \
                    --column city:Bonn|Ulm --epsilon 2";
    printed(&url, &register.split_whitespace().collect::<Vec<_>>()).await?;
    printed(&url, &["query", "count", "people", "--where", "age=20", "--epsilon", "0.5"]).await?;
    for width in WIDTHS {
        browser.resize(width, 900).await?;
        browser.open("about:blank").await?;
        browser.open(&format!("{url}/#/data-sets")).await?;
        browser.until("document.querySelectorAll('#data-sets tbody tr').length === 1").await?;
        let row = browser.value("document.querySelector('#data-sets tbody tr').innerText").await?;
        let row = row.as_str().context("no text")?;
        for part in ["people", "3", "ε 2", "ε 0.5", "ε 1.5", "75.0%", "people.csv"] {
            assert!(row.contains(part), "{part} is not in {row}");
        }
        fits(&browser, "data sets").await?;
    }
    browser.quit().await?;
    server.stop().await?;
    Ok(())
}

/// Sends a report of each symbol for each cell, and more of the first one for the first cell.
async fn all_symbols(aggregator: &mut Aggregator, id: &str) -> anyhow::Result<()> {
    let name = ExperimentName { experiment_id: id.to_owned() };
    let status = aggregator.operator.get_experiment_status(name).await?.into_inner();
    let made = Specification::try_from(&status.specification.context("no specification")?)?;
    let alphabet = made.channel().alphabet();
    let of_cell =
        |cell| alphabet.symbols().map(move |symbol: Symbol| Ok((CellIndex::new(cell)?, symbol)));
    let more = (0..20).map(|_| Ok((CellIndex::new(0)?, Symbol::from(false))));
    let reports = (0..made.cells().len()).flat_map(of_cell).chain(more);
    let reports = reports.collect::<anyhow::Result<Vec<_>>>()?;
    let upload = Upload {
        id: UploadId::new([u8::try_from(id.len())?; 16]),
        digest: made.digest(),
        day: aggregator.day(&made).await?,
        reports: PackedReports::pack_symbols(reports, alphabet)?,
    };
    let request = UploadRequest::decode(&upload.to_bytes()[..])?;
    let answer = aggregator.device.submit_upload(request).await?;
    anyhow::ensure!(answer.get_ref().status() == UploadStatus::Accepted, "{answer:?}");
    Ok(())
}

pub(super) async fn segments_have_shares_of_categories_and_exports_have_segments_and_metrics()
-> anyhow::Result<()> {
    let browser = Browser::start().await?;
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let url = aggregator.process.operator_url.clone();
    let base = "--epsilon 2 --arm red --arm green --attribution-window-seconds 60 \
                --segments platform=ios,android";
    for rest in ["things --categories 3", "cells --metric returned:0.5:at-most=0.3"] {
        let create = format!("experiment create {rest} {base}");
        printed(&url, &create.split_whitespace().collect::<Vec<_>>()).await?;
    }
    all_symbols(&mut aggregator, "things").await?;
    all_symbols(&mut aggregator, "cells").await?;
    let expected = printed(&url, &["estimate", "things"]).await?;
    let text = written(&url, &["estimate", "things"]).await?;
    assert!(text.contains("share of each category, before randomized response, in android"));
    for width in WIDTHS {
        open(&browser, &url, "things", width).await?;
        for (place, segment) in expected["segments"].as_array().context("none")?.iter().enumerate()
        {
            let rows = format!("#shares-{place} tbody tr");
            browser.until(&format!("document.querySelectorAll('{rows}').length === 6")).await?;
            let cells = format!(
                "[...document.querySelectorAll('{rows}')].map((row) => [2, 3, 4, 5].map((cell) => \
                 Number(row.cells[cell].querySelector('data').value)))"
            );
            let shown = browser.value(&cells).await?;
            let arms = segment["arms"].as_array().into_iter().flatten();
            let symbols = arms.flat_map(|arm| arm["symbols"].as_array().into_iter().flatten());
            for (row, symbol) in shown.as_array().context("no rows")?.iter().zip(symbols) {
                for (cell, name) in ["count", "frequency", "low", "high"].iter().enumerate() {
                    let numbers = row[cell].as_f64().zip(symbol[*name].as_f64());
                    let (shown, expected) = numbers.context("no number")?;
                    assert!((shown - expected).abs() < 1e-12, "{name}: {row} {symbol}");
                }
            }
            // Categories have no mean.
            let mean = format!("document.querySelector('#segment-{place} th:nth-child(4)')");
            assert_eq!(browser.value(&format!("{mean}.checkVisibility()")).await?, false);
        }
        fits(&browser, &format!("things at {width}")).await?;
    }
    // The export has a record for each arm: in all segments, in each, and of each metric.
    let export = written(&url, &["experiment", "export", "cells", "--format", "json"]).await?;
    let records: Value = serde_json::from_str(&export)?;
    let records = records.as_array().context("no records")?;
    let of: Vec<_> = records.iter().map(|r| [&r["segment"], &r["metric"], &r["label"]]).collect();
    let named = |row: &[&str; 3]| row.map(Value::from);
    let expected = [
        ["", "rewards", "red"],
        ["", "rewards", "green"],
        ["ios", "rewards", "red"],
        ["ios", "rewards", "green"],
        ["android", "rewards", "red"],
        ["android", "rewards", "green"],
        ["", "returned", "red"],
        ["", "returned", "green"],
    ];
    let expected: Vec<[Value; 3]> = expected.iter().map(named).collect();
    assert_eq!(of, expected.iter().map(<[Value; 3]>::each_ref).collect::<Vec<_>>());
    let now = printed(&url, &["estimate", "cells"]).await?;
    for (record, arm) in [
        (0, &now["arms"][0]),
        (3, &now["segments"][0]["arms"][1]),
        (7, &now["metrics"][0]["arms"][1]),
    ] {
        for field in ["reports", "ones", "estimate", "low", "high", "weight"] {
            assert_eq!(records[record][field], arm[field], "{field} of {}", records[record]);
        }
    }
    browser.quit().await?;
    aggregator.process.stop().await
}
