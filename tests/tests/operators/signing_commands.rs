//! `bandana keys` and `bandana sign`, as people run them.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::ensure;
use bandana_client::{
    Acceptance, Bandana, Budget, Choice, Consent, DefaultReason, Refusal, SignatureRefusal, Signers,
};
use bandana_examples::environment::CleanEnvironment as _;
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::rewards::Rewards;
use bandana_shared::signing::{PublicKey, Signature};
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::{AddArmRequest, ExperimentName};
use bandana_tests::harness::{Aggregator, three_arms};

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// Runs a command without a terminal.
fn bandana<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> anyhow::Result<Output> {
    let mut command = Command::new(PROGRAM);
    Ok(command.args(arguments).clean_environment().stdin(Stdio::null()).output()?)
}

/// The output of a command, which must succeed.
fn printed<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> anyhow::Result<String> {
    let output = bandana(arguments)?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {errors}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// Asserts that a command fails with this exit code, and that its error contains each of `parts`.
#[track_caller]
fn refused<A: AsRef<OsStr>>(
    arguments: impl IntoIterator<Item = A>,
    code: i32,
    parts: &[&str],
) -> anyhow::Result<()> {
    let output = bandana(arguments)?;
    let errors = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(code), "{parts:?}: {errors}");
    for part in parts {
        assert!(errors.contains(part), "{part:?} is not in: {errors}");
    }
    Ok(())
}

/// A key file and its public key.
fn generate(file: &Path) -> anyhow::Result<PublicKey> {
    let output =
        printed([OsStr::new("keys"), "generate".as_ref(), "--out".as_ref(), file.as_ref()])?;
    Ok(output.trim().parse()?)
}

/// The paths of these names in a folder.
fn paths<const N: usize>(folder: &Path, names: [&str; N]) -> [String; N] {
    names.map(|name| folder.join(name).display().to_string())
}

/// The server's list for an experiment's current revision.
async fn listed(
    aggregator: &mut Aggregator,
    experiment: &Specification,
) -> anyhow::Result<Vec<Signature>> {
    let name = ExperimentName { experiment_id: experiment.experiment_id().to_string() };
    let status = aggregator.operator.get_experiment_status(name).await?.into_inner();
    Ok(status.signatures.iter().map(Signature::try_from).collect::<Result<_, _>>()?)
}

#[test]
fn a_key_is_generated_once_and_shown() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("operator.key");
    let public = generate(&file)?;
    assert_ne!(public, generate(&folder.path().join("countersigner.key"))?);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(std::fs::metadata(&file)?.permissions().mode() & 0o777, 0o600);
    }
    let before = std::fs::read(&file)?;
    let name = file.display().to_string();
    refused(["keys", "generate", "--out", &name], 1, &[&name, "exists already"])?;
    assert_eq!(std::fs::read(&file)?, before);
    assert_eq!(printed(["keys", "show", &name])?, format!("{public}\n"));

    let [missing, garbage] = paths(folder.path(), ["missing", "garbage"]);
    refused(["keys", "show", &missing], 1, &[&missing, "can't read the key file"])?;
    std::fs::write(&garbage, [0xff; 9000])?;
    refused(["keys", "show", &garbage], 1, &[&garbage, "first line", "bandana keys generate"])?;
    Ok(())
}

