//! Readers of this crate that are not public, for the package that fuzzes them.

use axum::http::Uri;

use crate::cli::draft::Draft;

/// Reads a key file, and writes what was understood.
pub fn key_file(text: &str) {
    crate::cli::fuzz_key_file(text);
}

/// Reads the file of a new experiment, and makes the request.
pub fn draft(text: &str) {
    if let Ok(draft) = toml::from_str::<Draft>(text) {
        draft.request(true).ok();
    }
}

/// Reads an address and a body of the dashboard.
pub fn request(address: &[u8], body: &[u8]) {
    let uri = Uri::try_from(address);
    crate::dashboard::fuzz_requests(uri.as_ref().ok(), body);
}
