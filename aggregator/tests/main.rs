//! The server as a library, and the texts of its command line.

mod alarms;
mod command_line;
mod ingest;
