//! The README's first chapters, run as written, with a real server and a real app.

use anyhow::{Context as _, ensure};
use bandana_examples::environment::CleanEnvironment as _;
use bandana_shared::wire::v1::Specification;
use bandana_tests::add_async;
use bandana_tests::browser::Browser;
use bandana_tests::harness::{Aggregator, three_arms};
use bandana_tests::steps::{Chapter, Shell, Step, chapters};
use bandana_tests::suite::Suite;
use tokio::process::Command;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");

const PROGRAMS: [(&str, &str); 3] = [
    ("bandana", env!("CARGO_BIN_EXE_aggregator-under-test")),
    ("simulated-users", env!("CARGO_BIN_EXE_aggregator-under-test")),
    (APP, env!("CARGO_BIN_EXE_aggregator-under-test")),
];

/// The README's app.
const APP: &str = "documented-app";

const APP_SOURCE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/src/bin/aggregator-under-test/documented.rs");

/// Commands that `.ci/run` runs, and the one that builds this program.
const FIRST: [&str; 2] = ["cargo run --release --bin simulated-users", "cargo test --workspace"];

/// Commands that `.ci/run` runs as written. They build the programs that exist here already.
const INSTALLING: [&str; 2] = [
    "cargo install --path aggregator --locked",
    "cargo install --path examples --locked --bin simulated-users",
];

/// Adds the tests.
pub(crate) fn add(suite: &mut Suite) {
    add_async!(suite, "readme";
        the_first_commands_are_those_that_are_always_run,
        five_minutes_end_with_the_best_arm_and_an_app_that_reports,
        five_minutes_can_be_pasted,
        the_app_can_be_built_from_what_its_manifest_names,
        the_app_says_why_it_shows_its_default,
        the_browser_shows_the_experiment_of_the_five_minutes,
    );
}

/// A chapter.
fn chapter(title: &str) -> anyhow::Result<Chapter> {
    let chapters = chapters(&std::fs::read_to_string(PAGE)?)?;
    let chapter = chapters.into_iter().find(|chapter| chapter.title == title);
    chapter.with_context(|| format!("the README has no chapter {title:?}"))
}

async fn the_first_commands_are_those_that_are_always_run() -> anyhow::Result<()> {
    let first = chapters(&std::fs::read_to_string(PAGE)?)?;
    let first = &first.first().context("no chapters")?.steps;
    let commands: Vec<_> = first.iter().map(|step| step.command.split("  ").next()).collect();
    ensure!(commands == FIRST.map(Some), "{commands:?}");
    Ok(())
}

/// The steps of the five-minute chapter, from the server's start on.
fn five_minutes() -> anyhow::Result<Vec<Step>> {
    let steps = chapter("Five minutes")?.steps;
    let (installing, steps) = steps.split_at_checked(2).context("too few steps")?;
    let installing: Vec<_> = installing.iter().map(|step| &step.command[..]).collect();
    ensure!(installing == INSTALLING, "{installing:?}");
    Ok(steps.to_vec())
}

/// Blocks as they stand on the page, pasted at once: the server is still starting when the next command
/// calls it. The first block, with the server's start, ten times.
async fn five_minutes_can_be_pasted() -> anyhow::Result<()> {
    let mut tour = chapter("Five minutes")?.blocks;
    // The programs are installed here.
    ensure!(tour.remove(0).steps.iter().all(|step| INSTALLING.contains(&&step.command[..])));
    for _ in 0..9 {
        let mut shell = Shell::start(&PROGRAMS, &[], &[])?;
        shell.paste(&tour[0]).await?;
        shell.end().await?;
    }
    let mut shell = Shell::start(&PROGRAMS, &[], &[])?;
    for block in tour {
        shell.paste(&block).await?;
    }
    shell.run_all(&as_cargo()?).await?;
    for block in chapter("Embed it")?.blocks {
        shell.paste(&block).await?;
    }
    shell.end().await
}

/// The steps with a `cargo` that makes no package, and runs the program already built.
fn as_cargo() -> anyhow::Result<Vec<Step>> {
    let cargo = r#"cargo() { case "$1 $2" in \
        "new "*) mkdir "$2" ;; \
        "run --") shift 2 && documented-app "$@" ;; \
        *) false ;; \
        esac; }"#;
    Ok(chapters(&format!("## Cargo\n```sh\n{cargo}\n```\n"))?.remove(0).steps)
}

async fn five_minutes_end_with_the_best_arm_and_an_app_that_reports() -> anyhow::Result<()> {
    let (tour, embedding) = (five_minutes()?, chapter("Embed it")?.steps);
    let end = embedding.last().context("no steps")?;
    ensure!(end.command.starts_with("kill \"$server\""), "the last step is {:?}", end.command);
    let mut shell = Shell::start(&PROGRAMS, &[], &[])?;
    shell.run_all(&tour).await?;
    shell.run_all(&as_cargo()?).await?;
    shell.run_all(&embedding).await?;
    shell.end().await
}

