//! Every kind of experiment has a page that loads without an error in the console, and can be
//! paused there.

use anyhow::Context as _;
use bandana_shared::alphabet::{Alphabet, Symbol};
use bandana_shared::identity::{CellIndex, UploadId};
use bandana_shared::specification::Specification;
use bandana_shared::upload::{PackedReports, Upload};
use bandana_shared::wire::v1::{ExperimentName, UploadRequest, UploadStatus};
use bandana_tests::browser::Browser;
use bandana_tests::harness::{Aggregator, upload};
use bandana_tests::page;
use bandana_tests::trusted_app::{open, play};
use prost::Message as _;
use serde_json::Value;

use super::{PROGRAM, printed};

/// The arguments that create each kind; the name comes first.
const PRIVATE: &[&[&str]] = &[
    &["linear", "--mechanism", "linear"],
    &["warner", "--mechanism", "randomized-response"],
    &["range", "--reward-kind", "bounded", "--reward-low=-1", "--out-of-range", "clamp"],
    &["quadratic", "--mechanism", "quadratic", "--curvature=-0.5"],
    &["exponential", "--mechanism", "exponential"],
    &[
        "curved-range",
        "--mechanism",
        "exponential",
        "--reward-kind",
        "bounded",
        "--accept-nonlinear-estimand",
    ],
    &["levels", "--reward-kind", "bounded", "--mechanism", "k-ary", "--levels", "6"],
    &["two-levels", "--reward-kind", "bounded", "--mechanism", "k-ary", "--levels", "2"],
    &["categories", "--categories", "4"],
    &["two-categories", "--categories", "2"],
    &["window", "--window-days", "14", "--burn-in-reports", "100", "--holdout-share", "0.1"],
    &["discount", "--discount-per-day", "0.9", "--learner", "rand-ada-kl"],
    &["holdout", "--holdout-group", "0.2"],
    &[
        "cells",
        "--segments=platform=ios,android",
        "--metric=returned:0.2:at-most=0.3",
        "--metric=minutes:0.1:0..60",
    ],
    &["simulation", "--simulation"],
];

const TRUSTED: &[&[&str]] = &[
    &["ucb", "--algorithm", "adac-ucb", "--arms", "3"],
    &["lazy", "--algorithm", "lazy-release", "--arms", "3"],
    &["gope", "--algorithm", "adac-gope", "--actions", "ACTIONS"],
    &["oful", "--algorithm", "adac-oful", "--dimension", "2"],
];

const STATE: &str = "document.getElementById('state')?.textContent";

async fn create(url: &str, kind: &[&str]) -> anyhow::Result<Value> {
    let common = [
        "experiment",
        "create",
        "--epsilon=2",
        "--arm=red",
        "--arm=green",
        "--attribution-window-seconds=3600",
    ];
    printed(url, &[&common[..], kind].concat()).await.with_context(|| format!("{kind:?}"))
}

/// Opens the page of an experiment, and checks that it is complete.
async fn open_page(browser: &Browser, url: &str, path: &str, state: &str) -> anyhow::Result<()> {
    browser.open("about:blank").await?;
    browser.open(&format!("{url}/#/{path}")).await?;
    browser.until(&format!("{STATE} === '{state}'")).await.with_context(|| path.to_owned())?;
    let facts = "document.querySelectorAll('section dl dt').length > 3 \
                 && document.querySelectorAll('#changes tbody tr').length > 0";
    browser.until(facts).await.with_context(|| path.to_owned())?;
    has_no_errors(browser, path).await
}

async fn has_no_errors(browser: &Browser, path: &str) -> anyhow::Result<()> {
    let console = browser.console().await?;
    anyhow::ensure!(console.is_empty(), "{path}: {console:#?}");
    let shown = browser.value("document.querySelectorAll('main .problem').length").await?;
    anyhow::ensure!(shown == 0, "{path}: a problem is shown");
    let text = browser.value("document.querySelector('main').innerText").await?;
    for senseless in ["undefined", "NaN", "null", "Infinity"] {
        let text = text.as_str().unwrap_or_default();
        anyhow::ensure!(!text.contains(senseless), "{path}: {senseless} in {text}");
    }
    Ok(())
}

