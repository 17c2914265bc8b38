//! The reloader, which reads tokens, app keys, certificates and signed keys again on SIGHUP.

use std::sync::Arc;

use bandana_edge::auth::Tokens;
use bandana_edge::gateway::PublishedKeys;
use bandana_edge::tls::Tls;

/// The files that may change while a server runs.
#[derive(Clone, Debug)]
pub struct Reloader {
    pub(super) tokens: Vec<Arc<Tokens>>,
    pub(super) tls: Vec<Arc<Tls>>,
    pub(super) gateway_keys: Option<Arc<PublishedKeys>>,
}

impl Reloader {
    /// Reads the files now. A file that can't be used is logged and leaves its earlier content in
    /// effect. Ends with one line of the log.
    pub fn reload(&self) {
        for tokens in &self.tokens {
            if let Err(error) = tokens.reload() {
                error.log();
            }
        }
        for tls in &self.tls {
            if let Err(error) = tls.reload() {
                error.log();
            }
        }
        if let Some(keys) = &self.gateway_keys {
            keys.reload();
        }
        tracing::info!("files were read again");
    }
}
