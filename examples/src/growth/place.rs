//! Where the store of a size is, for as long as it is measured.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rand::TryRng as _;
use tempfile::TempDir;

use super::{CONNECTIONS, Size, Stores};
use crate::aggregator_process::AggregatorProcess;
use crate::load::{Database, statement};

/// Where a store is.
#[derive(Debug)]
pub(super) enum Place {
    /// In a temporary directory.
    Directory(TempDir),
    /// In a database of its own.
    Database {
        /// The study's database, which it is made and removed through.
        through: String,
        /// Its name.
        name: String,
        /// Its URL.
        url: String,
    },
}

impl Place {
    /// A place without a store.
    pub(super) async fn new(stores: &Stores) -> anyhow::Result<Self> {
        let through = match stores {
            Stores::Directories => return Ok(Self::Directory(tempfile::tempdir()?)),
            Stores::Database(url) => url.clone(),
        };
        let name = format!("growth_{:016x}", rand::rngs::SysRng.try_next_u64()?);
        let url = with_database(&through, &name)
            .context("the database's URL is not postgres://USER@HOST/DATABASE?SETTINGS")?;
        statement(&through, &format!("CREATE DATABASE {name}")).await?;
        Ok(Self::Database { through, name, url })
    }

    /// Removes it, whoever is connected.
    pub(super) async fn remove(self) -> anyhow::Result<()> {
        match self {
            Self::Directory(folder) => Ok(folder.close()?),
            Self::Database { through, name, .. } => {
                statement(&through, &format!("DROP DATABASE {name} WITH (FORCE)")).await
            }
        }
    }

    pub(super) fn folder(&self) -> Option<PathBuf> {
        match self {
            Self::Directory(folder) => Some(folder.path().to_owned()),
            Self::Database { .. } => None,
        }
    }

    pub(super) fn url(&self) -> Option<String> {
        match self {
            Self::Directory(_) => None,
            Self::Database { url, .. } => Some(url.clone()),
        }
    }

    /// Starts a server of this size on it.
    pub(super) async fn start(
        &self,
        program: &Path,
        size: Size,
    ) -> anyhow::Result<AggregatorProcess> {
        let days = size.days.to_string();
        let connections = (size.devices + 2 * CONNECTIONS).to_string();
        let flags = [
            "--limit-uploads-per-second-per-connection",
            "0",
            "--limit-connections",
            &connections,
            "--replay-window-days",
            &days,
        ];
        match self {
            Self::Directory(folder) => {
                AggregatorProcess::start_with(&flags, program, folder.path()).await
            }
            Self::Database { url, .. } => {
                AggregatorProcess::start_replica_with(&flags, program, url).await
            }
        }
    }

    /// The size on disk, while no server runs.
    pub(super) async fn bytes(&self) -> anyhow::Result<u64> {
        match self {
            Self::Directory(folder) => {
                let mut sum = 0;
                for entry in std::fs::read_dir(folder.path())? {
                    sum += entry?.metadata()?.len();
                }
                Ok(sum)
            }
            Self::Database { url, .. } => Database::bytes(url).await,
        }
    }
}

/// The URL of another database of the same server.
fn with_database(url: &str, name: &str) -> Option<String> {
    let (address, settings) = url.split_at(url.find('?').unwrap_or(url.len()));
    let (scheme, server) = address.split_once("://")?;
    let server = server.split('/').next()?;
    Some(format!("{scheme}://{server}/{name}{settings}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_database_of_a_url_is_another() {
        let socket = with_database("postgres://bandana@/growth?host=/run/postgresql", "one");
        assert_eq!(socket.unwrap(), "postgres://bandana@/one?host=/run/postgresql");
        let host = with_database("postgres://bandana@localhost:5432/growth", "one");
        assert_eq!(host.unwrap(), "postgres://bandana@localhost:5432/one");
        assert_eq!(with_database("host=/run/postgresql", "one"), None);
    }
}
