//! A server with tokens and TLS, where browsers use HTTP/2.

use std::path::Path;

use bandana_examples::environment::CleanEnvironment as _;
use bandana_tests::authority::Authority;
use bandana_tests::browser::Browser;
use bandana_tests::watched_server::WatchedServer;
use tokio::process::Command;

use super::PROGRAM;

/// The output of a command on a file of tokens.
async fn token(arguments: &[&str]) -> anyhow::Result<String> {
    let output =
        Command::new(PROGRAM).arg("token").args(arguments).clean_environment().output().await?;
    anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

async fn sign_in(browser: &Browser, token: &str) -> anyhow::Result<()> {
    browser.until("document.activeElement.id === 'token'").await?;
    browser.run("document.getElementById('token').value = arguments[0]", &[token.into()]).await?;
    browser.run("document.querySelector('#sign-in button').click()", &[]).await?;
    Ok(())
}

pub(super) async fn operators_show_a_token_and_a_revoked_one_ends_what_they_see()
-> anyhow::Result<()> {
    let browser = Browser::start().await?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("tokens");
    let file = file.to_str().unwrap_or_default();
    let annas =
        token(&["new", "--name", "anna", "--role", "administrator", "--file", file]).await?;
    Authority::new()?.sign(folder.path(), "server")?;
    let [certificate, key] = ["server.pem", "server.key"].map(|name| folder.path().join(name));
    let flag = |name: &str, path: &Path| format!("--operator-{name}={}", path.display());
    let [certificate, key] = [flag("tls-certificate", &certificate), flag("tls-key", &key)];
    let arguments = ["--operator-tokens-file", file, &certificate, &key];
    let mut server = WatchedServer::start(PROGRAM, &folder.path().join("data"), &arguments).await?;
    browser.open(&format!("https://{}/#/new", server.operator)).await?;
    let protocol = "performance.getEntriesByType('navigation')[0].nextHopProtocol";
    assert_eq!(browser.value(protocol).await?, "h2");
    sign_in(&browser, "bndn_wrong").await?;
    browser
        .until("document.querySelector('[role=alert]').textContent.includes('does not know')")
        .await?;
    assert_eq!(browser.value("sessionStorage.length").await?, 0);
    sign_in(&browser, &annas).await?;
    browser.until("document.getElementById('create')").await?;
    browser.until("!document.getElementById('sign-out').hidden").await?;
    // The token is kept in this tab only, out of reach of later visitors.
    assert_eq!(browser.value("localStorage.length + document.cookie.length").await?, 0);

    let create = "document.querySelector('#experiment_id').value = 'checkout';
        document.querySelector('#arms').value = 'red\\ngreen';
        document.querySelector('#create button').click()";
    browser.run(create, &[]).await?;
    browser.until("document.getElementById('live').textContent === 'live'").await?;
    let by = "document.querySelector('#changes tbody tr').cells[1].textContent === 'anna'";
    browser.until(by).await?;

    browser.console().await?;
    token(&["revoke", "--name", "anna", "--file", file]).await?;
    server.reload().await?;
    browser.until("document.querySelector('main h1').textContent === 'Sign in'").await?;
    assert_eq!(browser.value("sessionStorage.length").await?, 0);
    let left = "document.querySelectorAll('main table, main .chart').length";
    assert_eq!(browser.value(left).await?, 0);
    browser.quit().await?;
    let log = server.stop().await?;
    assert!(!log.contains(&annas), "the log has a token");
    Ok(())
}
