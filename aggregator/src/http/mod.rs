//! The servers of both versions of HTTP, and the operators' pages: dashboard, metrics and probes.
//!
//! The pages are the same over HTTP/1.1 and HTTP/2. On the operators' port HTTP/1.1 serves nothing
//! else: requests that a web page can make a browser send must not reach the operators' service.

mod authorized;
mod cors;
mod host;
mod http2;
mod pages;
mod probes;
mod server;

pub use cors::{Origins, OriginsError};
pub(crate) use host::OneHost;
pub use http2::Http2Server;
pub use pages::Pages;
pub use server::Http1Server;
