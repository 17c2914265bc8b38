//! Who may call, and what nobody on the way can read.

mod app_keys;
mod authorization;
mod reloader;
mod tls;
mod token;
mod token_list;
mod tokens;

pub(crate) use app_keys::unknown_app;
pub use app_keys::{App, AppKeys};
pub(crate) use authorization::denied;
pub use authorization::{Authorization, Caller};
pub use reloader::Reloader;
pub use tls::{ALPN_GRPC, ALPN_GRPC_AND_PAGES, Tls, TlsError, TlsFiles};
pub(crate) use tls::{provider, roots};
pub use token::{Token, TokenHash, TokenKind, TokenName, TokenNameError};
pub use token_list::{TokenList, TokenListError};
pub use tokens::{Tokens, TokensError};
