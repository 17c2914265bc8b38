//! Test programs that report tests as ignored when this machine can't run them, and list these at
//! the end.
//!
//! In libtest a test can't ignore itself at run time: it would count as passed. So programs with
//! such tests have `harness = false` and a [`Suite`]. A test with an unmet requirement returns
//! [`Missing`]; with the requirement's variable set to 1 it fails.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use libtest_mimic::{Arguments, Completion, Conclusion, Failed, FormatSetting, Trial};

/// Maximum number of tests listed per unmet requirement.
const NAMED_MAX: usize = 20;

/// A requirement of some tests that not every machine meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Requirement {
    /// A browser, and the program that drives it.
    Browser,
    /// The right to mount a file system.
    Disks,
    /// The programs of a PostgreSQL server.
    Postgres,
    /// `promtool`.
    Promtool,
    /// `systemd-analyze`.
    Systemd,
}

impl Requirement {
    /// The variable that makes tests with this unmet requirement fail.
    pub fn variable(self) -> &'static str {
        match self {
            Self::Browser => "BANDANA_REQUIRE_BROWSER",
            Self::Disks => "BANDANA_REQUIRE_DISKS",
            Self::Postgres => "BANDANA_REQUIRE_POSTGRES",
            Self::Promtool => "BANDANA_REQUIRE_PROMTOOL",
            Self::Systemd => "BANDANA_REQUIRE_SYSTEMD",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Browser => "a browser",
            Self::Disks => "a disk of its own",
            Self::Postgres => "PostgreSQL",
            Self::Promtool => "promtool",
            Self::Systemd => "systemd",
        }
    }

    /// The remedy for an unmet requirement.
    fn remedy(self) -> &'static str {
        match self {
            Self::Browser => "install Chromium and chromedriver (Debian: chromium-driver)",
            Self::Disks => "run the tests as root, who may mount a tmpfs",
            Self::Postgres => "install a PostgreSQL server (Debian: postgresql)",
            Self::Promtool => "install promtool (Debian: prometheus)",
            Self::Systemd => "install systemd-analyze (Debian: systemd)",
        }
    }

    /// The error of a test with this unmet requirement; `why` names the missing part.
    pub fn missing(self, why: impl fmt::Display) -> anyhow::Error {
        let is_required = std::env::var(self.variable()).is_ok_and(|value| value == "1");
        if is_required {
            anyhow::anyhow!("{why}, and {} is set", self.variable())
        } else {
            Missing(self).into()
        }
    }
}

/// The error of a test that can't run here.
#[derive(Clone, Copy, Debug)]
pub struct Missing(pub Requirement);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "for want of {}", self.0.name())
    }
}

impl std::error::Error for Missing {}

/// The names of ignored tests, by unmet requirement.
type Names = Arc<Mutex<BTreeMap<Requirement, Vec<String>>>>;

/// The tests of a program.
#[derive(Debug)]
pub struct Suite {
    arguments: Arguments,
    trials: Vec<Trial>,
    ignored: Names,
}

impl Suite {
    /// A suite without tests, with the program's arguments, and as many threads as `RUST_TEST_THREADS`
    /// says.
    pub fn from_args() -> Self {
        let mut arguments = Arguments::from_args();
        // As in libtest.
        let threads = std::env::var("RUST_TEST_THREADS").ok().and_then(|text| text.parse().ok());
        arguments.test_threads = arguments.test_threads.or(threads);
        Self { arguments, trials: Vec::new(), ignored: Names::default() }
    }

    /// Adds a test.
    pub fn add(
        &mut self,
        name: impl Into<String>,
        test: impl FnOnce() -> anyhow::Result<()> + Send + 'static,
    ) {
        let (name, ignored) = (name.into(), Arc::clone(&self.ignored));
        let run = {
            let name = name.clone();
            move || -> Result<Completion, Failed> {
                let Err(error) = test() else { return Ok(Completion::Completed) };
                let Some(missing) = error.downcast_ref::<Missing>() else {
                    return Err(format!("{error:?}").into());
                };
                let mut names = ignored.lock().unwrap_or_else(PoisonError::into_inner);
                names.entry(missing.0).or_default().push(name);
                Ok(Completion::ignored_with(missing))
            }
        };
        self.trials.push(Trial::ignorable_test(name, run));
    }

