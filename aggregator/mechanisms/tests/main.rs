//! Noise, prices and queries by their public items.

mod choices;
mod interval;
mod intervals;
mod loss_distribution;
mod noise;
mod partition;
mod people;
mod prices;
mod queries;
mod renyi;
mod sessions;
mod threshold;
