//! Experiments whose users disclose their rewards: pages show released statistics only.

use std::collections::BTreeSet;

use anyhow::Context as _;
use bandana_tests::browser::{Browser, keys};
use bandana_tests::harness::{Aggregator, three_arms};
use bandana_tests::page;
use bandana_tests::trusted_app::{open, play, users};
use serde_json::{Value, json};

use super::{PROGRAM, actions, printed};

fn address(aggregator: &Aggregator) -> String {
    aggregator.process.operator_url.trim_start_matches("http://").to_owned()
}

async fn post(address: &str, path: &str, body: &Value) -> anyhow::Result<(u16, Value)> {
    let body = body.to_string();
    let length = body.len().to_string();
    let headers = [
        ("content-type", "application/json"),
        ("x-bandana-dashboard", "1"),
        ("content-length", &length),
    ];
    let page = page::send(address, "POST", path, &headers, &body).await?;
    Ok((page.status, serde_json::from_str(&page.body).unwrap_or_default()))
}

async fn get(address: &str, path: &str) -> anyhow::Result<Value> {
    Ok(serde_json::from_str(&page::get(address, path, &[]).await?.body)?)
}

fn headlines() -> Value {
    json!({
        "experiment_id": "headlines", "rewards_are_disclosed": true, "rho": 0.5,
        "algorithm": "adac-ucb", "arms": 3,
    })
}

/// Names of all fields, at every depth.
fn fields(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                into.insert(name.clone());
                fields(value, into);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| fields(value, into)),
        _ => {}
    }
}

pub(super) async fn nothing_is_created_without_a_declaration_or_beside_the_rules()
-> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    aggregator.create(three_arms("colours")).await?;
    let address = address(&aggregator);
    let undeclared = json!({
        "experiment_id": "headlines", "rho": 0.5, "algorithm": "adac-ucb", "arms": 3,
    });
    let mut named = headlines();
    named["experiment_id"] = json!("colours");
    let mut priceless = headlines();
    priceless["rho"] = json!(0);
    for (path, body, status, said) in [
        ("/api/trusted", &undeclared, 400, "reach this server"),
        ("/api/trusted", &named, 409, "colours"),
        ("/api/trusted", &priceless, 400, "rho"),
        ("/api/trusted/nobody/pause", &json!({}), 404, "nobody"),
        ("/api/trusted/colours/stop", &json!({}), 404, "colours"),
    ] {
        let (answered, answer) = post(&address, path, body).await?;
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(answered == status && message.contains(said), "{path}: {answered} {answer}");
    }
    assert_eq!(get(&address, "/api/trusted").await?["experiments"], json!([]));
    aggregator.process.stop().await
}

pub(super) async fn no_answer_has_more_than_what_was_released() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    aggregator.create(three_arms("colours")).await?;
    let address = address(&aggregator);
    let (status, created) = post(&address, "/api/trusted", &headlines()).await?;
    assert_eq!((status, &created["state"]), (201, &json!("running")), "{created}");
    let (status, _) = post(&address, "/api/trusted/headlines/start", &json!({})).await?;
    assert_eq!(status, 404);
    // Ordinary and trusted experiments are in separate lists.
    let trusted = get(&address, "/api/trusted").await?;
    assert_eq!(trusted["experiments"], json!([created]));
    let ordinary = get(&address, "/api/experiments").await?;
    assert_eq!(ordinary["experiments"].as_array().map(Vec::len), Some(1));
    assert_eq!(page::get(&address, "/api/experiments/headlines", &[]).await?.status, 404);

    play(&open(&aggregator.process.device_url, "headlines").await?, 50).await?;
    // A release follows the answers with some delay, so the last one is reached once nothing
    // changes.
    let moment = loop {
        let url = &aggregator.process.operator_url;
        let before = printed(url, &["trusted", "released", "headlines"]).await?;
        let moment = get(&address, "/api/trusted/headlines").await?;
        let shown = printed(url, &["trusted", "show", "headlines"]).await?;
        if shown["releases"] == before["releases"] {
            assert_eq!((&moment["released"], &moment["experiment"]), (&before, &shown));
            break moment;
        }
    };
    let mut found = BTreeSet::new();
    fields(&moment, &mut found);
    fields(&get(&address, "/api/trusted").await?, &mut found);
    let allowed = [
        "actions",
        "algorithm",
        "archived",
        "arm",
        "arms",
        "beta",
        "delta",
        "dimension",
        "epsilon",
        "experiment",
        "experiment_id",
        "experiments",
        "mean",
        "means",
        "next_page_token",
        "noise_deviation",
        "one_person",
        "parameter",
        "released",
        "releases",
        "reward_high",
        "reward_low",
        "rewards",
        "rewards_are_disclosed",
        "rho",
        "state",
    ];
    assert_eq!(found, allowed.map(str::to_owned).into());
    // Counted and released rewards differ: some rewards are in no released mean yet.
    let behind: u64 = moment["released"]["means"]
        .as_array()
        .context("no means")?
        .iter()
        .filter_map(|mean| mean["rewards"].as_u64())
        .sum();
    assert!(moment["released"]["rewards"] == 50 && behind < 50, "{moment}");
    aggregator.process.stop().await
}

