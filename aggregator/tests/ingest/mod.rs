//! Ingest: writers and stores, driven from inside.

mod connections;
mod signatures;
mod store;
mod two_arms;
mod verify;
mod writer;
