//! The authorisation check before everything restricted on the operators' port.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{Extensions, HeaderMap};
use prometheus_client::metrics::counter::Counter;
use tonic::Status;
use tracing::field::display;

use super::access::Access;
use super::role::{Role, Roles};
use super::token::{TokenHash, TokenName};
use super::tokens::Tokens;
use crate::clock::Clock;
use crate::peer::Peer;
use crate::rate::Limiter;

/// The scheme before a token in its header; compared without regard to case.
const SCHEME: &str = "bearer ";

/// Admits calls that their caller may make, and attaches the caller to them.
#[derive(Clone, Debug)]
pub struct Authorization {
    /// None: no token is required.
    tokens: Option<Arc<Tokens>>,
    /// Counts refused calls.
    refused: Counter,
    /// Limits log lines, since one per refusal would let any caller fill the log.
    lines: Arc<Limiter>,
}

/// The least time between two log lines about refusals.
const BETWEEN_LINES: Duration = Duration::from_mins(1);

impl Authorization {
    /// Requires one of these tokens, if given, and counts refusals.
    pub fn new(tokens: Option<Arc<Tokens>>, refused: Counter, clock: Arc<dyn Clock>) -> Self {
        let lines = Arc::new(Limiter::once_in(BETWEEN_LINES, clock));
        Self { tokens, refused, lines }
    }

    /// Whether callers on this connection are identified by something that no page of another host
    /// has.
    pub fn knows_callers(&self, extensions: &Extensions) -> bool {
        let peer: Option<&Peer> = extensions.get();
        self.tokens.is_some() || peer.is_some_and(|peer| peer.certificate.is_some())
    }

    /// The caller with these headers, on a connection with these extensions. None: the caller is
    /// not admitted. Records the caller in the current span.
    pub fn check(&self, headers: &HeaderMap, extensions: &Extensions) -> Option<Caller> {
        let caller = self.caller(headers, extensions);
        if let Some(caller) = &caller {
            tracing::Span::current().record("caller", display(caller));
        } else {
            self.refused.inc();
            if self.lines.pass().is_ok() {
                tracing::warn!("somebody without a valid token was refused");
            }
        }
        caller
    }

    /// The caller of the method at this path, if admitted.
    pub(super) fn admit(
        &self,
        path: &str,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<Caller, Status> {
        let caller = self.check(headers, extensions).ok_or_else(denied)?;
        let unknown = || Status::unimplemented("there is no such method for operators");
        caller.admitted_to(Access::of_method(path).ok_or_else(unknown)?)
    }

    fn caller(&self, headers: &HeaderMap, extensions: &Extensions) -> Option<Caller> {
        let peer: Option<&Peer> = extensions.get();
        let certificate = peer.and_then(|peer| peer.certificate.clone());
        let Some(tokens) = &self.tokens else {
            return Some(Caller { certificate, ..Caller::default() });
        };
        let mut headers = headers.get_all(AUTHORIZATION).iter();
        let (Some(header), None) = (headers.next(), headers.next()) else { return None };
        let (scheme, presented) = header.as_bytes().split_at_checked(SCHEME.len())?;
        if !scheme.eq_ignore_ascii_case(SCHEME.as_bytes()) {
            return None;
        }
        let hash = TokenHash::of(presented);
        let (name, roles) = tokens.find(&hash)?;
        let named = Some(TokenHolder { name, hash, roles, tokens: Arc::clone(tokens) });
        Some(Caller { named, certificate, access: Access::AnyRole })
    }
}

/// The status for a caller without a valid token: the same in all cases.
fn denied() -> Status {
    Status::unauthenticated("a valid token is needed")
}

/// The identity of a caller.
#[derive(Clone, Debug)]
pub struct Caller {
    named: Option<TokenHolder>,
    /// The client certificate (DER).
    certificate: Option<Arc<[u8]>>,
    /// The access under which the caller was admitted.
    access: Access,
}

impl Default for Caller {
    fn default() -> Self {
        Self { named: None, certificate: None, access: Access::AnyRole }
    }
}

#[derive(Clone, Debug)]
struct TokenHolder {
    name: TokenName,
    hash: TokenHash,
    roles: Roles,
    tokens: Arc<Tokens>,
}

impl Caller {
    /// The caller of a request, as [`Authorization`] noted it.
    pub fn of(extensions: &Extensions) -> Self {
        extensions.get().cloned().unwrap_or_default()
    }

    /// Whether the caller is unknown, because no identity is required.
    pub fn is_anybody(&self) -> bool {
        self.named.is_none() && self.certificate.is_none()
    }

    /// The same caller, admitted under this access. A caller that needs no token has every role.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`, with the required roles.
    pub fn admitted_to(self, access: Access) -> Result<Self, Status> {
        if access.allows(self.roles()) {
            return Ok(Self { access, ..self });
        }
        let (needed, roles) = (access.roles(), self.roles());
        Err(Status::permission_denied(format!(
            "this needs a token with the role {needed}; that of {self} has {roles}"
        )))
    }

    fn roles(&self) -> Roles {
        self.named.as_ref().map_or(Roles::ALL, |named| named.roles)
    }

    /// Whether the caller may see the debits of others.
    pub fn sees_all_debits(&self) -> bool {
        self.roles().have(Role::Custodian)
    }

    /// The status for a caller whose access was revoked. None: the caller still has the access
    /// under which it was admitted.
    pub fn turned_away(&self) -> Option<Status> {
        let named = self.named.as_ref()?;
        let Some((_, roles)) = named.tokens.find(&named.hash) else { return Some(denied()) };
        let named = Some(TokenHolder { roles, ..named.clone() });
        Self { named, ..self.clone() }.admitted_to(self.access).err()
    }

    /// Returns when the caller's access is revoked.
    pub async fn revoked(self) {
        match self.named {
            Some(TokenHolder { hash, tokens, .. }) => {
                tokens.revoked(hash, move |roles| self.access.allows(roles)).await;
            }
            None => std::future::pending().await,
        }
    }
}

/// The name of the token, or else the SHA-256 of the certificate, for the log.
impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.named, &self.certificate) {
            (Some(named), _) => named.name.fmt(f),
            (None, Some(certificate)) => {
                f.write_str("certificate ")?;
                TokenHash::of(certificate).fmt(f)
            }
            (None, None) => f.write_str("(anybody)"),
        }
    }
}
