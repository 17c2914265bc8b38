//! Records, the list's search, copies, lifts and saved files work on the pages.

use anyhow::Context as _;
use bandana_shared::wire::v1::{ExperimentName, UploadStatus};
use bandana_tests::browser::Browser;
use bandana_tests::harness::{Aggregator, three_arms, upload};
use serde_json::{Value, json};

use super::{PROGRAM, printed};

/// Widths of a desktop and of a phone, in pixels.
const WIDTHS: [u64; 2] = [1280, 390];

const CLICK: &str = "document.querySelector(arguments[0]).click()";

/// Types into a field.
const TYPE: &str = "const input = document.getElementById(arguments[0]); input.value = arguments[1];
    for (const name of ['input', 'change']) input.dispatchEvent(new Event(name, { bubbles: true }))";

async fn types(browser: &Browser, field: &str, text: &str) -> anyhow::Result<()> {
    browser.run(TYPE, &[field.into(), text.into()]).await?;
    Ok(())
}

/// Checks that a page is not wider than its window, and has told of nothing wrong.
async fn fits(browser: &Browser, page: &str) -> anyhow::Result<()> {
    let console = browser.console().await?;
    anyhow::ensure!(console.is_empty(), "{page}: {console:#?}");
    let over = "document.documentElement.scrollWidth - document.documentElement.clientWidth";
    let over = browser.value(over).await?;
    anyhow::ensure!(over == 0, "{page} is {over} pixels too wide");
    Ok(())
}

async fn written(url: &str, id: &str) -> anyhow::Result<Value> {
    Ok(printed(url, &["experiment", "show", id]).await?["record"].clone())
}

pub(super) async fn a_record_is_written_on_the_page_and_found_in_the_list() -> anyhow::Result<()> {
    let browser = Browser::start().await?;
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let url = aggregator.process.operator_url.clone();
    for id in ["colour", "size", "order"] {
        aggregator.create(three_arms(id)).await?;
    }
    printed(&url, &["experiment", "stop", "order", "--yes"]).await?;
    printed(&url, &["experiment", "archive", "order"]).await?;
    for (number, width) in WIDTHS.into_iter().enumerate() {
        browser.resize(width, 900).await?;
        browser.open("about:blank").await?;
        browser.open(&format!("{url}/#/experiments/colour")).await?;
        browser.until("document.getElementById('record-edit') !== null").await?;
        browser.run(CLICK, &["#record-edit summary".into()]).await?;
        browser.until("document.getElementById('record-arm').options.length === 4").await?;
        let title = format!("Mauve buttons {number}");
        for (field, text) in [
            ("record-title-text", &*title),
            ("record-hypothesis", "They sell.\n<b>Blue</b> does not."),
            ("record-owner", "anna"),
            ("record-tags", "web, checkout"),
            ("record-links", "https://example.org/7\n"),
            ("record-decision", "ship mauve"),
            ("record-reason", "It leads."),
            ("record-arm", "1"),
        ] {
            types(&browser, field, text).await?;
        }
        fits(&browser, "the form").await?;
        browser.run(CLICK, &["#record-form button[type=submit]".into()]).await?;
        let shown = "document.getElementById('record').textContent";
        browser.until(&format!("{shown}.includes({})", json!(title))).await?;
        let record = written(&url, "colour").await?;
        assert_eq!(
            (&record["title"], &record["tags"]),
            (&json!(title), &json!(["checkout", "web"]))
        );
        assert_eq!(record["decision"]["arm"], 1);
        let markup = "document.querySelectorAll('#record b').length";
        assert_eq!(browser.value(markup).await?, 0);
        let link = browser.value("document.querySelector('#record a').href").await?;
        assert_eq!(link, "https://example.org/7");
        fits(&browser, "the record").await?;

        browser.run("location.hash = '#/'", &[]).await?;
        browser.until("document.getElementById('search') !== null").await?;
        let rows = "[...document.querySelectorAll('#experiments tbody tr')].map((row) => row.dataset.experiment).join()";
        for (words, state, found) in [
            ("", "", "colour,size"),
            ("MAUVE", "", "colour"),
            ("anna check", "running", "colour"),
            ("mauve", "paused", ""),
            ("iz", "", "size"),
            ("", "archived", "order"),
        ] {
            types(&browser, "search", words).await?;
            types(&browser, "state-filter", state).await?;
            let is_found = format!("{rows} === {}", json!(found));
            browser.until(&is_found).await.with_context(|| format!("{words:?} {state:?}"))?;
        }
        fits(&browser, "the list").await?;
    }
    browser.quit().await?;
    aggregator.process.stop().await
}

