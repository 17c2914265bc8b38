//! Environments of programs that must not see the settings of whoever starts them.

/// Where a program that was built by `.ci/coverage` writes what it has run.
const COVERAGE: &str = "LLVM_PROFILE_FILE";

/// A command whose program inherits no settings.
pub trait CleanEnvironment {
    /// Clears the environment, but for the path that `.ci/coverage` needs each process to know.
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
