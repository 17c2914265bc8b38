//! Programs that must not compile: each program says why in its first lines, and beside
//! it lies what the compiler says, so that none fails for another reason.

use std::process::Command;

/// The compiler whose words are kept. Others word the same errors differently,
/// and for them the documentation tests of `Reward` compare error codes.
const COMPILER: &str = "rustc 1.95.";

/// After a change of the compiler or of what it cites,
/// `TRYBUILD=overwrite cargo test -p bandana-client --test compile_fail` writes
/// the new words. Look at the difference.
#[test]
fn rewards_and_noise_can_not_be_misused() {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let version = Command::new(rustc).arg("--version").output().unwrap().stdout;
    let version = String::from_utf8(version).unwrap();
    let cases = trybuild::TestCases::new();
    cases.pass("tests/compile_pass/*.rs");
    if version.starts_with(COMPILER) {
        cases.compile_fail("tests/compile_fail/*.rs");
    } else {
        eprintln!("not compared: the words kept are those of {COMPILER}, this is {version}");
    }
}
