//! What trusted mode promises, checked from outside.

mod audit;
mod checker;
mod keeper;
mod protocol;
