//! Generates the files in other languages from the built library.

fn main() {
    uniffi::uniffi_bindgen_main();
}
