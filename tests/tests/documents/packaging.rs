//! The files of `aggregator/packaging` fit the program and each other.
//!
//! No image is built and no unit started: that needs a registry, and a host that runs systemd.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, ensure};
use bandana_examples::environment::CleanEnvironment as _;
use bandana_tests::suite::{Requirement, Suite};
use saphyr::{LoadableYamlNode as _, Yaml};

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// The maximum exposure by `systemd-analyze security`, in tenths. The remaining objections are that
/// a server uses the network, and raises its limit of open files.
const EXPOSURE: &str = "15";

/// Adds the tests.
pub(crate) fn add(suite: &mut Suite) {
    suite.add(
        "packaging::the_unit_starts_what_there_is_and_waits_for_its_end",
        the_unit_starts_what_there_is_and_waits_for_its_end,
    );
    suite.add("packaging::the_unit_is_understood_and_shut_in", the_unit_is_understood_and_shut_in);
    suite.add("packaging::the_unit_of_a_relay_starts_one", the_unit_of_a_relay_starts_one);
    suite.add("packaging::the_backup_unit_backs_up", the_backup_unit_backs_up);
    suite.add("packaging::the_image_is_of_what_there_is", the_image_is_of_what_there_is);
    suite.add(
        "packaging::the_replicas_of_the_compose_file_find_what_they_need",
        the_replicas_of_the_compose_file_find_what_they_need,
    );
    suite.add(
        "packaging::the_alert_rules_fire_when_they_should",
        the_alert_rules_fire_when_they_should,
    );
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn packaging(name: &str) -> anyhow::Result<String> {
    Ok(std::fs::read_to_string(root().join("aggregator/packaging").join(name))?)
}

/// The result of `check-config` for the arguments of a `serve`.
fn check(arguments: &[&str], variables: &[(&str, &str)]) -> anyhow::Result<Output> {
    let (serve, flags) = arguments.split_first().context("no command")?;
    ensure!(*serve == "serve", "{arguments:?}");
    let mut command = Command::new(PROGRAM);
    command.arg("check-config").args(flags).clean_environment().envs(variables.iter().copied());
    let output = command.output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{arguments:?} {variables:?}: {errors}");
    Ok(output)
}

fn default_configuration() -> anyhow::Result<String> {
    let output = Command::new(PROGRAM).arg("default-config").output()?;
    Ok(String::from_utf8(output.stdout)?)
}

/// Checks that every `BANDANA_...` in a text names a setting.
fn variables_exist(text: &str) -> anyhow::Result<()> {
    let known = default_configuration()?;
    let word = |c: char| !(c.is_ascii_uppercase() || c == '_');
    let names: BTreeSet<_> = text.split(word).filter(|word| word.starts_with("BANDANA_")).collect();
    ensure!(!names.is_empty(), "no variables are found");
    for name in names {
        ensure!(known.contains(&format!("${name},")), "{name} is not a setting");
    }
    Ok(())
}

/// Checks that a shutdown takes less than the supervisor's timeout.
fn is_given_time(seconds: &str) -> anyhow::Result<()> {
    let known = default_configuration()?;
    let deadline = known.lines().find_map(|line| line.strip_prefix("drain_deadline_seconds = "));
    let (deadline, seconds): (u32, u32) =
        (deadline.context("no deadline")?.parse()?, seconds.parse()?);
    ensure!(deadline < seconds, "it is killed after {seconds} s, and may take {deadline} s");
    Ok(())
}

/// The values of a key, in a unit or a Dockerfile.
fn values<'a>(text: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines().filter_map(move |line| line.strip_prefix(key))
}

fn systemd_analyze(arguments: &[&str]) -> anyhow::Result<Output> {
    let output = Command::new("systemd-analyze").args(arguments).output();
    match output {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(Requirement::Systemd.missing("no systemd-analyze is installed"))
        }
        output => Ok(output?),
    }
}

fn promtool(arguments: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("promtool");
    let place = root().join("aggregator/packaging/monitoring");
    let output = match command.args(arguments).current_dir(place).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Requirement::Promtool.missing("no promtool is installed"));
        }
        output => output?,
    };
    let said =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    ensure!(output.status.success(), "{arguments:?}: {said:?}");
    Ok(())
}

fn the_alert_rules_fire_when_they_should() -> anyhow::Result<()> {
    promtool(&["check", "rules", "alerts.yml"])?;
    promtool(&["test", "rules", "alerts-test.yml"])
}

fn the_unit_starts_what_there_is_and_waits_for_its_end() -> anyhow::Result<()> {
    let unit = packaging("bandana.service")?;
    let start = values(&unit, "ExecStart=").next().context("it starts nothing")?;
    let arguments = start.strip_prefix("/usr/local/bin/bandana ").context("another program")?;
    // As the file's first lines instruct.
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("bandana.toml");
    let configuration = default_configuration()?;
    ensure!(unit.contains("data_dir = \"/var/lib/bandana\""), "it does not say which directory");
    let configuration = configuration.replace("\"bandana-data\"", "\"/var/lib/bandana\"");
    std::fs::write(&file, configuration)?;
    let file = file.to_str().context("a path in UTF-8")?;
    let arguments = arguments.replace("/etc/bandana/bandana.toml", file);
    check(&arguments.split(' ').collect::<Vec<_>>(), &[])?;
    let directory = values(&unit, "StateDirectory=").next();
    ensure!(directory == Some("bandana"), "/var/lib/bandana is not its directory");
    is_given_time(values(&unit, "TimeoutStopSec=").next().context("no time to end")?)
}

