//! The repository: documents, committed generated files, and the order of modules.

mod committed_files;
mod documents;
mod formats;
mod module_order;
