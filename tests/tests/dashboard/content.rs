//! Pages show the server's data.

use std::path::Path;

use anyhow::Context as _;
use bandana_learners::{Learner, LearnerInput};
use bandana_shared::specification::Specification;
use bandana_shared::tally::Tally;
use bandana_shared::wire::v1::{
    self, AddArmRequest, CreateExperimentRequest, ExperimentName, UploadStatus,
};
use bandana_tests::browser::Browser;
use bandana_tests::harness::{Aggregator, three_arms, upload};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use super::{PROGRAM, printed};

/// The variable with the path of the README's picture, if that is to be written.
const PICTURE: &str = "BANDANA_DASHBOARD_PICTURE";

/// The variable with the folder of the manual's pictures, if those are to be written.
const PICTURES: &str = "BANDANA_DASHBOARD_PICTURES";

/// The manual's pictures: name, width and height in pixels, and the element that they begin with.
const MANUAL: [(&str, u64, u64, &str); 4] = [
    ("arms-desktop.png", 1280, 800, "lead"),
    ("arms-phone.png", 390, 1000, "lead"),
    ("over-time-desktop.png", 1280, 480, "history"),
    ("over-time-phone.png", 390, 480, "history"),
];

/// Most bytes of a picture.
const PICTURE_MAX: usize = 150_000;

const LABELS: [&str; 4] = ["Buy now", "Add to cart", "Get it", "Order"];

/// A label is untrusted text.
const HOSTILE: &str = "<img src=x onerror=alert(1)>";

/// Reaction rate of the users of each arm.
const MEANS: [f64; 4] = [0.42, 0.56, 0.36, 0.48];

/// Number of users on each of the last seven days.
const USERS: [usize; 7] = [1900, 2400, 2200, 2800, 3100, 2900, 1700];

/// A new experiment.
async fn create(aggregator: &mut Aggregator) -> anyhow::Result<Specification> {
    let arm = |label: &&str| v1::Arm { label: (*label).to_owned(), retired: false };
    let arms = LABELS.iter().map(arm).collect();
    let request = CreateExperimentRequest {
        specification: Some(v1::Specification { arms, ..three_arms("checkout-button") }),
        learner: v1::Learner::LdpTs.into(),
        floor_weight: 0.04,
        ..Default::default()
    };
    let made = aggregator.operator.create_experiment(request).await?.into_inner().specification;
    Ok(Specification::try_from(&made.context("an answer without specification")?)?)
}

/// Simulates a week of users, who get arms from the policy of their day.
async fn a_week(aggregator: &mut Aggregator, made: &Specification) -> anyhow::Result<[u64; 7]> {
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let (low, contrast) = (made.channel().lowest_private_mean(), made.channel().contrast());
    for (back, (number, users)) in (0..7).rev().zip((1..).zip(USERS)) {
        let shares: Vec<f64> =
            aggregator.estimates(made).await?.arms.iter().map(|arm| arm.weight).collect();
        let mut report = || {
            let mut place: f64 = random.random();
            let arm = shares.iter().position(|share| {
                place -= share;
                place < 0.0
            });
            let arm = arm.unwrap_or_default();
            (arm, random.random::<f64>() < low + contrast * MEANS[arm])
        };
        let reports: Vec<_> = std::iter::repeat_with(&mut report).take(users).collect();
        send(aggregator, made, number, back, &reports).await?;
    }
    Ok(USERS.map(|users| users as u64))
}

/// Sends reports of an earlier day, and has a policy made from them.
async fn send(
    aggregator: &mut Aggregator,
    made: &Specification,
    number: u128,
    days_ago: u32,
    reports: &[(usize, bool)],
) -> anyhow::Result<()> {
    let day = aggregator.day(made).await?.back(days_ago);
    let answer = aggregator.device.submit_upload(upload(number, made, day, reports)?).await?;
    anyhow::ensure!(answer.get_ref().status() == UploadStatus::Accepted, "{answer:?}");
    let name = ExperimentName { experiment_id: made.experiment_id().to_string() };
    aggregator.operator.refresh_policy(name).await?;
    Ok(())
}

