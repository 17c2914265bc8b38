//! The example programs, run as their pages say.

mod load;
mod private_queries;
mod programs;
mod secured_server;
mod trusted_users;
