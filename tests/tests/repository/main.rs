//! The repository: its documents, what is generated and committed, and the order of modules.

mod committed_files;
mod documents;
mod module_order;
