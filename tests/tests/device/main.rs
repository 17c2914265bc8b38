//! Devices: apps with the client library, against real and misbehaving servers.

mod cells;
mod contexts;
mod driver;
mod embedding;
mod end_to_end;
mod fake_server;
mod features;
mod holdout;
mod kary;
mod relay;
mod shuffle;
mod silent_gateway;
mod simulation_repeats;
mod tagging;
mod transparency;
mod trusted_device;
mod users;
