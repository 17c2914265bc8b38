//! Learners by their public items, and beside references.

mod contexts;
mod harm;
mod learner_weights;
