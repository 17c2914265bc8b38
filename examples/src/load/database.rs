//! A database: its processor time, if it is on this host, and its size.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Error, NoTls};

use crate::process_usage::{family_time, parent};

/// The processes of a PostgreSQL server on this host.
#[derive(Clone, Copy, Debug)]
pub struct Database {
    /// The first process, whose children the others are.
    first: u32,
}

impl Database {
    /// Finds the processes of the server behind a URL.
    ///
    /// # Errors
    /// When it can't be reached without TLS, or is not on this host.
    pub async fn find(url: &str) -> anyhow::Result<Self> {
        let (client, connection) = connect(url).await?;
        let row = client.query_one("SELECT pg_backend_pid()", &[]).await?;
        let backend = u32::try_from(row.get::<_, i32>(0))?;
        // The number may belong to another process of this host. Ours lives as long as `client`.
        let name = std::fs::read_to_string(format!("/proc/{backend}/comm"));
        let name = name.context("the database is on another host")?;
        ensure!(name.trim_end() == "postgres", "process {backend} here is {name}");
        let first = parent(backend)?;
        drop(client);
        connection.await??;
        Ok(Self { first })
    }

    /// The bytes of a database on disk.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub async fn bytes(url: &str) -> anyhow::Result<u64> {
        let (client, connection) = connect(url).await?;
        let query = "SELECT pg_database_size(current_database())";
        let bytes: i64 = client.query_one(query, &[]).await?.get(0);
        drop(client);
        connection.await??;
        Ok(u64::try_from(bytes)?)
    }

    /// The processor time of all of its processes so far.
    ///
    /// # Errors
    /// When it has ended.
    pub fn processor_time(self) -> anyhow::Result<Duration> {
        family_time(self.first)
    }
}

/// Runs a statement in the database with this URL.
///
/// # Errors
/// When it can't be reached without TLS, or refuses the statement.
pub async fn statement(url: &str, statement: &str) -> anyhow::Result<()> {
    let (client, connection) = connect(url).await?;
    client.batch_execute(statement).await.with_context(|| format!("{statement}: refused"))?;
    drop(client);
    connection.await??;
    Ok(())
}

/// A connection, and what ends when it does.
async fn connect(url: &str) -> anyhow::Result<(Client, JoinHandle<Result<(), Error>>)> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    Ok((client, tokio::spawn(connection)))
}
