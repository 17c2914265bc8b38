//! Everything works by keyboard, and is announced to screen readers.

use anyhow::Context as _;
use bandana_tests::browser::{Browser, keys};
use bandana_tests::harness::Aggregator;
use serde_json::json;

use super::{PROGRAM, actions, printed};

/// Presses Tab until the selected element has the focus. Every element on the way must show its
/// focus, except the heading that is focused when a new page opens.
async fn tab_to(browser: &Browser, selector: &str) -> anyhow::Result<()> {
    for _ in 0..60 {
        browser.press(keys::TAB).await?;
        let seen = "(() => { const style = getComputedStyle(document.activeElement);
            return document.activeElement === document.body || document.activeElement.tabIndex < 0
                || (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2) })()";
        assert_eq!(browser.value(seen).await?, true, "the focus is not seen");
        let found = format!("document.activeElement.matches({})", json!(selector));
        if browser.value(&found).await? == true {
            return Ok(());
        }
    }
    anyhow::bail!("Tab does not come to {selector}")
}

/// Creates an experiment, after an error that the server explains.
async fn create(browser: &Browser) -> anyhow::Result<()> {
    browser.press(keys::TAB).await?;
    let skip = "document.activeElement.id === 'skip' && document.activeElement.getBoundingClientRect().top >= 0";
    browser.until(skip).await?;
    tab_to(browser, "nav a[href='#/new']").await?;
    browser.press(keys::ENTER).await?;
    browser.until("document.activeElement.textContent === 'New experiment'").await?;
    tab_to(browser, "#experiment_id").await?;
    browser.press("checkout").await?;
    tab_to(browser, "#arms").await?;
    browser.press(&["red", keys::ENTER, "red"].concat()).await?;
    tab_to(browser, "#epsilon").await?;
    browser.press(keys::ENTER).await?;
    browser.until("document.querySelector('[role=alert]').textContent.includes('red')").await?;
    assert_eq!(browser.value("location.hash").await?, "#/new");
    // Focus wraps around to the beginning of the page.
    tab_to(browser, "#arms").await?;
    browser.press(&[keys::END, &keys::BACKSPACE.repeat(3), "green"].concat()).await?;
    tab_to(browser, "button[type=submit]").await?;
    browser.press(keys::ENTER).await?;
    browser
        .until("document.activeElement.matches('h1') && document.title === 'checkout – Bandana'")
        .await?;
    browser.until("document.getElementById('state').textContent === 'running'").await
}

/// Stops the experiment, after one cancelled attempt.
async fn stop(browser: &Browser) -> anyhow::Result<()> {
    let is_asked = "document.getElementById('stop-question').open";
    tab_to(browser, "#stop").await?;
    browser.press(keys::ENTER).await?;
    browser.until(&format!("{is_asked} && document.activeElement.closest('dialog')")).await?;
    browser.press(keys::ESCAPE).await?;
    browser.until(&format!("!{is_asked} && document.activeElement.id === 'stop'")).await?;
    browser.press(keys::ENTER).await?;
    browser.until(is_asked).await?;
    tab_to(browser, "#stop-confirmed").await?;
    browser.press(keys::ENTER).await?;
    browser.until("document.getElementById('state').textContent === 'stopped'").await
}

pub(super) async fn an_experiment_is_created_paused_resumed_and_stopped_by_keyboard()
-> anyhow::Result<()> {
    let browser = Browser::start().await?;
    let aggregator = Aggregator::start(PROGRAM).await?;
    let url = &aggregator.process.operator_url;
    browser.open(url).await?;
    browser.until("document.querySelector('main h1').textContent === 'Experiments'").await?;
    assert_eq!(browser.value("document.querySelectorAll('tbody tr').length").await?, 0);
    create(&browser).await?;
    let made = printed(url, &["experiment", "show", "checkout"]).await?;
    assert_eq!((&made["state"], &made["epsilon"]), (&json!("running"), &json!(1.0)));
    assert_eq!(made["attribution_window_seconds"], 3600);
    let labels: Vec<_> =
        made["arms"].as_array().context("no arms")?.iter().map(|arm| &arm["label"]).collect();
    assert_eq!(labels, ["red", "green"]);

    tab_to(&browser, "#pause").await?;
    browser.press(keys::ENTER).await?;
    // The button is gone; the focus is on the button that replaced it.
    let at = "document.getElementById('state').textContent === 'paused' \
              && document.activeElement.id === 'resume'";
    browser.until(at).await?;
    let announced = "document.getElementById('announcement').textContent";
    assert_eq!(browser.value(announced).await?, "checkout is paused");
    assert_eq!(printed(url, &["experiment", "show", "checkout"]).await?["state"], "paused");
    browser.press(keys::ENTER).await?;
    browser.until("document.getElementById('state').textContent === 'running'").await?;
    browser.until("document.activeElement.id === 'pause'").await?;
    stop(&browser).await?;
    let told = ["stop", "resume", "pause", "create"];
    assert_eq!(actions(url, "checkout").await?, told);
    let shown = "[...document.querySelectorAll('#changes tbody tr')].map((row) => \
                 row.cells[2].textContent).join()";
    browser.until(&format!("{shown} === {}", json!(told.join(",")))).await?;
    let left = "[...document.querySelectorAll('[role=group] button')].filter((b) => !b.hidden)\
                .map((b) => b.id).join()";
    assert_eq!(browser.value(left).await?, "archive,delete");

    tab_to(&browser, "nav a[href='#/']").await?;
    browser.press(keys::ENTER).await?;
    browser.until("document.querySelector('#experiments .chip').textContent === 'stopped'").await?;
    // The console contains only the refusal of the experiment, as for every refusal.
    let console = browser.console().await?;
    assert!(console.len() == 1 && console[0].contains("status of 400"), "{console:#?}");
    browser.quit().await?;
    aggregator.process.stop().await
}
