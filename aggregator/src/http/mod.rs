//! The operators' pages: dashboard, metrics and probes, and the origins of pages that may call devices'
//! services.
//!
//! The pages are the same over HTTP/1.1 and HTTP/2. On the operators' port HTTP/1.1 serves nothing
//! else: requests that a web page can make a browser send must not reach the operators' service.

mod authorized;
mod cors;
mod pages;
mod probes;

pub use cors::{Origins, OriginsError};
pub use pages::Pages;
