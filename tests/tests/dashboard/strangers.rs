//! Actions that pages can't perform: this server's pages on other hosts, and foreign pages on this
//! one.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use bandana_tests::browser::Browser;
use bandana_tests::harness::{Aggregator, three_arms};
use bandana_tests::page;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::{PROGRAM, actions, printed};

/// A foreign server on this host with an empty page, and a record of its requests.
async fn stranger() -> anyhow::Result<(String, Arc<Mutex<Vec<String>>>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let calls: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = Arc::clone(&calls);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let answer = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\n\
                          content-length: 22\r\n\r\n<link rel=icon href=#>";
            let mut request = vec![0; 4096];
            // A browser may open unused connections.
            let bytes = stream.read(&mut request).await.unwrap_or(0);
            let line = String::from_utf8_lossy(&request[..bytes]);
            let line = line.lines().next().map(str::to_owned);
            heard.lock().unwrap_or_else(PoisonError::into_inner).extend(line);
            stream.write_all(answer.as_bytes()).await.ok();
        }
    });
    Ok((url, calls))
}

pub(super) async fn the_pages_can_reach_nobody_else_and_make_no_markup() -> anyhow::Result<()> {
    let browser = Browser::start().await?;
    let aggregator = Aggregator::start(PROGRAM).await?;
    let (elsewhere, calls) = stranger().await?;
    browser.open(&aggregator.process.operator_url).await?;
    browser.until("document.querySelector('main h1')").await?;
    assert_eq!(browser.console().await?, Vec::<String>::new());
    let attempts = "
        globalThis.blocked = [];
        addEventListener('securitypolicyviolation', (e) => blocked.push(e.effectiveDirective));
        const made = (name, change) => { const e = document.createElement(name); change(e); document.body.append(e); };
        fetch(`${arguments[0]}/fetch`).catch(() => {});
        navigator.sendBeacon(`${arguments[0]}/beacon`, 'x');
        made('img', (e) => { e.src = `${arguments[0]}/img`; });
        made('link', (e) => { e.rel = 'stylesheet'; e.href = `${arguments[0]}/style`; });
        made('iframe', (e) => { e.src = `${arguments[0]}/frame`; });
        made('form', (e) => { e.action = `${arguments[0]}/form`; setTimeout(() => e.submit()); });
        made('base', (e) => { e.href = arguments[0]; });
        const foreign = document.createElement('script');
        try { foreign.src = arguments[0]; } catch { blocked.push('foreign script'); }
        try { document.body.innerHTML = '<b>x</b>'; } catch { blocked.push('markup'); }
        // Delayed, since the test's own scripts may evaluate.
        setTimeout(() => { try { Function('blocked.push(\"evaluated\")')(); } catch { blocked.push('no evaluation'); } });
        document.body.setAttribute('style', 'color: red');
    ";
    browser.run(attempts, &[elsewhere.into()]).await?;
    for directive in [
        "connect-src",
        "img-src",
        "style-src-elem",
        "frame-src",
        "form-action",
        "base-uri",
        "require-trusted-types-for",
        "style-src-attr",
        "foreign script",
        "markup",
        "no evaluation",
    ] {
        let is_blocked = format!("blocked.includes({})", json!(directive));
        browser.until(&is_blocked).await?;
    }
    assert_eq!(browser.value("blocked.includes('evaluated')").await?, false);
    assert_eq!(
        *calls.lock().unwrap_or_else(PoisonError::into_inner),
        Vec::<String>::new(),
        "somebody else was called"
    );
    browser.quit().await?;
    aggregator.process.stop().await
}

pub(super) async fn pages_of_others_can_neither_read_nor_change_anything() -> anyhow::Result<()> {
    let browser = Browser::start().await?;
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    aggregator.create(three_arms("checkout")).await?;
    let url = &aggregator.process.operator_url;
    let (elsewhere, _) = stranger().await?;
    browser.open(&elsewhere).await?;
    // All requests that a page can send without a preflight, and those that need one.
    let attempts = "
        const [url, done] = arguments;
        const change = `${url}/api/experiments/checkout/pause`;
        const json = { 'content-type': 'application/json', 'x-bandana-dashboard': '1' };
        const call = (path, options) => fetch(path, options).then((r) => r.type === 'opaque' ? 'opaque' : r.text(), () => 'failed');
        const frame = document.createElement('iframe');
        frame.src = url;
        document.body.append(frame);
        Promise.all([
            call(`${url}/api/experiments`, {}),
            call(change, { method: 'POST', headers: json }),
            call(change, { method: 'POST' }),
            call(change, { method: 'POST', mode: 'no-cors', body: '{}' }),
            call(change, { method: 'POST', mode: 'no-cors', body: new URLSearchParams({ a: '1' }) }),
            call(`${url}/bandana.v1.Operator/PauseExperiment`, { method: 'POST', mode: 'no-cors', body: 'x' }),
        ]).then(done);";
    let heard = browser.run_async(attempts, &[url.as_str().into()]).await?;
    let heard: Vec<_> =
        heard.as_array().context("no list")?.iter().filter_map(Value::as_str).collect();
    assert_eq!(heard, ["failed"; 6]);
    assert_eq!(actions(url, "checkout").await?, ["create"]);
    assert_eq!(printed(url, &["experiment", "show", "checkout"]).await?["state"], "running");
    browser.quit().await?;
    aggregator.process.stop().await
}

/// Sends a request with a body, and returns the status of the response.
async fn post(address: &str, path: &str, body: &str) -> anyhow::Result<(u16, Value)> {
    let length = body.len().to_string();
    let headers = [
        ("content-type", "application/json"),
        ("x-bandana-dashboard", "1"),
        ("content-length", &length),
    ];
    let page = page::send(address, "POST", path, &headers, body).await?;
    Ok((page.status, serde_json::from_str(&page.body).unwrap_or_default()))
}

pub(super) async fn what_is_wrong_with_a_change_is_said() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    aggregator.create(three_arms("checkout")).await?;
    let address = aggregator.process.operator_url.trim_start_matches("http://").to_owned();
    let new = r#"{"experiment": {"experiment_id": "checkout", "epsilon": 1, "arms": ["a", "b"],
        "attribution_window_seconds": 60}}"#;
    let endless = format!("{{\"experiment\": {{\"arms\": [\"{}\"]}}}}", "x".repeat(300_000));
    for (path, body, status, said) in [
        ("/api/experiments", new, 409, "checkout"),
        ("/api/experiments", "{\"experiment\": {\"epsilom\": 1}}", 400, "epsilom"),
        ("/api/experiments", &endless, 400, "262144 bytes"),
        ("/api/experiments/checkout/resume", "{}", 409, "running"),
        ("/api/experiments/checkout/frobnicate", "{}", 404, ""),
        ("/api/experiments/nobody/pause", "{}", 404, "nobody"),
    ] {
        let (answered, answer) = post(&address, path, body).await?;
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(answered == status && message.contains(said), "{path}: {answered} {answer}");
    }
    aggregator.process.stop().await
}