#[tokio::test]
async fn an_experiment_is_signed_over_the_network() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let experiment = aggregator.create(three_arms("online")).await?;
    let folder = tempfile::tempdir()?;
    let [key] = paths(folder.path(), ["operator.key"]);
    let public = generate(Path::new(&key))?;
    let url = aggregator.process.operator_url.clone();
    let sign = ["sign", "--key", &key, "--operator-url", &url];

    let shown =
        printed(sign.iter().chain(&["--experiment", "online", "--expires-days", "7", "--yes"]))?;
    for part in [&experiment.digest().to_string(), &public.to_string(), "\"green\"", "1 nats"] {
        assert!(shown.contains(part), "{part} is not in: {shown}");
    }
    let signatures = listed(&mut aggregator, &experiment).await?;
    assert_eq!(signatures.iter().map(Signature::key).collect::<Vec<_>>(), [public]);
    assert!(signatures[0].fits(&experiment));
    let until = signatures[0].expires().to_string();
    assert!(shown.ends_with(&format!("signed online, revision 1 by {public} until {until}\n")));

    // Nothing is signed without confirmation, or after an error.
    let with = |more: &[&str]| sign.iter().chain(more).map(ToString::to_string).collect::<Vec<_>>();
    let days = |days| with(&["--experiment", "online", "--yes", "--expires-days", days]);
    refused(with(&["--experiment", "online", "--expires-days", "7"]), 1, &["terminal", "--yes"])?;
    refused(with(&["--experiment", "online", "--yes"]), 2, &["--expires-days"])?;
    refused(["sign"], 2, &["--key", "--expires-days", "--experiment"])?;
    refused(days("0"), 2, &["1..=3650"])?;
    refused(days("3651"), 2, &["1..=3650"])?;
    let nobody = with(&["--experiment", "nobody", "--yes", "--expires-days", "7"]);
    refused(nobody, 3, &["the server declined", "there is no experiment nobody"])?;
    let unnamed = with(&["--experiment", "No Body", "--yes", "--expires-days", "7"]);
    refused(unnamed, 2, &["No Body"])?;
    let mut wrong_key = days("7");
    wrong_key[2] = folder.path().display().to_string();
    refused(wrong_key, 1, &["can't read the key file"])?;
    let mut unreachable = days("7");
    // The discard port, on which nothing listens.
    "http://127.0.0.1:9".clone_into(&mut unreachable[4]);
    unreachable.extend(["--wait-seconds", "0"].map(str::to_owned));
    refused(unreachable, 5, &["can't reach the operators' service at http://127.0.0.1:9"])?;
    assert_eq!(listed(&mut aggregator, &experiment).await?, signatures);
    printed(days("3650"))?;
    assert_eq!(listed(&mut aggregator, &experiment).await?.len(), 1);
    aggregator.process.stop().await
}

#[tokio::test]
async fn a_countersigner_signs_without_network() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    let experiment = aggregator.create(three_arms("offline")).await?;
    let folder = tempfile::tempdir()?;
    let names = ["countersigner.key", "specification", "signature", "other"];
    let [key, specification, signature, other] = paths(folder.path(), names);
    let public = generate(Path::new(&key))?;
    let url = aggregator.process.operator_url.clone();
    let target = ["--operator-url", &url, "--experiment", "offline"];
    let export = |out: &str| {
        let words = ["sign", "export", "--out", out];
        words.into_iter().chain(target).map(str::to_owned).collect::<Vec<_>>()
    };
    let sign = |input: &str, out: &str| {
        [
            "sign",
            "file",
            "--key",
            &key,
            "--expires-days",
            "30",
            "--yes",
            "--in",
            input,
            "--out",
            out,
        ]
        .map(str::to_owned)
    };
    let submit = |input: &str| {
        let words = ["sign", "submit", "--in", input];
        words.into_iter().chain(target).map(str::to_owned).collect::<Vec<_>>()
    };

    printed(export(&specification))?;
    assert_eq!(std::fs::read(&specification)?, experiment.canonical_bytes());
    refused(export(&specification), 1, &["exists already"])?;
    let shown = printed(sign(&specification, &signature))?;
    assert!(shown.contains(&experiment.digest().to_string()) && shown.contains("\"blue\""));
    refused(sign(&specification, &signature), 1, &["exists already"])?;
    let unconfirmed = sign(&specification, &other);
    refused(unconfirmed.iter().filter(|word| *word != "--yes"), 1, &["terminal", "--yes"])?;
    assert!(!Path::new(&other).exists());
    assert!(listed(&mut aggregator, &experiment).await?.is_empty());
    printed(submit(&signature))?;
    let signatures = listed(&mut aggregator, &experiment).await?;
    assert_eq!(signatures.iter().map(Signature::key).collect::<Vec<_>>(), [public]);

    // Files of the wrong kind, and altered bytes, are refused.
    refused(submit(&specification), 1, &[&specification, "bandana sign file"])?;
    refused(sign(&signature, &other), 1, &[&signature, "bandana sign export"])?;
    let changed = [&experiment.canonical_bytes()[..], &[0xa0, 0x06, 1]].concat();
    std::fs::write(&other, changed)?;
    refused(sign(&other, &format!("{other}.signature")), 1, &["fields that this version"])?;

    let add = AddArmRequest { experiment_id: "offline".to_owned(), label: "black".to_owned() };
    aggregator.operator.add_arm(add).await?;
    refused(submit(&signature), 1, &["is not for offline, revision 2"])?;
    aggregator.process.stop().await
}

