//! Data sets: files of rows on the server's host, how they are read, and which content they have.
//!
//! - [`data_file`]: a file in the directory of data sets, opened without following links out of it.
//! - [`reading`]: its rows, from CSV or Parquet.
//! - [`content`]: the digest of its rows, however they are written.
//! - [`fingerprint`]: digests with a key of the store, which tell callers nothing.

pub mod content;
pub mod data_file;
pub mod fingerprint;
pub mod reading;