pub(super) async fn arms_are_compared_with_the_control_and_files_are_those_of_the_command_line()
-> anyhow::Result<()> {
    let browser = Browser::start().await?;
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let url = aggregator.process.operator_url.clone();
    let made = aggregator.create(three_arms("colour")).await?;
    let reports: Vec<_> = (0..600).map(|n| (n % 3, n % 5 < 2 + n % 3)).collect();
    let day = aggregator.day(&made).await?;
    let answer = aggregator.device.submit_upload(upload(1, &made, day, &reports)?).await?;
    assert_eq!(answer.get_ref().status(), UploadStatus::Accepted);
    let name = ExperimentName { experiment_id: "colour".to_owned() };
    aggregator.operator.refresh_policy(name).await?;
    let cells = "[...document.querySelectorAll('#lifts tbody tr')].map((row) => \
                 [0, 2, 3, 4, 5].map((cell) => Number(row.cells[cell].querySelector('data')?.value)))";
    for width in WIDTHS {
        browser.resize(width, 900).await?;
        browser.open("about:blank").await?;
        browser.open(&format!("{url}/#/experiments/colour")).await?;
        for control in ["0", "2"] {
            browser.until("document.querySelectorAll('#lifts tbody tr').length === 2").await?;
            types(&browser, "control", control).await?;
            let caption = format!(
                "document.querySelector('#lifts caption').textContent.includes({})",
                json!(format!("over {}", made.arms()[control.parse::<usize>()?].label()))
            );
            browser.until(&caption).await?;
            let told = printed(&url, &["estimate", "colour", "--control", control]).await?;
            assert_eq!(told["control_arm"].to_string(), control);
            let shown = browser.value(cells).await?;
            for (row, lift) in told["lifts"].as_array().context("no lifts")?.iter().enumerate() {
                for (cell, name) in
                    ["arm", "difference", "low", "high", "relative"].iter().enumerate()
                {
                    let pair = shown[row][cell].as_f64().zip(lift[*name].as_f64());
                    let (shown, told) = pair.with_context(|| format!("{name}: {lift}, {shown}"))?;
                    assert!((shown - told).abs() < 1e-12, "{name} of {lift} is {shown}");
                }
                let (low, high) = (lift["low"].as_f64(), lift["high"].as_f64());
                assert!(low < lift["difference"].as_f64() && lift["difference"].as_f64() < high);
            }
        }
        // Rates are in percent, and differences of them in points.
        let rate =
            browser.value("document.querySelector('#arms tbody td:nth-child(4)').textContent");
        assert!(rate.await?.as_str().is_some_and(|text| text.ends_with('%')));
        let lift =
            browser.value("document.querySelector('#lifts tbody td:nth-child(3)').textContent");
        assert!(lift.await?.as_str().is_some_and(|text| text.ends_with(" points")));
        fits(&browser, "the page").await?;
    }

    let read = "return fetch(arguments[0]).then((answer) => answer.text())";
    for what in ["estimates", "tallies"] {
        for format in ["csv", "json"] {
            let path = format!("/api/experiments/colour/export?what={what}&format={format}");
            let saved = browser.run(read, &[path.into()]).await?;
            let words = ["experiment", "export", "colour", "--what", what, "--format", format];
            assert_eq!(saved, json!(super::written(&url, &words).await?), "{what} {format}");
        }
    }
    browser.run(CLICK, &["#export-tallies-csv".into()]).await?;
    fits(&browser, "the export").await?;
    browser.quit().await?;
    aggregator.process.stop().await
}