/// Compares the table and the chart of arms with the output of `bandana estimate`.
async fn arms_are_right(
    browser: &Browser,
    url: &str,
    made: &Specification,
    flags: &[&str],
) -> anyhow::Result<()> {
    let expected = printed(url, &[&["estimate", "checkout-button"], flags].concat()).await?;
    let arms = expected["arms"].as_array().context("no arms")?;
    browser
        .until(&format!(
            "document.getElementById('reports').value === '{}' \
             && document.querySelectorAll('#arms tbody tr').length === {}",
            expected["reports"],
            arms.len()
        ))
        .await?;
    let cells = "[...document.querySelectorAll('#arms tbody tr')].map((row) => \
                 [...row.cells].map((cell) => cell.querySelector('data')?.value \
                 ?? cell.querySelector('bdi')?.textContent ?? cell.textContent))";
    let shown = browser.value(cells).await?;
    // JSON parsers may differ in the last digit.
    let near = |cell: &Value, expected: Option<f64>| {
        let shown = cell.as_str().and_then(|text| text.parse::<f64>().ok()).or(cell.as_f64());
        shown.zip(expected).map_or(shown == expected, |(s, e)| (s - e).abs() <= 1e-15)
    };
    let tallies: Vec<Tally> = arms
        .iter()
        .map(|arm| {
            let (reports, ones) = arm["reports"].as_u64().zip(arm["ones"].as_u64())?;
            Tally::new(reports, ones).ok()
        })
        .collect::<Option<_>>()
        .context("no tallies")?;
    let active = vec![true; arms.len()];
    let best = Learner::LdpTs.weights(&LearnerInput::new(&tallies, &active, made.channel()))?;
    for (place, arm) in arms.iter().enumerate() {
        let row = &shown[place];
        assert_eq!(row[1].as_str(), arm["label"].as_str());
        let names =
            ["arm", "", "reports", "estimate", "low", "high", "weight", "manipulation_shift"];
        for (cell, name) in names.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
            assert!(near(&row[cell], arm[*name].as_f64()), "{name} of {row}: {arm}");
        }
        assert!(near(&row[8], Some(best.share(place))), "{row}");
    }
    let plotted = browser.value("document.getElementById('arms-chart').plot.data").await?;
    for (line, name) in ["arm", "estimate", "low", "high"].iter().enumerate() {
        for (place, arm) in arms.iter().enumerate() {
            assert!(near(&plotted[line][place], arm[*name].as_f64()), "{name} of {plotted}");
        }
    }
    Ok(())
}

/// Waits until a chart has pixels of this colour, which shows that it is drawn. A copy is read,
/// because Chromium warns about repeated reads of a canvas.
async fn drawn(browser: &Browser, chart: &str, rgb: [u8; 3]) -> anyhow::Result<()> {
    let count = format!(
        "(() => {{ const canvas = document.querySelector('#{chart} canvas');
            const copy = Object.assign(document.createElement('canvas'), {{ width: canvas.width, height: canvas.height }});
            const dots_of = copy.getContext('2d', {{ willReadFrequently: true }});
            dots_of.drawImage(canvas, 0, 0);
            const {{ data }} = dots_of.getImageData(0, 0, copy.width, copy.height);
            let dots = 0;
            for (let i = 0; i < data.length; i += 4)
                if (data[i] === {} && data[i + 1] === {} && data[i + 2] === {} && data[i + 3] === 255) dots++;
            return dots }})() > 40",
        rgb[0], rgb[1], rgb[2]
    );
    browser.until(&count).await.with_context(|| format!("{chart} lacks {rgb:?}"))
}

