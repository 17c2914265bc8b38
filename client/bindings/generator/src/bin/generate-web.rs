//! Generates the JavaScript beside a built WebAssembly, for the directory that is given.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(module), Some(directory)) = (arguments.next(), arguments.next()) else {
        return Err("give the WebAssembly, and the directory to write to".into());
    };
    wasm_bindgen_cli_support::Bindgen::new()
        .input_path(module)
        .web(true)?
        .typescript(true)
        .out_name("core")
        .generate(directory)?;
    Ok(())
}
