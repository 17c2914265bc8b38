//! Data sets: files of rows on the server's host, their readers, and the digests of their contents.
//!
//! - [`data_file`]: a file in the directory of data sets, opened without following links.
//! - [`reading`]: its rows, from CSV or Parquet.
//! - [`content`]: the digest of its rows, independent of their format.
//! - `text`: the encodings of texts.
//! - [`bandana_store::fingerprint`]: digests keyed by the store, which reveal nothing to callers.

pub mod content;
pub mod data_file;
pub mod reading;
mod text;
