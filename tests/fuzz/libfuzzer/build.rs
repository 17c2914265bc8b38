//! Linking: each program holds what its own target can call, and the counters of that alone.
//!
//! libFuzzer looks through all counters after every input; with those of all that is compiled, that
//! would take longer than the small targets do.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-bins=-Wl,-z,start-stop-gc");
}