/// Checks that the manifest names the folders of the crates, with features that exist. What
/// `cargo new` writes ends with the heading of the dependencies.
async fn the_app_can_be_built_from_what_its_manifest_names() -> anyhow::Result<()> {
    let page = std::fs::read_to_string(PAGE)?;
    let block = page.split("```toml\n").nth(1).context("no dependencies")?;
    let dependencies = block.split("```").next().unwrap_or_default();
    let folder = tempfile::tempdir()?;
    let root = bandana_tests::committed::root().canonicalize()?;
    std::os::unix::fs::symlink(&root, folder.path().join("bandana"))?;
    let app = folder.path().join("colours-app");
    std::fs::create_dir_all(app.join("src"))?;
    let package = "[package]\nname = \"colours-app\"\nedition = \"2024\"\n\n[workspace]\n";
    std::fs::write(app.join("Cargo.toml"), format!("{package}\n[dependencies]\n{dependencies}"))?;
    std::fs::copy(APP_SOURCE, app.join("src/main.rs"))?;
    std::fs::copy(root.join("Cargo.lock"), app.join("Cargo.lock"))?;
    // Nothing but what the build of this program has fetched: crates of other systems are not there.
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["tree", "--offline", "--prefix", "none", "--format", "{p} {f}"]);
    let output = cargo.current_dir(app).output().await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let crates = String::from_utf8(output.stdout)?;
    let client = crates.lines().find(|line| line.starts_with("bandana-client "));
    let client = client.context("it does not take the client")?;
    for feature in ["grpc", "storage"] {
        ensure!(client.contains(feature), "the client is without {feature}: {client}");
    }
    Ok(())
}

/// The output of an app started in an empty folder.
async fn app(arguments: &[&str]) -> anyhow::Result<(String, String)> {
    let folder = tempfile::tempdir()?;
    let mut app = Command::new(PROGRAMS[0].1);
    app.arg0(APP);
    let output =
        app.args(arguments).current_dir(folder.path()).clean_environment().output().await?;
    ensure!(output.status.success(), "{output:?}");
    Ok((String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?))
}

async fn the_app_says_why_it_shows_its_default() -> anyhow::Result<()> {
    for (simulation, epsilon, why) in [
        (true, 1.0, "simulation mark"),
        (false, 2.0, "asks for an epsilon of 2; the app accepts at most 1"),
    ] {
        let mut aggregator = Aggregator::start(PROGRAMS[0].1).await?;
        let made = three_arms("button-colour");
        aggregator.create(Specification { simulation, epsilon, ..made }).await?;
        let (shown, said) = app(&[&aggregator.process.device_url, "--demonstration"]).await?;
        assert_eq!(shown, "show blue\nreports counted: 0\n");
        assert!(said.contains("shows its default") && said.contains(why), "{said}");
        aggregator.process.stop().await?;
    }
    // What people copy takes no experiment of a demonstration, which does not hide when a user reacted.
    let mut aggregator = Aggregator::start(PROGRAMS[0].1).await?;
    aggregator.create(three_arms("button-colour")).await?;
    let (shown, said) = app(&[&aggregator.process.device_url]).await?;
    assert_eq!(shown, "show blue\nreports counted: 0\n");
    assert!(said.contains("shows its default") && said.contains("release delay"), "{said}");
    assert!(!said.contains("DEMONSTRATION"), "{said}");
    aggregator.process.stop().await?;
    // The server has no experiment.
    let aggregator = Aggregator::start(PROGRAMS[0].1).await?;
    let (shown, said) = app(&[&aggregator.process.device_url, "--demonstration"]).await?;
    assert_eq!(shown, "show blue\nreports counted: 0\n");
    assert!(said.contains("no server has told") && said.contains("NotFound"), "{said}");
    aggregator.process.stop().await
}

async fn the_browser_shows_the_experiment_of_the_five_minutes() -> anyhow::Result<()> {
    let browser = Browser::start().await?;
    let steps = five_minutes()?;
    // The experiment exists before any user takes part.
    let before = steps.iter().take_while(|step| !step.command.contains("simulated-users"));
    let mut shell = Shell::start(&PROGRAMS, &[], &[])?;
    for step in before {
        shell.run(step).await?;
    }
    browser.open(&format!("http://127.0.0.1:{}/", shell.port(7302)?)).await?;
    browser.until("document.body.innerText.includes('rehearsal')").await?;
    browser.quit().await?;
    shell.end().await
}