pub(super) async fn a_copy_begins_with_the_settings_of_the_first() -> anyhow::Result<()> {
    let browser = Browser::start().await?;
    let aggregator = Aggregator::start(PROGRAM).await?;
    let url = &aggregator.process.operator_url;
    let create = "experiment create first --epsilon 2 --arm red --arm green --reward-kind bounded \
                  --reward-high 5 --attribution-window-seconds 600 --learner top-two \
                  --holdout-share 0.1 --redraw";
    let first = printed(url, &create.split_whitespace().collect::<Vec<_>>()).await?;
    printed(url, &["experiment", "record", "first", "--title", "The first", "--tag", "web"])
        .await?;
    for (number, width) in WIDTHS.into_iter().enumerate() {
        browser.resize(width, 900).await?;
        browser.open("about:blank").await?;
        browser.open(&format!("{url}/#/experiments/first")).await?;
        browser.until("document.getElementById('copy') !== null").await?;
        browser.run(CLICK, &["#copy".into()]).await?;
        browser.until("document.getElementById('copied') !== null").await?;
        // The four questions are open, and nothing else is.
        let open = "[...document.querySelectorAll('#create > fieldset')].length \
                    + (document.getElementById('more').open ? 10 : 0)";
        assert_eq!(browser.value(open).await?, 4);
        browser.until("document.querySelectorAll('.preset .users').length === 4").await?;
        assert_eq!(
            browser.value("document.querySelector('.preset input:checked').value").await?,
            "2"
        );
        fits(&browser, "the form").await?;
        let id = format!("copy-{number}");
        types(&browser, "experiment_id", &id).await?;
        browser.run(CLICK, &["#create button[type=submit]".into()]).await?;
        browser.until(&format!("location.hash === '#/experiments/{id}'")).await?;
        let copy = printed(url, &["experiment", "show", &id]).await?;
        for field in
            ["epsilon", "learner", "rewards", "arms", "holdout_share", "sticky", "mechanism"]
        {
            assert_eq!(copy[field], first[field], "{field}");
        }
        assert_eq!(
            (&copy["record"]["title"], &copy["record"]["tags"]),
            (&json!("The first"), &json!(["web"]))
        );
    }
    browser.quit().await?;
    aggregator.process.stop().await
}

pub(super) async fn presets_take_the_users_that_a_plan_says() -> anyhow::Result<()> {
    let browser = Browser::start().await?;
    let aggregator = Aggregator::start(PROGRAM).await?;
    let url = &aggregator.process.operator_url;
    for width in WIDTHS {
        browser.resize(width, 900).await?;
        browser.open("about:blank").await?;
        browser.open(&format!("{url}/#/new")).await?;
        browser.until("document.querySelectorAll('.preset .users').length === 4").await?;
        types(&browser, "arms", "a\nb\nc").await?;
        types(&browser, "gap", "10").await?;
        browser.run(CLICK, &["#preset-0\\.5".into()]).await?;
        assert_eq!(browser.value("document.getElementById('epsilon').value").await?, "0.5");
        let plan = ["plan", "--arms", "3", "--gap", "0.1", "--epsilon", "0.5"];
        let users = printed(url, &plan).await?["users"].clone();
        let path = "/api/plan?arms=3&gap=0.1";
        let read = "return fetch(arguments[0]).then((answer) => answer.json())";
        let presets = browser.run(read, &[path.into()]).await?;
        assert_eq!(presets[0]["users"], users);
        let about = format!("Number(Number({users}).toPrecision(2)).toLocaleString('en')");
        let shown = "document.querySelector('.preset .users').textContent";
        browser.until(&format!("{shown} === `About ${{{about}}} users.`")).await?;
        fits(&browser, "the form").await?;
    }
    browser.quit().await?;
    aggregator.process.stop().await
}