async fn traffic_is_right(browser: &Browser, days: &[u64]) -> anyhow::Result<()> {
    let first = days[0];
    browser
        .until(&format!(
            "document.getElementById('traffic-chart').plot.data[1].at(-1) === {}",
            days[days.len() - 1]
        ))
        .await?;
    let tops = browser.value("document.getElementById('traffic-chart').plot.data[1]").await?;
    let tops: Vec<_> =
        tops.as_array().context("no bars")?.iter().filter_map(Value::as_u64).collect();
    assert_eq!((tops[0], &*tops), (first, days), "the highest of the stacks are all reports");
    let sum = "[...document.querySelectorAll('#tallies tbody tr')].reduce((sum, row) => \
               sum + Number(row.cells[2].querySelector('data').value), 0)";
    assert_eq!(browser.value(sum).await?, days.iter().sum::<u64>());
    Ok(())
}

async fn privacy_is_told(browser: &Browser, url: &str) -> anyhow::Result<()> {
    let shown = printed(url, &["experiment", "show", "checkout-button"]).await?;
    let value = async |id: &str| -> anyhow::Result<f64> {
        let value = browser.value(&format!("document.getElementById('{id}').value")).await?;
        Ok(value.as_str().context("no number")?.parse()?)
    };
    assert_eq!(Some(value("epsilon").await?), shown["epsilon"].as_f64());
    assert_eq!(Some(value("certified-epsilon").await?), shown["certified_epsilon"].as_f64());
    let gain = printed(url, &["estimate", "checkout-button"]).await?["manipulation_gain"].clone();
    assert_eq!(Some(value("gain").await?), gain.as_f64());
    let curve = browser.value("document.getElementById('curve-chart').plot.data").await?;
    let ends = curve[1][0].as_f64().zip(curve[1][1].as_f64());
    let (low, high) = ends.context("no curve")?;
    assert!(((high / low).ln() - 1.0).abs() < 1e-12, "the curve keeps epsilon: {curve}");
    Ok(())
}

/// Writes the manual's pictures: what a decision needs, from who leads to the days.
async fn draw_for_the_manual(browser: &Browser, folder: &Path) -> anyhow::Result<()> {
    for (name, width, height, first) in MANUAL {
        browser.resize(width, height).await?;
        for chart in ["arms-chart", "over-time-chart"] {
            let is_redrawn = format!(
                "document.getElementById('{chart}').plot?.width \
                 === Math.floor(document.getElementById('{chart}').clientWidth)"
            );
            browser.until(&is_redrawn).await?;
            drawn(browser, chart, [0x00, 0x72, 0xb2]).await?;
        }
        let scroll = "document.getElementById(arguments[0]).scrollIntoView()";
        browser.run(scroll, &[first.into()]).await?;
        let picture = browser.screenshot().await?;
        anyhow::ensure!(picture.len() < PICTURE_MAX, "{name} has {} bytes", picture.len());
        std::fs::write(folder.join(name), picture)?;
    }
    Ok(())
}

/// Checks the accessible names for screen readers.
async fn everything_has_a_name(browser: &Browser) -> anyhow::Result<()> {
    let nameless = "[...document.querySelectorAll('input, select, textarea')].filter((e) => !e.labels.length).length \
        + [...document.querySelectorAll('table')].filter((e) => !e.caption).length \
        + [...document.querySelectorAll('.chart')].filter((e) => e.getAttribute('role') !== 'img' || !e.getAttribute('aria-label')).length \
        + [...document.querySelectorAll('section')].filter((e) => !document.getElementById(e.getAttribute('aria-labelledby'))).length \
        + Math.abs(document.querySelectorAll('h1').length - 1)";
    assert_eq!(browser.value(nameless).await?, 0);
    let label = "document.getElementById('arms-chart').getAttribute('aria-label')";
    let label = browser.value(label).await?;
    let label = label.as_str().context("no label")?;
    assert!(LABELS.iter().all(|arm| label.contains(arm)), "{label}");
    Ok(())
}

