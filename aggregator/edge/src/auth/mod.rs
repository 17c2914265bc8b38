//! Authorisation: tokens, roles and app keys, and those that a call needs.

mod access;
mod app_keys;
mod authorization;
mod media_type;
mod operator_gate;
mod role;
mod token;
mod token_list;
mod tokens;

pub use access::Access;
pub use app_keys::{APP_KEY_HEADER, unknown_app};
pub use app_keys::{App, AppKeys, AppShare};
pub use authorization::{Authorization, Caller};
pub(crate) use media_type::refuse_other_media_types;
pub use operator_gate::OperatorGate;
pub use role::{Role, RoleError, Roles};
pub use token::{Token, TokenHash, TokenKind, TokenName, TokenNameError};
pub use token_list::{TokenList, TokenListError};
pub use tokens::{Tokens, TokensError};
