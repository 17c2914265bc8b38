//! Generates the header for C from the sources of the crate in the directory that is given.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(directory), Some(header)) = (arguments.next(), arguments.next()) else {
        return Err("give the crate's directory, and the header to write".into());
    };
    let configuration = cbindgen::Config::from_file(directory.join("cbindgen.toml"))?;
    let mut builder = cbindgen::Builder::new().with_config(configuration);
    // In the order of the header.
    for source in ["border", "settings", "client", "choices", "steps", "text"] {
        builder = builder.with_src(directory.join(format!("src/{source}.rs")));
    }
    builder.generate()?.write_to_file(header);
    Ok(())
}