/// Presses a button, and waits for the resulting state.
async fn press(browser: &Browser, button: &str, state: &str) -> anyhow::Result<()> {
    browser.run("document.getElementById(arguments[0]).click()", &[button.into()]).await?;
    browser.until(&format!("{STATE} === '{state}'")).await
}

async fn pause(browser: &Browser, url: &str, path: &str) -> anyhow::Result<()> {
    open_page(browser, url, path, "running").await?;
    press(browser, "pause", "paused").await.with_context(|| path.to_owned())?;
    has_no_errors(browser, path).await
}

pub(super) async fn every_kind_of_private_experiment_has_a_page_and_is_paused_there()
-> anyhow::Result<()> {
    let browser = Browser::start().await?;
    let aggregator = Aggregator::start(PROGRAM).await?;
    let url = &aggregator.process.operator_url;
    for kind in PRIVATE {
        create(url, kind).await?;
        pause(&browser, url, &format!("experiments/{}", kind[0])).await?;
        let made = printed(url, &["experiment", "show", kind[0]]).await?;
        assert_eq!(made["state"], "paused", "{made}");
    }
    // The list has all experiments.
    browser.run("location.hash = '#/'", &[]).await?;
    let rows =
        format!("document.querySelectorAll('#experiments tbody tr').length === {}", PRIVATE.len());
    browser.until(&rows).await?;
    has_no_errors(&browser, "the list").await?;
    browser.quit().await?;
    aggregator.process.stop().await
}

/// The value of an input of the form, set as typing does.
async fn enter(browser: &Browser, id: &str, value: &str) -> anyhow::Result<()> {
    let script = "const input = document.getElementById(arguments[0]); \
                  input.value = arguments[1]; \
                  input.dispatchEvent(new Event('change', { bubbles: true }))";
    browser.run(script, &[id.into(), value.into()]).await.map(drop)
}

/// Adds reports to a cell: of these, so many are ones.
async fn fill(
    aggregator: &mut Aggregator,
    specification: &Specification,
    (cell, reports, ones): (usize, usize, usize),
) -> anyhow::Result<()> {
    let day = aggregator.day(specification).await?;
    let cell = CellIndex::new(cell)?;
    let bits = (0..reports).map(|place| (cell, place < ones)).collect();
    let reports = PackedReports::pack(bits)?;
    let name = [u8::try_from(cell.get())?; 16];
    let (id, digest) = (UploadId::new(name), specification.digest());
    let bytes = Upload { id, digest, day, reports }.to_bytes();
    let answer = aggregator.device.submit_upload(UploadRequest::decode(&bytes[..])?).await?;
    anyhow::ensure!(answer.get_ref().status() == UploadStatus::Accepted, "{answer:?}");
    Ok(())
}

