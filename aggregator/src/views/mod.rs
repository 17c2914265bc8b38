//! Views: operators' input and output about experiments, as JSON, tables and words.
//!
//! The command line and the dashboard accept the same settings and show the same fields.

pub(crate) mod alarm_view;
mod arm_estimate_view;
pub(crate) mod audit_view;
pub(crate) mod columns;
mod context_view;
#[cfg(feature = "queries")]
pub(crate) mod data_set_view;
pub(crate) mod date;
pub(crate) mod estimates_view;
pub(crate) mod experiment_settings;
pub(crate) mod experiment_view;
pub(crate) mod failure;
mod lead_view;
mod measurement_view;
pub(crate) mod over_time_view;
pub(crate) mod record_view;
pub(crate) mod released_view;
pub(crate) mod seconds;
mod sentence;
pub(crate) mod summary_view;
pub(crate) mod table;
pub(crate) mod tallies_view;
pub(crate) mod trusted_settings;
pub(crate) mod trusted_view;
pub(crate) mod vectors_file;