pub(super) async fn a_page_shows_what_the_command_line_prints_and_stays_up_to_date()
-> anyhow::Result<()> {
    let browser = Browser::start().await?;
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let made = create(&mut aggregator).await?;
    let mut days = a_week(&mut aggregator, &made).await?;
    let url = aggregator.process.operator_url.clone();
    browser.prefer("light").await?;
    browser.open(&format!("{url}/#/experiments/checkout-button")).await?;
    arms_are_right(&browser, &url, &made, &[]).await?;
    traffic_is_right(&browser, &days).await?;
    privacy_is_told(&browser, &url).await?;
    everything_has_a_name(&browser).await?;
    drawn(&browser, "arms-chart", [0x00, 0x72, 0xb2]).await?;
    drawn(&browser, "traffic-chart", [0xb3, 0x50, 0x00]).await?;
    if let Some(file) = std::env::var_os(PICTURE) {
        browser.resize(1040, 1080).await?;
        drawn(&browser, "arms-chart", [0x00, 0x72, 0xb2]).await?;
        std::fs::write(file, browser.screenshot().await?)?;
    }
    if let Some(folder) = std::env::var_os(PICTURES) {
        draw_for_the_manual(&browser, folder.as_ref()).await?;
    }

    let (experiment_id, label) = (made.experiment_id().to_string(), HOSTILE.to_owned());
    aggregator.operator.add_arm(AddArmRequest { experiment_id, label }).await?;
    arms_are_right(&browser, &url, &made, &[]).await?;
    assert_eq!(browser.value("document.querySelectorAll('main img').length").await?, 0);

    let change = "const input = document.getElementById(arguments[0]); input.value = arguments[1];
                  input.dispatchEvent(new Event('change'))";
    browser.run(change, &["level".into(), "0.01".into()]).await?;
    browser.run(change, &["dishonest".into(), "10".into()]).await?;
    let caption = "document.querySelector('#arms-chart + figcaption').textContent";
    browser.until(&format!("{caption}.includes('99%') && {caption}.includes('dishonest')")).await?;
    let flags = ["--alpha", "0.01", "--dishonest-share", "0.1"];
    arms_are_right(&browser, &url, &made, &flags).await?;

    // New reports are displayed and announced automatically.
    let news: Vec<_> = (0..200).map(|report| (1, report % 3 > 0)).collect();
    send(&mut aggregator, &made, 99, 0, &news).await?;
    days[6] += 200;
    arms_are_right(&browser, &url, &made, &flags).await?;
    traffic_is_right(&browser, &days).await?;
    let total: u64 = days.iter().sum();
    let told = format!("{},{:03} reports", total / 1000, total % 1000);
    browser
        .until(&format!(
            "document.getElementById('announcement').textContent.startsWith({})",
            json!(told)
        ))
        .await?;

    browser.prefer("dark").await?;
    browser.until("getComputedStyle(document.body).backgroundColor === 'rgb(20, 23, 26)'").await?;
    drawn(&browser, "arms-chart", [0x4a, 0xa8, 0xe0]).await?;
    drawn(&browser, "traffic-chart", [0xf0, 0x91, 0x4a]).await?;
    for hash in ["#/experiments/checkout-button", "#/new", "#/"] {
        browser.run("location.hash = arguments[0]", &[hash.into()]).await?;
        browser.until("document.querySelector('main section')").await?;
        browser.resize(360, 740).await?;
        // Tables scroll horizontally on their own; the page never does.
        browser.until("document.documentElement.scrollWidth <= 360").await?;
    }
    assert_eq!(browser.console().await?, Vec::<String>::new());

    browser.run("location.hash = '#/experiments/checkout-button'", &[]).await?;
    browser.until("document.getElementById('live').textContent === 'live'").await?;
    // An open watch does not delay shutdown.
    aggregator.process.stop().await?;
    browser.until("document.getElementById('live').textContent === 'not live'").await?;
    browser.quit().await
}
