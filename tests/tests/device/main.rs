//! Devices: apps with the client library, against real servers and ones that misbehave.

mod driver;
mod embedding;
mod end_to_end;
mod fake_server;
mod kary;
mod simulation_repeats;
mod trusted_device;
