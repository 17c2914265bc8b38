//! The caller's bearer token.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Request, Status};
use zeroize::Zeroizing;

use super::ConnectError;

/// The environment variable of the token. There is no flag, because command lines are visible to
/// other users.
const VARIABLE: &str = "BANDANA_OPERATOR_TOKEN";

/// Upper limit on the size of a token file, in bytes.
const BYTES_MAX: usize = 4096;

/// Where the token is.
#[derive(Clone, Debug, Default, Args)]
pub struct TokenSource {
    /// File with your token, if the server asks for one. You can also put the token itself into
    /// $BANDANA_OPERATOR_TOKEN.
    #[arg(long, value_name = "FILE", env = "BANDANA_OPERATOR_TOKEN_FILE",
          value_hint = ValueHint::FilePath)]
    token_file: Option<PathBuf>,
}

impl TokenSource {
    /// Reads the token, if one is configured.
    pub(super) fn read(&self) -> Result<Bearer, ConnectError> {
        let (text, place) = match &self.token_file {
            Some(path) => (Some(read(path)?), path.display().to_string()),
            None => (std::env::var(VARIABLE).ok().map(Zeroizing::new), format!("${VARIABLE}")),
        };
        let Some(text) = text else { return Ok(Bearer(None)) };
        let header = Zeroizing::new(format!("Bearer {}", text.trim()));
        let value: Result<MetadataValue<Ascii>, _> = header.parse();
        match value {
            Ok(mut value) if !text.trim().is_empty() => {
                value.set_sensitive(true);
                Ok(Bearer(Some(value)))
            }
            _ => Err(ConnectError::Unusable(format!(
                "{place} is not a token; it must hold what `bandana token new` printed, and no more"
            ))),
        }
    }
}

fn read(path: &Path) -> Result<Zeroizing<String>, ConnectError> {
    let mut text = Zeroizing::new(String::with_capacity(BYTES_MAX));
    let file = std::fs::File::open(path);
    let outcome = file.and_then(|file| file.take(BYTES_MAX as u64).read_to_string(&mut text));
    match outcome {
        Ok(_) => Ok(text),
        Err(error) => {
            let path = path.display();
            Err(ConnectError::Unusable(format!("can't read the token file {path}: {error}")))
        }
    }
}

/// Interceptor that adds the token to every call.
#[derive(Clone, Debug)]
pub struct Bearer(Option<MetadataValue<Ascii>>);

impl Bearer {
    /// Whether there is a token to protect.
    pub(super) fn is_secret(&self) -> bool {
        self.0.is_some()
    }
}

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request.metadata_mut().insert("authorization", value.clone());
        }
        Ok(request)
    }
}