fn the_unit_is_understood_and_shut_in() -> anyhow::Result<()> {
    is_shut_in("bandana.service")
}

fn the_unit_of_a_relay_starts_one() -> anyhow::Result<()> {
    let unit = packaging("bandana-relay.service")?;
    let start: Vec<_> = values(&unit, "ExecStart=").collect();
    assert_eq!(start, ["/usr/local/bin/bandana-relay"]);
    // Its first lines name all that it must be given.
    let setting = unit.lines().find_map(|line| line.strip_prefix("# echo "));
    let setting = setting.and_then(|setting| setting.split_once(" > "));
    let (setting, file) = setting.context("no setting")?;
    let (name, value) = setting.split_once('=').context("no variable")?;
    assert_eq!(values(&unit, "EnvironmentFile=").collect::<Vec<_>>(), [file]);
    let command = bandana_relay::cli::command();
    let needed = command.get_arguments().filter(|argument| argument.is_required_set());
    let needed: Vec<_> = needed.filter_map(clap::Arg::get_env).collect();
    assert_eq!(needed, [name]);
    ensure!(value.starts_with("https://"), "{value}");
    is_shut_in("bandana-relay.service")
}

/// Checks that systemd understands a unit, and that little is open to it.
fn is_shut_in(unit: &str) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let path = understood(folder.path(), &[unit])?;
    let threshold = format!("--threshold={EXPOSURE}");
    let security = ["security", "--offline=true", "--no-pager", &threshold, &path];
    let output = systemd_analyze(&security)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}

/// A unit that starts the programs which these tests have.
fn installed(unit: &str) -> String {
    ["-relay", ""].iter().fold(unit.to_owned(), |unit, which| {
        unit.replace(&format!("/usr/local/bin/bandana{which}"), PROGRAM)
    })
}

/// The path of the first of these units in a folder, once systemd understands all of them.
fn understood(folder: &Path, units: &[&str]) -> anyhow::Result<String> {
    let mut verify = ["verify", "--man=no", "--recursive-errors=no"].map(str::to_owned).to_vec();
    for unit in units {
        let path = folder.join(unit);
        // Where the program is not installed, the unit names an existing one.
        std::fs::write(&path, installed(&packaging(unit)?))?;
        verify.push(path.to_str().context("a path in UTF-8")?.to_owned());
    }
    let output = systemd_analyze(&verify.iter().map(String::as_str).collect::<Vec<_>>())?;
    // Unknown settings cause warnings only. Other units of this host may be faulty.
    let said = String::from_utf8(output.stderr)?;
    let of_these = said.lines().filter(|line| units.iter().any(|unit| line.contains(unit)));
    assert_eq!(of_these.collect::<Vec<_>>(), Vec::<&str>::new());
    ensure!(output.status.success(), "{said}");
    verify.into_iter().nth(3).context("no unit")
}

fn the_backup_unit_backs_up() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    understood(folder.path(), &["bandana-backup.service", "bandana-backup.timer"])?;

    let (store, copies) = (folder.path().join("store"), folder.path().join("copies"));
    std::fs::create_dir(&copies)?;
    let mut made = Command::new(PROGRAM);
    ensure!(made.args(["init", "--data-dir"]).arg(&store).clean_environment().status()?.success());
    let old = copies.join("2026-01-01-030000.sqlite3");
    std::fs::write(&old, "")?;
    let forty_days = std::time::Duration::from_hours(40 * 24);
    let written = old.metadata()?.modified()?;
    let long_ago = written.checked_sub(forty_days).context("no such time")?;
    std::fs::File::options().write(true).open(&old)?.set_modified(long_ago)?;

    let unit = packaging("bandana-backup.service")?;
    for line in values(&unit, "ExecStart=").chain(values(&unit, "ExecStartPost=")) {
        // Without globbing, as systemd runs them.
        let line =
            line.replace("$$", "$").replace("%%", "%").replace("/usr/local/bin/bandana", PROGRAM);
        let line = line.replace("/var/backups/bandana", copies.to_str().context("UTF-8")?);
        let line = line.replace("/var/lib/bandana", store.to_str().context("UTF-8")?);
        let mut run = Command::new("sh");
        let output = run.args(["-fc", &line]).clean_environment().output()?;
        ensure!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let left: Vec<_> = std::fs::read_dir(&copies)?.collect::<Result<_, _>>()?;
    let [copy] = &left[..] else { anyhow::bail!("not one copy, but {left:?}") };
    ensure!(copy.file_name().to_string_lossy().starts_with("20") && copy.path() != old);
    let mut verify = Command::new(PROGRAM);
    ensure!(verify.arg("verify").arg(copy.path()).clean_environment().status()?.success());
    Ok(())
}