async fn create(browser: &Browser, url: &str) -> anyhow::Result<()> {
    browser.open(url).await?;
    browser.until("document.querySelector('a[href=\"#/new-trusted\"]')").await?;
    let mark = "document.querySelector('#trusted-title + .chip').textContent";
    assert_eq!(browser.value(mark).await?, "trusted: rewards reach the server");
    browser.run("document.querySelector('a[href=\"#/new-trusted\"]').click()", &[]).await?;
    browser.until("document.activeElement.textContent === 'New trusted experiment'").await?;
    let fill = "document.getElementById('experiment_id').value = 'headlines';
        document.getElementById('arms').value = '3';
        document.getElementById('rho').value = '0.5';";
    browser.run(fill, &[]).await?;
    // Without the declaration the form is incomplete.
    let submit = "document.querySelector('#create-trusted button[type=submit]').click()";
    browser.run(submit, &[]).await?;
    let invalid = "document.querySelector('#create-trusted :invalid:not(fieldset)').id";
    assert_eq!(browser.value(invalid).await?, "rewards_are_disclosed");
    assert_eq!(browser.value("location.hash").await?, "#/new-trusted");
    assert_eq!(printed(url, &["trusted", "list"]).await?["experiments"], json!([]));
    browser.run("document.getElementById('rewards_are_disclosed').focus()", &[]).await?;
    browser.press(" ").await?;
    browser.run("document.getElementById('experiment_id').focus()", &[]).await?;
    browser.press(keys::ENTER).await?;
    browser
        .until("document.activeElement.matches('h1') && document.title === 'headlines – Bandana'")
        .await
}

/// Compares table and chart with the output of `bandana trusted released`.
async fn released_is_shown(browser: &Browser, url: &str) -> anyhow::Result<()> {
    let expected = printed(url, &["trusted", "released", "headlines"]).await?;
    let is_shown =
        format!("document.getElementById('releases').value === '{}'", expected["releases"]);
    browser.until(&is_shown).await?;
    let cells = "[...document.querySelectorAll('#means tbody tr')].map((row) => \
                 [...row.cells].slice(0, 4).map((cell) => cell.querySelector('data')?.value ?? null))";
    let shown = browser.value(cells).await?;
    // The chart is drawn once it has a width.
    browser.until("document.getElementById('means-chart').plot").await?;
    let plotted = browser.value("document.getElementById('means-chart').plot.data").await?;
    let near = |shown: &Value, expected: Option<f64>| {
        let shown = shown.as_str().and_then(|text| text.parse().ok()).or(shown.as_f64());
        shown.zip(expected).map_or(shown == expected, |(s, e): (f64, f64)| (s - e).abs() <= 1e-12)
    };
    for (arm, mean) in expected["means"].as_array().context("no means")?.iter().enumerate() {
        for (cell, name) in ["arm", "mean", "rewards", "noise_deviation"].iter().enumerate() {
            assert!(near(&shown[arm][cell], mean[*name].as_f64()), "{name}: {shown} {expected}");
        }
        let (value, noise) = (mean["mean"].as_f64(), mean["noise_deviation"].as_f64());
        let (value, noise) = value.zip(noise).context("nothing was released")?;
        assert!(noise > 0.0, "{mean}");
        for (line, expected) in [(1, value), (2, value - noise), (3, value + noise)] {
            assert!(near(&plotted[line][arm], Some(expected)), "{plotted} {mean}");
        }
    }
    let label = "document.getElementById('means-chart').getAttribute('aria-label')";
    let label = browser.value(label).await?;
    assert!(label.as_str().is_some_and(|label| label.contains("arm 2: ")), "{label}");
    Ok(())
}

