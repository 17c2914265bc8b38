//! The check before everything on the operators' port that is not for everybody.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{Extensions, HeaderMap};
use prometheus_client::metrics::counter::Counter;
use tonic::service::Interceptor;
use tonic::{Request, Status};
use tracing::field::display;

use super::token::{TokenHash, TokenName};
use super::tokens::Tokens;
use crate::clock::Clock;
use crate::gates::Limiter;
use crate::network::Peer;

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

    fn caller(&self, headers: &HeaderMap, extensions: &Extensions) -> Option<Caller> {
        let peer: Option<&Peer> = extensions.get();
        let certificate = peer.and_then(|peer| peer.certificate.clone());
        let Some(tokens) = &self.tokens else { return Some(Caller { named: None, certificate }) };
        let mut headers = headers.get_all(AUTHORIZATION).iter();
        let (Some(header), None) = (headers.next(), headers.next()) else { return None };
        let (scheme, presented) = header.as_bytes().split_at_checked(SCHEME.len())?;
        if !scheme.eq_ignore_ascii_case(SCHEME.as_bytes()) {
            return None;
        }
        let hash = TokenHash::of(presented);
        let name = tokens.find(&hash)?;
        let named = Some(Named { name, hash, tokens: Arc::clone(tokens) });
        Some(Caller { named, certificate })
    }
}

impl Interceptor for Authorization {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        match self.check(request.metadata().as_ref(), request.extensions()) {
            Some(caller) => {
                request.extensions_mut().insert(caller);
                Ok(request)
            }
            None => Err(denied()),
        }
    }
}

/// What a caller hears who may not call: the same in all cases.
pub(crate) fn denied() -> Status {
    Status::unauthenticated("not authorised; a valid token is needed")
}

/// Who makes a call.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    named: Option<Named>,
    /// The certificate (DER) that was shown.
    certificate: Option<Arc<[u8]>>,
}

#[derive(Clone, Debug)]
struct Named {
    name: TokenName,
    hash: TokenHash,
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

    /// Whether the caller may still call.
    pub(crate) fn is_allowed(&self) -> bool {
        self.named.as_ref().is_none_or(|named| named.tokens.find(&named.hash).is_some())
    }

    /// Returns when the caller may call no more.
    pub(crate) async fn revoked(self) {
        match self.named {
            Some(Named { hash, tokens, .. }) => tokens.revoked(hash).await,
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
