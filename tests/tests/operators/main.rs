//! Operators: their commands and calls, the answers, and the permissions.

mod audit;
mod backup;
mod corruption;
mod data_sets;
mod experiments;
mod exports;
mod forged;
mod found_names;
mod guardrails;
mod harm;
mod large_answers;
mod lifecycle;
mod lists;
mod operator_commands;
mod people;
mod queries;
mod records;
mod roles;
mod signing_commands;
mod tokens;
mod trusted_operators;
mod waiting;
