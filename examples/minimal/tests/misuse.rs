//! Misuse: programs that must not compile. The first lines of each program state the reason. The expected
//! compiler output is beside it, so that no program fails for another reason.

use std::process::Command;

/// The compiler version of the expected output. Other versions word the same errors differently;
/// for them the documentation tests of `Reward` compare error codes.
const COMPILER: &str = "rustc 1.95.";

/// After a change of the compiler or of the cited code,
/// `TRYBUILD=overwrite cargo test -p bandana-minimal --test misuse` rewrites the expected
/// output. Review the difference.
#[test]
fn rewards_and_noise_can_not_be_misused() {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let version = Command::new(rustc).arg("--version").output().unwrap().stdout;
    let version = String::from_utf8(version).unwrap();
    if version.starts_with(COMPILER) {
        // Without a program that must compile, nothing is linked, and crates are only checked.
        trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
    } else {
        eprintln!("not compared: the words kept are those of {COMPILER}, this is {version}");
    }
}
