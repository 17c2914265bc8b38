//! Generates the header for C from the sources of the crate in the directory that is given.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(directory), Some(header)) = (arguments.next(), arguments.next()) else {
        return Err("give the crate's directory, and the header to write".into());
    };
    let configuration = cbindgen::Config::from_file(directory.join("cbindgen.toml"))?;
    let sources = [directory.join("src/lib.rs")];
    let mut builder = cbindgen::Builder::new().with_config(configuration);
    for source in sources {
        builder = builder.with_src(source);
    }
    builder.generate()?.write_to_file(header);
    Ok(())
}