pub(super) async fn metrics_and_segments_are_made_in_the_form_and_shown_on_the_page()
-> anyhow::Result<()> {
    let browser = Browser::start().await?;
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let url = aggregator.process.operator_url.clone();
    browser.open(&format!("{url}/#/new")).await?;
    browser.until("document.getElementById('create') !== null").await?;
    for (id, value) in [
        ("experiment_id", "form"),
        ("arms", "red\ngreen"),
        ("epsilon", "4"),
        ("segments", "platform=ios,android; age=young,old"),
        ("metrics", "returned:0.2:at-most=0.3"),
    ] {
        enter(&browser, id, value).await?;
    }
    browser.run("document.querySelector('#create button[type=submit]').click()", &[]).await?;
    browser.until(&format!("{STATE} === 'running'")).await?;
    let made = printed(&url, &["experiment", "show", "form"]).await?;
    let named = serde_json::json!([
        {"name": "platform", "values": ["ios", "android"]},
        {"name": "age", "values": ["young", "old"]},
    ]);
    assert_eq!(made["segmentations"], named);
    assert_eq!(made["metrics"][0]["at_most"], 0.3);

    // Cells of the arm red, of the young on ios: rewards, returned; of green the same, with harm.
    let name = ExperimentName { experiment_id: "form".to_owned() };
    let status = aggregator.operator.get_experiment_status(name.clone()).await?.into_inner();
    let specification = status.specification.context("no specification")?;
    let specification = Specification::try_from(&specification)?;
    for cell in [(0, 400, 200), (1, 400, 40), (8, 400, 250), (9, 400, 360)] {
        fill(&mut aggregator, &specification, cell).await?;
    }
    aggregator.operator.refresh_policy(name).await?;
    let shown = "document.getElementById('harm').innerText.startsWith('green does harm')";
    browser.until(shown).await?;
    for (width, height) in [(1280, 900), (390, 844)] {
        browser.resize(width, height).await?;
        let tables = "['metric-returned', 'segment-0', 'segment-1', 'segment-2', 'segment-3'].every((id) => \
                      document.querySelectorAll(`#${id} tbody tr`).length === 2)";
        browser.until(tables).await?;
        let text = "document.querySelector('#metric-returned').innerText";
        let text = browser.value(text).await?;
        let text = text.as_str().context("no text")?.to_owned();
        anyhow::ensure!(text.contains("does harm, no traffic"), "{text}");
        let old = "document.querySelector('#segment-3 caption').innerText";
        assert_eq!(browser.value(old).await?, "Rewards where age is old");
        // Four cells with reports are two arms in the traffic of the day.
        let days = "document.querySelectorAll('#tallies tbody tr').length === 2";
        browser.until(days).await?;
        let wide = "document.documentElement.scrollWidth > window.innerWidth";
        anyhow::ensure!(browser.value(wide).await? == false, "{width}: wider than the window");
        has_no_errors(&browser, "form").await?;
    }
    browser.quit().await?;
    aggregator.process.stop().await
}

pub(super) async fn an_experiment_of_categories_is_a_page_in_every_state() -> anyhow::Result<()> {
    let browser = Browser::start().await?;
    let aggregator = Aggregator::start(PROGRAM).await?;
    let url = &aggregator.process.operator_url;
    create(url, &["drafted", "--categories", "4", "--draft"]).await?;
    open_page(&browser, url, "experiments/drafted", "draft").await?;
    for (button, state) in [("start", "running"), ("pause", "paused"), ("resume", "running")] {
        press(&browser, button, state).await?;
    }
    browser.run("document.getElementById('stop').click()", &[]).await?;
    press(&browser, "stop-confirmed", "stopped").await?;
    open_page(&browser, url, "experiments/drafted", "stopped").await?;
    browser.quit().await?;
    aggregator.process.stop().await
}

/// Waits until a button is visible.
async fn until_shown(browser: &Browser, button: &str) -> anyhow::Result<()> {
    let is_shown = format!("document.getElementById('{button}')?.hidden === false");
    browser.until(&is_shown).await.with_context(|| button.to_owned())
}

