//! Private queries of data sets: files of rows whose owner lets analysts ask, at a price.
//!
//! - [`datasets`]: files of rows, their readers, and the digests of their contents.
//! - [`CuratorService`]: the service, which registers data sets, answers questions and holds sessions. Every
//!   answer is paid for from the data set's budget before it is sent.
//! - [`Changes`]: what the service needs of the server's writer. It reads the [store](bandana_store) by itself.
//!
//! The mechanisms and their prices are those of [`bandana_mechanisms::queries`].

mod changes;
pub mod datasets;
mod service;

pub use changes::{ChangeError, Changes};
pub use service::{CuratorService, DataSetSettings};