pub(super) async fn an_experiment_is_declared_shown_as_it_changes_paused_and_stopped()
-> anyhow::Result<()> {
    let browser = Browser::start().await?;
    let aggregator = Aggregator::start(PROGRAM).await?;
    let url = &aggregator.process.operator_url;
    create(&browser, url).await?;
    let made = printed(url, &["trusted", "show", "headlines"]).await?;
    assert_eq!((&made["rho"], &made["algorithm"]), (&json!(0.5), &json!("adac-ucb")));
    assert_eq!(browser.value("document.getElementById('rho').value").await?, "0.5");
    assert_eq!(
        browser.value("document.getElementById('means-chart').checkVisibility()").await?,
        false
    );
    let app = open(&aggregator.process.device_url, "headlines").await?;
    play(&app, 60).await?;
    released_is_shown(&browser, url).await?;
    play(&app, 60).await?;
    released_is_shown(&browser, url).await?;
    let releases = printed(url, &["trusted", "released", "headlines"]).await?["releases"].clone();
    let told = "document.getElementById('announcement').textContent";
    browser.until(&format!("{told}.startsWith('{releases} releases, ')")).await?;

    let is_state =
        |state: &str| format!("document.getElementById('state').textContent === '{state}'");
    for (button, state, next) in [("pause", "paused", "resume"), ("resume", "running", "pause")] {
        browser.run(&format!("document.getElementById('{button}').focus()"), &[]).await?;
        browser.press(keys::ENTER).await?;
        browser
            .until(&format!("{} && document.activeElement.id === '{next}'", is_state(state)))
            .await?;
        assert_eq!(printed(url, &["trusted", "show", "headlines"]).await?["state"], state);
    }
    browser.run("document.getElementById('stop').click()", &[]).await?;
    let question = browser.value("document.getElementById('stop-question').textContent").await?;
    assert!(
        question.as_str().is_some_and(|text| text.contains("the server erases rewards")),
        "{question}"
    );
    browser.run("document.getElementById('stop-confirmed').click()", &[]).await?;
    browser.until(&is_state("stopped")).await?;
    let done = ["stop", "resume", "pause", "create"];
    assert_eq!(actions(url, "headlines").await?, done);
    let shown = "[...document.querySelectorAll('#changes tbody tr')].map((row) => row.cells[2].textContent).join()";
    browser.until(&format!("{shown} === {}", json!(done.join(",")))).await?;

    let nameless = "[...document.querySelectorAll('table')].filter((e) => !e.caption).length \
        + [...document.querySelectorAll('.chart')].filter((e) => !e.getAttribute('aria-label')).length \
        + [...document.querySelectorAll('section')].filter((e) => !document.getElementById(e.getAttribute('aria-labelledby'))).length \
        + Math.abs(document.querySelectorAll('h1').length - 1)";
    assert_eq!(browser.value(nameless).await?, 0);
    for hash in ["#/trusted/headlines", "#/new-trusted", "#/"] {
        browser.run("location.hash = arguments[0]", &[hash.into()]).await?;
        browser.until("document.querySelector('main section')").await?;
        browser.resize(360, 740).await?;
        browser.until("document.documentElement.scrollWidth <= 360").await?;
    }
    let row = "[...document.querySelector('#trusted tbody tr').cells].map((cell) => cell.textContent).slice(0, 3).join()";
    browser.until(&format!("{row} === 'headlines,stopped,120'")).await?;
    assert_eq!(browser.console().await?, Vec::<String>::new());
    browser.quit().await?;
    aggregator.process.stop().await
}

pub(super) async fn the_form_has_what_each_algorithm_needs() -> anyhow::Result<()> {
    let browser = Browser::start().await?;
    let aggregator = Aggregator::start(PROGRAM).await?;
    let url = &aggregator.process.operator_url;
    browser.open(&format!("{url}/#/new-trusted")).await?;
    browser.until("document.getElementById('create-trusted')").await?;
    let nameless = "[...document.querySelectorAll('input, select, textarea')].filter((e) => !e.labels.length).length";
    assert_eq!(browser.value(nameless).await?, 0);
    let fill = "const [algorithm, values] = arguments;
        const choice = document.getElementById('algorithm');
        choice.value = algorithm;
        choice.dispatchEvent(new Event('change', { bubbles: true }));
        for (const [id, value] of Object.entries(values)) document.getElementById(id).value = value;
        document.getElementById('rewards_are_disclosed').checked = true;
        document.querySelector('#create-trusted button[type=submit]').click()";
    let fields = json!({"experiment_id": "fixed", "actions": "1, 0\n0 1\n", "delta": "0.1"});
    let wrong = json!({"experiment_id": "fixed", "actions": "1, 0\n0, one\n"});
    browser.run(fill, &["adac-gope".into(), wrong]).await?;
    browser.until("document.querySelector('[role=alert]')?.textContent.includes('one')").await?;
    browser.run(fill, &["adac-gope".into(), fields]).await?;
    browser.until("document.title === 'fixed – Bandana'").await?;
    let made = printed(url, &["trusted", "show", "fixed"]).await?;
    assert_eq!(made["actions"], json!([[1.0, 0.0], [0.0, 1.0]]));
    let shown =
        "document.querySelector('#means tbody tr:last-child').cells[4].textContent === '0, 1'";
    browser.until(shown).await?;

    browser.run("location.hash = '#/new-trusted'", &[]).await?;
    browser.until("document.getElementById('create-trusted')").await?;
    let fields = json!({"experiment_id": "changing", "dimension": "2"});
    browser.run(fill, &["adac-oful".into(), fields]).await?;
    browser.until("document.title === 'changing – Bandana'").await?;
    let app = open(&aggregator.process.device_url, "changing").await?;
    let reward = bandana_client::trusted::DisclosedReward::new(1.0)?;
    app.disclose(&app.disclosure_of(vec![0.6, 0.8], reward)?, &users()?).await?;
    let rows = "document.querySelectorAll('#parameter tbody tr').length === 2 \
                && !document.getElementById('means').checkVisibility()";
    browser.until(rows).await?;
    browser.quit().await?;
    aggregator.process.stop().await
}