/// The choice of an app that pins these keys, with a new client.
fn chosen_by_an_app(url: &str, signers: Signers) -> anyhow::Result<Choice> {
    let unlimited = PrivacyLoss::new(1e6)?;
    let bandana = Bandana::builder()
        .endpoint(url)?
        .in_memory()
        .accept(
            Acceptance::signed(Epsilon::new(1.0)?, Rewards::binary(), signers)
                .least_release_delay(Duration::ZERO),
        )
        .budget(Budget::new(unlimited, 1, unlimited)?)
        .consent(Consent::Given)
        .start()?;
    let experiment = bandana.experiment("pinned")?;
    // The only task that is due is to fetch the experiment.
    ensure!(bandana.shutdown(Duration::from_mins(1)), "the client does not end");
    Ok(experiment.choose())
}

#[tokio::test]
async fn an_app_takes_part_once_operator_and_countersigner_have_signed() -> anyhow::Result<()> {
    let mut aggregator = Aggregator::start(PROGRAM).await?;
    aggregator.create(three_arms("pinned")).await?;
    let folder = tempfile::tempdir()?;
    let [operator, countersigner, other] =
        paths(folder.path(), ["operator", "countersigner", "other"]);
    let [operator_key, countersigner_key, other_key] = [
        generate(operator.as_ref())?,
        generate(countersigner.as_ref())?,
        generate(other.as_ref())?,
    ];
    let signers = Signers::operator_and_countersigner(operator_key, countersigner_key)?;
    let devices = aggregator.process.device_url.clone();
    let operators = aggregator.process.operator_url.clone();
    let sign = |key: &str| {
        let experiment = ["--experiment", "pinned", "--expires-days", "7", "--yes"];
        let with = ["sign", "--key", key, "--operator-url", &operators];
        printed(with.into_iter().chain(experiment))
    };
    let missing = |key| {
        let refusal = Refusal::Signature(SignatureRefusal::Missing { key });
        DefaultReason::Refused(refusal)
    };
    let default = |choice| match choice {
        Choice::Default(reason) => Some(reason),
        Choice::Arm(_) => None,
    };
    assert_eq!(default(chosen_by_an_app(&devices, signers.clone())?), Some(missing(operator_key)));
    sign(&operator)?;
    sign(&other)?;
    // One party alone can't tag a device with a separate specification.
    assert_eq!(
        default(chosen_by_an_app(&devices, signers.clone())?),
        Some(missing(countersigner_key))
    );
    sign(&countersigner)?;
    assert_eq!(default(chosen_by_an_app(&devices, signers.clone())?), None, "there is an arm");
    assert_eq!(default(chosen_by_an_app(&devices, Signers::key(other_key))?), None);

    // The new revision is unsigned, so devices get nothing until it is signed.
    let arm = AddArmRequest { experiment_id: "pinned".to_owned(), label: "black".to_owned() };
    aggregator.operator.add_arm(arm).await?;
    assert_eq!(default(chosen_by_an_app(&devices, signers)?), Some(missing(operator_key)));
    aggregator.process.stop().await
}