pub(super) async fn what_has_ended_is_archived_shown_and_deleted_by_its_name() -> anyhow::Result<()>
{
    let browser = Browser::start().await?;
    let aggregator = Aggregator::start(PROGRAM).await?;
    let url = &aggregator.process.operator_url;
    create(url, &["private", "--draft"]).await?;
    let trusted = ["trusted", "create", "--rewards-are-disclosed", "--rho", "0.5"];
    printed(url, &[&trusted[..], TRUSTED[0]].concat()).await?;
    let click = "document.getElementById(arguments[0]).click()";
    for (kind, command, id) in
        [("experiments", "experiment", "private"), ("trusted", "trusted", "ucb")]
    {
        printed(url, &[command, "stop", id, "--yes"]).await?;
        open_page(&browser, url, &format!("{kind}/{id}"), "stopped").await?;
        for (button, next) in
            [("archive", "unarchive"), ("unarchive", "archive"), ("archive", "unarchive")]
        {
            until_shown(&browser, button).await?;
            browser.run(click, &[button.into()]).await?;
            until_shown(&browser, next).await?;
            let shown = printed(url, &[command, "show", id]).await?;
            assert_eq!(shown["archived"], button == "archive", "{shown}");
        }
        // The list shows archived experiments on request.
        browser.run("location.hash = '#/'", &[]).await?;
        let row = format!("document.querySelector('tr[data-experiment={id}]')");
        browser.until("document.getElementById('archived') !== null").await?;
        assert_eq!(browser.value(&format!("{row} === null")).await?, true);
        browser.run(click, &["archived".into()]).await?;
        browser.until(&format!("{row} !== null")).await?;

        open_page(&browser, url, &format!("{kind}/{id}"), "stopped").await?;
        until_shown(&browser, "delete").await?;
        browser.run(click, &["delete".into()]).await?;
        let type_name = "const name = document.getElementById('delete-name'); name.value = arguments[0]; \
                         name.dispatchEvent(new Event('input'))";
        let is_locked = "document.getElementById('delete-confirmed').disabled";
        assert_eq!(browser.value(is_locked).await?, true);
        browser.run(type_name, &["another".into()]).await?;
        assert_eq!(browser.value(is_locked).await?, true);
        browser.run(type_name, &[id.into()]).await?;
        assert_eq!(browser.value(is_locked).await?, false);
        browser.run(click, &["delete-confirmed".into()]).await?;
        browser.until("location.hash === '#/'").await?;
        let listed = printed(url, &[command, "list", "--archived"]).await?;
        assert_eq!(listed["experiments"].as_array().map(Vec::len), Some(0), "{listed}");
        has_no_errors(&browser, id).await?;
    }
    browser.quit().await?;
    aggregator.process.stop().await
}

pub(super) async fn every_kind_of_trusted_experiment_has_a_page_and_is_paused_there()
-> anyhow::Result<()> {
    let browser = Browser::start().await?;
    let aggregator = Aggregator::start(PROGRAM).await?;
    let url = &aggregator.process.operator_url;
    let folder = tempfile::tempdir()?;
    let actions = folder.path().join("actions.csv");
    std::fs::write(&actions, "1,0\n0,1\n")?;
    let actions = actions.to_str().context("a path in UTF-8")?;
    for kind in TRUSTED {
        let common = ["trusted", "create", "--rewards-are-disclosed", "--rho", "0.5"];
        let own = kind.iter().map(|word| if *word == "ACTIONS" { actions } else { word });
        let arguments: Vec<_> = common.into_iter().chain(own).collect();
        printed(url, &arguments).await.with_context(|| format!("{kind:?}"))?;
        if kind[0] != "oful" {
            play(&open(&aggregator.process.device_url, kind[0]).await?, 5).await?;
        }
        pause(&browser, url, &format!("trusted/{}", kind[0])).await?;
        let made = printed(url, &["trusted", "show", kind[0]]).await?;
        assert_eq!(made["state"], "paused", "{made}");
    }
    browser.quit().await?;
    aggregator.process.stop().await
}

/// An upload with one report for each symbol of each arm.
fn all_symbols(
    number: u128,
    specification: &Specification,
    day: bandana_shared::identity::Day,
) -> anyhow::Result<UploadRequest> {
    let alphabet: Alphabet = specification.channel().alphabet();
    let of_arm =
        |arm| alphabet.symbols().map(move |symbol: Symbol| Ok((CellIndex::new(arm)?, symbol)));
    let reports = (0..specification.arms().len()).flat_map(of_arm);
    let reports = reports.collect::<anyhow::Result<Vec<_>>>()?;
    let upload = Upload {
        id: UploadId::new(number.to_be_bytes()),
        digest: specification.digest(),
        day,
        reports: PackedReports::pack_symbols(reports, alphabet)?,
    };
    Ok(UploadRequest::decode(&upload.to_bytes()[..])?)
}

