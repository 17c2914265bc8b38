//! Writes the generated files of the repository anew.

fn main() -> anyhow::Result<()> {
    bandana_tests::committed::write()
}
