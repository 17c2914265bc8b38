//! `bandana keys`.

use std::io::Write as _;
use std::path::PathBuf;

use bandana_shared::signing::SigningKey;
use clap::Subcommand;

use super::key_file;

/// Make and show keys that sign experiments.
#[derive(Debug, Subcommand)]
pub(super) enum Keys {
    /// Write a new secret key to a file, and print its public key.
    ///
    /// Give the public key to whoever builds the app, and let the app pin it. Do not keep the file
    /// on the server: a server that can sign protects nobody from itself.
    Generate {
        /// File for the secret key, which must not exist yet. Only its owner can read it.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Print the public key of a key file.
    Show {
        /// File that `bandana keys generate` wrote.
        file: PathBuf,
    },
}

pub(super) fn run(keys: &Keys) -> anyhow::Result<()> {
    let key = match keys {
        Keys::Generate { out } => {
            let key = SigningKey::generate()?;
            key_file::write(out, &key)?;
            key
        }
        Keys::Show { file } => key_file::read(file)?,
    };
    Ok(writeln!(std::io::stdout(), "{}", key.public_key())?)
}
