//! An experiment with guardrails is created with the form, and its alarms are shown.

use bandana_shared::wire::decode_specification;
use bandana_shared::wire::v1::{ExperimentName, GetExperimentRequest};
use bandana_tests::browser::Browser;
use bandana_tests::harness::{Aggregator, upload};
use serde_json::json;

use super::{PROGRAM, printed};

/// Fills in and submits the form.
const CREATE: &str = "
    const set = (id, value) => { document.getElementById(id).value = value; };
    set('experiment_id', 'skewed');
    set('arms', 'red\\n<b>green</b>');
    set('burn_in_reports', '100000');
    set('holdout_share', '0.25');
    document.querySelector('button[type=submit]').click();";

pub(super) async fn guardrails_are_created_and_alarms_shown() -> anyhow::Result<()> {
    let browser = Browser::start().await?;
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let url = aggregator.process.operator_url.clone();
    browser.open(&format!("{url}/#/new")).await?;
    browser.until("document.getElementById('holdout_share')").await?;
    browser.run(CREATE, &[]).await?;
    browser.until("document.getElementById('state').textContent === 'running'").await?;
    let made = printed(&url, &["experiment", "show", "skewed"]).await?;
    let guardrails = (&made["burn_in_reports"], &made["holdout_share"]);
    assert_eq!(guardrails, (&json!(100_000), &json!(0.25)));
    browser.until("document.body.textContent.includes('100000 reports for each arm')").await?;
    assert_eq!(browser.value("document.getElementById('alarms').hidden").await?, true);

    // Both arms should have equal shares.
    let question = GetExperimentRequest { experiment_id: "skewed".into() };
    let fetched = aggregator.device.get_experiment(question).await?.into_inner();
    let specification =
        decode_specification(&fetched.experiment.unwrap_or_default().specification)?;
    let day = aggregator.day(&specification).await?;
    let reports: Vec<_> = (0..1000).map(|number| (usize::from(number < 800), true)).collect();
    aggregator.device.submit_upload(upload(1, &specification, day, &reports)?).await?;
    aggregator.operator.refresh_policy(ExperimentName { experiment_id: "skewed".into() }).await?;
    let said = "arm 0 (red) has 20.0% of 1000 reports, and the policies asked for 50.0%";
    let other = "arm 1 (<b>green</b>) has 80.0% of 1000 reports";
    browser
        .until(&format!(
            "(({{ hidden, textContent: text }}) => !hidden && text.includes('sample-ratio-mismatch') \
             && (text.includes({}) || text.includes({})))(document.getElementById('alarms'))",
            json!(said),
            json!(other)
        ))
        .await?;
    browser.open(&format!("{url}/#/")).await?;
    let marked =
        "document.querySelector('#experiments tbody tr td').textContent === 'running 1 alarm'";
    browser.until(marked).await?;
    let console = browser.console().await?;
    assert!(console.is_empty(), "{console:#?}");
    browser.quit().await?;
    aggregator.process.stop().await
}
