//! What happens on SIGHUP.

use std::sync::Arc;

use super::tls::Tls;
use super::tokens::Tokens;

/// Reads again the files that may change while a server runs.
#[derive(Clone, Debug)]
pub struct Reloader {
    pub(crate) tokens: Option<Arc<Tokens>>,
    pub(crate) tls: Vec<Arc<Tls>>,
}

impl Reloader {
    /// Reads them now. One that can't be used leaves what was read before, and is
    /// logged. Ends with one line of the log.
    pub fn reload(&self) {
        if let Some(tokens) = &self.tokens
            && let Err(error) = tokens.reload()
        {
            error.log();
        }
        for tls in &self.tls {
            if let Err(error) = tls.reload() {
                error.log();
            }
        }
        tracing::info!("files were read again");
    }
}
