//! Operators: what they do by commands and calls, what it answers, and who may.

mod audit;
mod backup;
mod corruption;
mod data_sets;
mod experiments;
mod exports;
mod guardrails;
mod lifecycle;
mod lists;
mod operator_commands;
mod queries;
mod roles;
mod signing_commands;
mod tokens;
mod trusted_operators;
