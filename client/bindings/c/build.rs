//! Gives the library its name for linkers, which changes with its interface.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is_linux = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux");
    if is_linux {
        let [major, minor] = ["CARGO_PKG_VERSION_MAJOR", "CARGO_PKG_VERSION_MINOR"]
            .map(|part| std::env::var(part).unwrap_or_default());
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libbandana.so.{major}.{minor}");
    }
}