async fn specification(aggregator: &mut Aggregator, id: &str) -> anyhow::Result<Specification> {
    let name = ExperimentName { experiment_id: id.to_owned() };
    let status = aggregator.operator.get_experiment_status(name).await?.into_inner();
    Ok(Specification::try_from(&status.specification.context("no specification")?)?)
}

/// The machine-readable cells of a table's column.
async fn column(browser: &Browser, table: &str, place: usize) -> anyhow::Result<Vec<Value>> {
    let cells = format!(
        "[...document.querySelectorAll('#{table} tbody tr')].map((row) => \
         row.cells[{place}].querySelector('data')?.value ?? null)"
    );
    browser.value(&cells).await?.as_array().cloned().context("no cells")
}

pub(super) async fn shares_of_levels_and_categories_are_those_of_the_command_line()
-> anyhow::Result<()> {
    let browser = Browser::start().await?;
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let url = aggregator.process.operator_url.clone();
    for (number, (id, is_ranked)) in
        [("levels", true), ("categories", false), ("bits", false)].into_iter().enumerate()
    {
        let kind: &[&str] = match id {
            "levels" => PRIVATE[6],
            "categories" => PRIVATE[8],
            _ => &["bits"],
        };
        create(&url, kind).await?;
        let made = specification(&mut aggregator, id).await?;
        let day = aggregator.day(&made).await?;
        let number = u128::try_from(number)?;
        let request = match id {
            "bits" => upload(number, &made, day, &[(0, true), (1, false)])?,
            _ => all_symbols(number, &made, day)?,
        };
        let told = aggregator.device.submit_upload(request).await?.into_inner();
        assert_eq!(told.status(), UploadStatus::Accepted, "{told:?}");
        let path = format!("experiments/{id}");
        open_page(&browser, &url, &path, "running").await?;
        let expected = printed(&url, &["estimate", id]).await?;
        let reports =
            format!("document.getElementById('reports').value === '{}'", expected["reports"]);
        browser.until(&reports).await?;
        let arms = expected["arms"].as_array().context("no arms")?;
        let symbols: Vec<_> =
            arms.iter().filter_map(|arm| arm["symbols"].as_array()).flatten().collect();
        for (place, name) in [(2, "count"), (3, "frequency"), (4, "low"), (5, "high")] {
            let shown = column(&browser, "symbols", place).await?;
            assert_eq!(shown.len(), symbols.len(), "{id}");
            for (shown, symbol) in shown.iter().zip(&symbols) {
                let shown: f64 = shown.as_str().context("an empty cell")?.parse()?;
                let expected = symbol[name].as_f64().context("no number")?;
                assert!((shown - expected).abs() < 1e-12, "{name} of {symbol} is {shown}");
            }
        }
        let is_shown = |what: &str| format!("document.querySelector('{what}').checkVisibility()");
        assert_eq!(browser.value(&is_shown("#symbols")).await?, !symbols.is_empty(), "{id}");
        // Categories have no estimate, and only bits have a curve.
        let has_means = is_ranked || id == "bits";
        assert_eq!(browser.value(&is_shown("#arms-chart")).await?, has_means, "{id}");
        assert_eq!(browser.value(&is_shown("#arms th:nth-child(4)")).await?, has_means, "{id}");
        assert_eq!(browser.value(&is_shown("#curve-chart")).await?, id == "bits", "{id}");
        let summary = browser.value("document.getElementById('summary').textContent").await?;
        let says = summary.as_str().is_some_and(|text| text.contains("have no order"));
        assert_eq!(says, id == "categories", "{summary}");
        if id == "levels" {
            // e^2/(e^2 + 5), as for the channel.
            let truth = browser.value("document.getElementById('truth').value").await?;
            let truth: f64 = truth.as_str().context("no probability")?.parse()?;
            let exact = 2_f64.exp() / (2_f64.exp() + 5.0);
            assert!((truth - exact).abs() < 1e-6, "{truth} {exact}");
        }
        has_no_errors(&browser, &path).await?;
    }
    browser.quit().await?;
    aggregator.process.stop().await
}

