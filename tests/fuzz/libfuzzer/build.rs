//! Linker settings: each program contains only the code that its target can call, with the counters
//! of that code.
//!
//! libFuzzer scans all counters after every input. The counters of the whole workspace would take
//! longer than a small target's run.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-bins=-Wl,-z,start-stop-gc");
}
