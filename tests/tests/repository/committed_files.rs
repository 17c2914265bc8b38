//! Committed generated files are up to date.

#[test]
fn committed_files_are_what_their_generators_write() -> anyhow::Result<()> {
    bandana_tests::committed::check()
}