pub(super) async fn what_learning_has_earned_is_said_beside_the_holdout() -> anyhow::Result<()> {
    let browser = Browser::start().await?;
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let url = aggregator.process.operator_url.clone();
    create(&url, &["held", "--holdout-group", "0.2"]).await?;
    let made = specification(&mut aggregator, "held").await?;
    open_page(&browser, &url, "experiments/held", "running").await?;
    let text = "document.getElementById('harm').innerText";
    let few = format!("{text}.includes('0 of them and of 0 others: too few to tell')");
    browser.until(&few).await?;
    // The first arm is liked by most; those held out have both equally often.
    for group in [(0, 900, 700), (1, 50, 40), (2, 100, 20), (3, 50, 10)] {
        fill(&mut aggregator, &made, group).await?;
    }
    for (width, height) in [(1280, 900), (390, 844)] {
        browser.resize(width, height).await?;
        open_page(&browser, &url, "experiments/held", "running").await?;
        let told = format!("{text}.includes('Learning has earned') && {text}.includes('20.0%')");
        browser.until(&told).await?;
        // Four cells with reports are two arms in the traffic of the day.
        browser.until("document.querySelectorAll('#tallies tbody tr').length === 2").await?;
        let wide = "document.documentElement.scrollWidth > window.innerWidth";
        anyhow::ensure!(browser.value(wide).await? == false, "{width}: wider than the window");
    }
    let printed = printed(&url, &["estimate", "held"]).await?;
    let held = &printed["holdout"];
    assert_eq!((&held["reports"], &held["reports_of_others"]), (&100.into(), &1000.into()));
    // Private means of .72 and .5; a bit says the truth with a contrast of tanh(1).
    let earned = held["earned"].as_f64().context("nothing earned")?;
    assert!((earned - 0.22 / 1_f64.tanh()).abs() < 1e-6, "{held}");
    assert!(held["low"].as_f64() < Some(earned) && Some(earned) < held["high"].as_f64());
    what_arms_cost_is_taken_from_it(&url, earned).await?;
    browser.quit().await?;
    aggregator.process.stop().await
}

/// The first arm, with 900 of the others' 1000 reports and half of those held out, becomes dear: by more
/// than its rewards are better.
async fn what_arms_cost_is_taken_from_it(url: &str, earned: f64) -> anyhow::Result<()> {
    let address = url.strip_prefix("http://").context("a URL")?;
    let probability = async || -> anyhow::Result<f64> {
        let shown = page::get(address, "/api/experiments/held", &[]).await?;
        let shown: Value = serde_json::from_str(&shown.body)?;
        shown["probability_best"][0].as_f64().context("no probability")
    };
    anyhow::ensure!(probability().await? > 0.99, "best without costs");
    printed(url, &["experiment", "record", "held", "--arm-cost", "red=0.9"]).await?;
    anyhow::ensure!(probability().await? < 0.01, "not best with costs");
    let held = &printed(url, &["estimate", "held"]).await?["holdout"];
    let net = held["earned"].as_f64().context("nothing earned")?;
    assert!((earned - net - 0.9 * 0.4).abs() < 1e-6, "{held}");
    assert!(net < 0.0 && held["low"].as_f64() < Some(net), "{held}");
    Ok(())
}
