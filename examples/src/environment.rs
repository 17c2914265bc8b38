//! Child processes that must not inherit the settings of their parent.

/// The variable that tells a program built by `.ci/coverage` where to write its coverage.
const COVERAGE: &str = "LLVM_PROFILE_FILE";

/// A command whose program inherits no settings.
pub trait CleanEnvironment {
    /// Clears the environment, except the path that `.ci/coverage` needs in each process.
    fn clean_environment(&mut self) -> &mut Self;
}

impl CleanEnvironment for std::process::Command {
    fn clean_environment(&mut self) -> &mut Self {
        self.env_clear().envs(std::env::var_os(COVERAGE).map(|path| (COVERAGE, path)))
    }
}

impl CleanEnvironment for tokio::process::Command {
    fn clean_environment(&mut self) -> &mut Self {
        self.as_std_mut().clean_environment();
        self
    }
}
