//! The servers of both versions of HTTP.

mod host;
mod http2;
mod refusal;
mod server;

pub use host::OneHost;
pub use http2::Http2Server;
pub use refusal::{refusal, unknown_service};
pub use server::Http1Server;
