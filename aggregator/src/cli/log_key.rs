//! `bandana log-key`.

use std::path::PathBuf;

use anyhow::ensure;
use bandana_edge::log_key;
use bandana_shared::signing::SigningKey;
use bandana_shared::transparency::{NoteSigner, Role};
use clap::{Subcommand, ValueEnum};

use super::{Readers, say, write_new};

/// Make and show the keys of a public log and of its witnesses.
#[derive(Debug, Subcommand)]
pub(super) enum LogKeyCommand {
    /// Write a new secret key to a file, and print its name with the public key.
    ///
    /// Apps pin what this prints. The key of a log belongs to the server (`key_file` in [log]). The
    /// key of a witness belongs to somebody else.
    Generate {
        /// Who signs with it.
        #[arg(long, value_enum)]
        role: KeyRole,
        /// Name of the log or witness: an address without https://, such as bandana.example/log.
        /// There need not be a page at it.
        #[arg(long)]
        name: String,
        /// File for the secret key, which must not exist yet. Only its owner can read it.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Print the name with the public key of a file.
    Show {
        /// File that `bandana log-key generate` wrote.
        file: PathBuf,
    },
}

/// Who signs with a key.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum KeyRole {
    /// A log, which signs its own checkpoints.
    Log,
    /// A witness, which signs checkpoints of logs.
    Witness,
}

pub(super) fn run(command: &LogKeyCommand) -> anyhow::Result<()> {
    let public = match command {
        LogKeyCommand::Generate { role, name, out } => {
            let role = match role {
                KeyRole::Log => Role::Log,
                KeyRole::Witness => Role::Witness,
            };
            ensure!(!name.contains("://"), "--name {name} has a scheme; leave https:// out");
            let secret = SigningKey::generate()?;
            let text = log_key::to_text(role, name, &secret);
            // Before anything is written: the name may be none.
            let public = NoteSigner::new(name, role, secret)?.public().clone();
            write_new(out, text.as_bytes(), Readers::Owner)?;
            public
        }
        LogKeyCommand::Show { file } => log_key::read_any(file)?.public().clone(),
    };
    say(&format!("{public}\n"))
}
