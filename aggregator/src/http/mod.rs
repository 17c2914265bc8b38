//! Pages of the operators' port beside gRPC: the dashboard, metrics and probes.
//!
//! The same pages over HTTP/1.1 and HTTP/2. Over HTTP/1.1 there is nothing else: what a
//! web page can make a browser send must not reach the operators' service.

mod authorized;
mod host;
mod pages;
mod probes;
mod server;

pub use pages::Pages;
pub use server::PageServer;
