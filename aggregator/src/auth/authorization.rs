//! The check before everything on the operators' port that is not for everybody.

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

/// What is before a token in its header; compared without regard to case.
const SCHEME: &str = "bearer ";

/// Lets calls pass whose caller may make them, and notes who that is.
#[derive(Clone, Debug)]
pub struct Authorization {
    /// None: no token is asked for.
    tokens: Option<Arc<Tokens>>,
    /// Counts those that may not call.
    refused: Counter,
    /// A line of the log for each of them would let anybody fill it.
    lines: Arc<Limiter>,
}

/// At most one line of the log in this time says that somebody was refused.
const BETWEEN_LINES: Duration = Duration::from_mins(1);

impl Authorization {
    /// Asks for one of these tokens, if there are any to be had, and counts who has none.
    pub fn new(tokens: Option<Arc<Tokens>>, refused: Counter, clock: Arc<dyn Clock>) -> Self {
        let lines = Arc::new(Limiter::once_in(BETWEEN_LINES, clock));
        Self { tokens, refused, lines }
    }

    /// Whether callers on a connection with these extensions are known by something that
    /// no page of another host has.
    pub fn knows_callers(&self, extensions: &Extensions) -> bool {
        let peer: Option<&Peer> = extensions.get();
        self.tokens.is_some() || peer.is_some_and(|peer| peer.certificate.is_some())
    }

    /// Who calls with these headers, on a connection with these extensions. None: somebody
    /// who may not. The span that the call happens in learns who it is.
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

    /// Who calls the method at this path, if that caller may.
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
        let named = Some(Named { name, hash, roles, tokens: Arc::clone(tokens) });
        Some(Caller { named, certificate, access: Access::AnyRole })
    }
}

/// What a caller hears without a valid token: the same in all cases.
fn denied() -> Status {
    Status::unauthenticated("not authorised; a valid token is needed")
}

/// Who makes a call.
#[derive(Clone, Debug)]
pub struct Caller {
    named: Option<Named>,
    /// The certificate (DER) that was shown.
    certificate: Option<Arc<[u8]>>,
    /// To what the caller was let in.
    access: Access,
}

impl Default for Caller {
    fn default() -> Self {
        Self { named: None, certificate: None, access: Access::AnyRole }
    }
}

#[derive(Clone, Debug)]
struct Named {
    name: TokenName,
    hash: TokenHash,
    roles: Roles,
    tokens: Arc<Tokens>,
}

impl Caller {
    /// The caller of a request, as [`Authorization`] noted it.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        extensions.get().cloned().unwrap_or_default()
    }

    /// Whether nothing is known about the caller, because nobody is asked.
    pub(crate) fn is_anybody(&self) -> bool {
        self.named.is_none() && self.certificate.is_none()
    }

    /// The same caller, let in to what has this access. Whoever needs no token has every role.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`, with the roles that are needed.
    pub(crate) fn admitted_to(self, access: Access) -> Result<Self, Status> {
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

    /// Whether the caller may see what others have spent.
    pub(crate) fn sees_all_debits(&self) -> bool {
        self.roles().have(Role::Custodian)
    }

    /// What the caller hears who may call no more. None: whoever may still do what it was let
    /// in to.
    pub(crate) fn turned_away(&self) -> Option<Status> {
        let named = self.named.as_ref()?;
        let Some((_, roles)) = named.tokens.find(&named.hash) else { return Some(denied()) };
        let named = Some(Named { roles, ..named.clone() });
        Self { named, ..self.clone() }.admitted_to(self.access).err()
    }

    /// Returns when the caller may call no more.
    pub(crate) async fn revoked(self) {
        match self.named {
            Some(Named { hash, tokens, .. }) => {
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