fn the_image_is_of_what_there_is() -> anyhow::Result<()> {
    let file = packaging("Dockerfile")?;
    let manifest = std::fs::read_to_string(root().join("Cargo.toml"))?;
    let version = values(&manifest, "rust-version = ").next().context("no version of Rust")?;
    let image = format!("FROM rust:{}-slim-", version.trim_matches('"'));
    ensure!(file.starts_with("# docker build --file aggregator/packaging/Dockerfile"));
    ensure!(file.contains(&image), "it is not built with Rust {version}");
    ensure!(file.contains("--package bandana-aggregator --bin bandana"), "{file}");
    let [all, built] = values(&file, "COPY ").collect::<Vec<_>>()[..] else {
        anyhow::bail!("other things are copied: {file}")
    };
    assert_eq!(
        (all, built),
        (". .", "--from=build /source/target/release/bandana /usr/local/bin/bandana")
    );
    // Large and secret files are excluded.
    let ignored = packaging("Dockerfile.dockerignore")?;
    for name in ["target", ".git", "secrets", "bandana-data"] {
        ensure!(ignored.lines().any(|line| line == name), "{name} gets into the image");
    }

    let variable = values(&file, "ENV ").next().and_then(|pair| pair.split_once('='));
    let command = values(&file, "CMD ").next().context("no command")?;
    let command: Vec<String> = serde_json::from_str(command)?;
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    check(&command, &[variable.context("no variable")?])?;
    let directory = command.last().copied();
    assert_eq!(values(&file, "VOLUME ").next(), directory);
    ensure!(file.contains(&format!("--mode 0700 {}", directory.context("no directory")?)));
    variables_exist(&file)
}

fn words(yaml: &Yaml<'_>) -> anyhow::Result<Vec<String>> {
    let words = yaml.as_sequence().context("not a list")?.iter();
    words.map(|word| Ok(word.as_str().context("not a word")?.to_owned())).collect()
}

/// The keys of a mapping.
fn keys(yaml: &Yaml<'_>) -> anyhow::Result<BTreeSet<String>> {
    let keys = yaml.as_mapping().context("not a mapping")?.keys();
    keys.map(|key| Ok(key.as_str().context("not a name")?.to_owned())).collect()
}

fn the_replicas_of_the_compose_file_find_what_they_need() -> anyhow::Result<()> {
    let text = packaging("compose.yaml")?;
    let documents = Yaml::load_from_str(&text)?;
    let [file] = &documents[..] else { anyhow::bail!("not one document") };
    let (services, server) = (&file["services"], &file["services"]["bandana"]);
    assert_eq!(keys(services)?, BTreeSet::from(["bandana".to_owned(), "database".to_owned()]));

    let place = root().join("aggregator/packaging");
    let context = place.join(server["build"]["context"].as_str().context("no context")?);
    assert_eq!(context.canonicalize()?, root().canonicalize()?);
    let dockerfile = server["build"]["dockerfile"].as_str().context("no Dockerfile")?;
    ensure!(context.join(dockerfile).is_file(), "there is no {dockerfile}");

    let command = words(&server["command"])?;
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let variable = server["environment"]["BANDANA_STORE_PASSWORD_FILE"].as_str();
    let variable = ("BANDANA_STORE_PASSWORD_FILE", variable.context("no password")?);
    let counts = String::from_utf8(check(&command, &[variable])?.stdout)?;
    ensure!(counts.contains("url = \"postgres://bandana@database/bandana"), "{counts}");
    variables_exist(&text)?;

    // Both use the same secret, which is declared, like the networks.
    let password = "/run/secrets/database-password";
    let of_database = services["database"]["environment"]["POSTGRES_PASSWORD_FILE"].as_str();
    assert_eq!((variable.1, of_database), (password, Some(password)));
    for service in [server, &services["database"]] {
        assert_eq!(words(&service["secrets"])?, ["database-password"]);
        let mut networks = words(&service["networks"])?;
        networks.retain(|network| network != "default");
        assert_eq!(networks, ["database"]);
    }
    assert_eq!(keys(&file["secrets"])?, BTreeSet::from(["database-password".to_owned()]));
    assert_eq!(keys(&file["networks"])?, BTreeSet::from(["database".to_owned()]));
    let secret = file["secrets"]["database-password"]["file"].as_str();
    ensure!(text.contains("> secrets/database-password"), "nobody makes the secret");
    assert_eq!(secret, Some("../../secrets/database-password"));

    let image = services["database"]["image"].as_str().and_then(|i| i.strip_prefix("postgres:"));
    let version: u32 = image.context("another image")?.parse()?;
    ensure!(version >= 13, "PostgreSQL {version} is too old");
    let time = server["stop_grace_period"].as_str().and_then(|time| time.strip_suffix('s'));
    is_given_time(time.context("no time to end")?)
}
