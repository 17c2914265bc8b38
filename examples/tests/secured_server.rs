//! The examples against a server that requires TLS, tokens and certificates.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::Context as _;
use bandana_edge::auth::{Token, TokenKind, TokenList};
use bandana_examples::aggregator_process::AggregatorProcess;
use bandana_examples::environment::CleanEnvironment as _;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

const PROGRAM: &str = env!("CARGO_BIN_EXE_simulated-users");

/// Writes an authority to `ca.pem`, and its certificates to `server.*` and `anna.*`.
fn write_certificates(folder: &Path) -> anyhow::Result<()> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    std::fs::write(folder.join("ca.pem"), params.self_signed(&key)?.pem())?;
    let issuer = Issuer::new(params, key);
    for name in ["server", "anna"] {
        let key = KeyPair::generate()?;
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()])?;
        let certificate = params.signed_by(&key, &issuer)?.pem();
        std::fs::write(folder.join(name).with_extension("pem"), certificate)?;
        std::fs::write(folder.join(name).with_extension("key"), key.serialize_pem())?;
    }
    Ok(())
}

/// Writes a token to `token`, and the file of its hash to `tokens`.
fn write_token(folder: &Path) -> anyhow::Result<()> {
    let token = Token::generate(TokenKind::Operator)?;
    let list = TokenList::with(TokenKind::Operator, "", &"anna".parse()?, &token.hash(), None)?;
    std::fs::write(folder.join("tokens"), list)?;
    Ok(std::fs::write(folder.join("token"), token.reveal().as_bytes())?)
}

#[tokio::test]
async fn simulated_users_reach_a_secured_server() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    write_certificates(folder.path())?;
    write_token(folder.path())?;
    let file = |name| folder.path().join(name).display().to_string();
    let (certificate, key, ca) = (file("server.pem"), file("server.key"), file("ca.pem"));
    let (tokens, token) = (file("tokens"), file("token"));
    let flags = [
        ["--tls-certificate", &certificate],
        ["--tls-key", &key],
        ["--operator-tls-certificate", &certificate],
        ["--operator-tls-key", &key],
        ["--operator-client-ca", &ca],
        ["--operator-tokens-file", &tokens],
    ];
    let data_dir = folder.path().join("data");
    let server =
        AggregatorProcess::start_with(flags.as_flattened(), PROGRAM.as_ref(), &data_dir).await?;
    let simulate = |more: &[&str]| -> anyhow::Result<Output> {
        let mut command = Command::new(PROGRAM);
        command.args(["--users", "40", "--refresh", "20", "--connections", "2"]);
        command.args(["--server", &server.device_url, "--operator-url", &server.operator_url]);
        command.args(["--plot", &file("plot.svg"), "--json", &file("result.json")]).args(more);
        Ok(command.clean_environment().output()?)
    };
    let (anna, anna_key) = (file("anna.pem"), file("anna.key"));
    let all = ["--client-certificate", &anna, "--client-key", &anna_key, "--token-file", &token];
    let output = simulate(&[&["--ca", &ca][..], &all].concat())?;
    assert!(output.status.success(), "{output:?}");
    let result = std::fs::read_to_string(file("result.json"))?;
    assert!(result.contains("\"reports_accepted\": 40"), "{result}");

    // Each of these options is required.
    for (given, expected) in [
        (&all[..], "can't reach the device service"),
        // A missing certificate is detected when connecting or with the first call, depending on
        // TLS.
        (&["--ca", &ca, "--token-file", &token], ""),
        (&[&["--ca", &ca][..], &all[..4]].concat(), "token"),
    ] {
        let output = simulate(given)?;
        let errors = String::from_utf8(output.stderr).context("errors in UTF-8")?;
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.contains(expected), "{expected:?} is not in: {errors}");
    }
    server.stop().await
}