    /// Adds an asynchronous test, which runs on a single-threaded runtime.
    pub fn add_async<F>(&mut self, name: impl Into<String>, test: fn() -> F)
    where
        F: Future<Output = anyhow::Result<()>> + 'static,
    {
        self.add(name, move || {
            tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(test())
        });
    }

    /// Runs the tests, and lists the ignored ones with reasons at the end.
    #[expect(clippy::print_stdout, reason = "where the results of tests are")]
    pub fn run(self) -> Conclusion {
        let conclusion = libtest_mimic::run(&self.arguments, self.trials);
        let ignored =
            std::mem::take(&mut *self.ignored.lock().unwrap_or_else(PoisonError::into_inner));
        // JSON output contains them among the results.
        if !matches!(self.arguments.format, Some(FormatSetting::Json)) {
            for (requirement, names) in &ignored {
                println!("{}\n", summary(*requirement, names));
            }
        }
        conclusion
    }
}

fn summary(requirement: Requirement, names: &[String]) -> String {
    let mut shown = names.to_vec();
    shown.sort();
    let more = shown.len().saturating_sub(NAMED_MAX);
    shown.truncate(NAMED_MAX);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    format!(
        "{} ignored {}: {}{more}\n  to run them, {}; with {}=1 they fail instead",
        names.len(),
        Missing(requirement),
        shown.join(", "),
        requirement.remedy(),
        requirement.variable(),
    )
}

/// Adds asynchronous tests by their paths, each under its path as a name.
#[macro_export]
macro_rules! add_async {
    ($suite:expr, $room:literal; $($($part:ident)::+),+ $(,)?) => {
        $($suite.add_async(
            concat!($room, "::", stringify!($($part)::+)).replace(' ', ""),
            $($part)::+,
        );)+
    };
    ($suite:expr; $($($part:ident)::+),+ $(,)?) => {
        $($suite.add_async(
            stringify!($($part)::+).replace(' ', ""),
            $($part)::+,
        );)+
    };
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn suite() -> Suite {
        // The results of the inner suite must not mix with those of the program.
        let arguments = Arguments { logfile: Some("/dev/null".into()), ..Arguments::default() };
        Suite { arguments, trials: Vec::new(), ignored: Names::default() }
    }

    #[test]
    fn what_could_not_run_is_neither_passed_nor_failed_and_named() {
        let mut suite = suite();
        suite.add("passes", || Ok(()));
        suite.add("fails", || anyhow::bail!("no"));
        for name in ["b", "a"] {
            suite.add(name, || Err(anyhow::Error::new(Missing(Requirement::Browser)).context("x")));
        }
        let ignored = Arc::clone(&suite.ignored);
        let trials = std::mem::take(&mut suite.trials);
        let ran = libtest_mimic::run(&suite.arguments, trials);
        assert_eq!((ran.num_passed, ran.num_failed, ran.num_ignored), (1, 1, 2));
        let names = ignored.lock().unwrap();
        let said = summary(Requirement::Browser, &names[&Requirement::Browser]);
        assert!(said.starts_with("2 ignored for want of a browser: a, b\n"), "{said}");
        assert!(said.contains("chromedriver") && said.contains("BANDANA_REQUIRE_BROWSER=1"));
    }

    /// `#[test]` has no effect in a program without libtest: such a test never runs.
    #[test]
    fn no_program_with_a_suite_has_tests_that_libtest_would_run() -> anyhow::Result<()> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml"))?;
        let programs = manifest.split("[[test]]").skip(1);
        let programs = programs.filter(|text| text.contains("harness = false"));
        let names = programs.filter_map(|text| text.split('"').nth(1));
        let mut folders: Vec<_> = names.map(|name| folder.join("tests").join(name)).collect();
        let mut files = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder)? {
                let path = entry?.path();
                if path.is_dir() { &mut folders } else { &mut files }.push(path);
            }
        }
        assert!(files.len() > 20, "{files:?}");
        for file in files {
            let text = std::fs::read_to_string(&file)?;
            let attributes = ["#[test]", "#[tokio::test"];
            let found = attributes.iter().find(|attribute| text.contains(*attribute));
            assert_eq!(found, None, "{} has a test that never runs", file.display());
        }
        Ok(())
    }
}
