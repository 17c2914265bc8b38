//! One connection to the database, for one thread.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bandana_edge::tls::{TlsError, provider, roots};
use bandana_shared::identity::StoreId;
use futures_util::future::join;
use rustls_native_certs::load_native_certs;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, SimpleQueryMessage, Statement, Transaction};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use zeroize::Zeroizing;

use super::heartbeat::Connectivity;
use super::hosts::Hosts;
use super::schema;
use super::settings::PostgresSettings;
use crate::{DamageError, DatabaseError, OpenError, Outcome, StoreError, damaged, postgres};

/// The time within which a connection must be established.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The timeout for slow statements: longer than the database's own statement timeout.
pub(super) const LONG_ANSWER: Duration = Duration::from_secs(12);

/// The number of attempts to learn the outcome of an unfinished transaction, and the pause between
/// them.
const LOOKS: usize = 20;
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The time after which a silent peer is considered gone, in both directions.
const SILENCE_MAX: Duration = Duration::from_secs(9);

/// Settings of every connection. Acknowledged commits are on disk whatever the role's defaults are;
/// statements see all earlier commits; and nothing takes long, as compiling a statement of a
/// millisecond would. The locks of a replica that hangs in a transaction are released after three
/// seconds, whether its host is alive or not.
const SESSION: &str = "
SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET client_min_messages = warning;
SET jit = off;
SET statement_timeout = '10s';
SET idle_in_transaction_session_timeout = '3s';
SET tcp_keepalives_idle = 10;
SET tcp_keepalives_interval = 3;
SET tcp_keepalives_count = 3;
SET tcp_user_timeout = '9s';
SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') = 'off';
";

/// The timeouts of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Waits {
    /// The timeout for an answer.
    answer: Duration,
    /// The timeout for a lock that another replica holds.
    lock: Duration,
}

impl Waits {
    const fn new(answer_ms: u64, lock_ms: u64) -> Self {
        Self { answer: Duration::from_millis(answer_ms), lock: Duration::from_millis(lock_ms) }
    }

    /// For uploads, which wait only for a commit of the same upload or for the end of a day.
    pub(crate) const UPLOADS: Self = Self::new(2500, 1000);
    /// For changes of experiments and of the curator, which other replicas make too.
    pub const CHANGES: Self = Self::new(5000, 1000);
    /// For disclosures to trusted experiments: a row is locked for milliseconds, and other replicas
    /// queue for it.
    pub const DISCLOSURES: Self = Self::new(2500, 200);
    /// For reads, which wait only for locks of schema changes.
    pub(crate) const READING: Self = Self { answer: LONG_ANSWER, lock: Duration::from_secs(1) };
    /// For replication between replicas, which is retried.
    pub const FOLLOWING: Self = Self { answer: LONG_ANSWER, lock: Duration::from_millis(200) };
    /// For the heartbeat.
    pub(super) const HEARTBEAT: Self = Self::new(2000, 1000);
}

/// Longest password, in bytes.
const PASSWORD_BYTES_MAX: usize = 1024;

/// A connection to the database that is established on demand, and again after a loss.
#[derive(Debug)]
pub struct PgConnection {
    target: Arc<Target>,
    waits: Waits,
    /// Whether the database answers at all. None: unknown.
    connectivity: Option<Connectivity>,
    session: Option<Session>,
    /// The runtime that drives the connection. None: the connection is being dropped.
    runtime: Option<Runtime>,
}

/// The target of connections.
pub struct Target {
    hosts: Hosts,
    tls: Option<MakeRustlsConnect>,
    /// The id of the store that the database must hold, once known.
    store: OnceLock<StoreId>,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The configuration's debug output shows no password.
        f.debug_struct("Target").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

/// The number of the next session.
static SESSIONS: AtomicU64 = AtomicU64::new(1);

/// An open connection.
#[derive(Debug)]
pub(crate) struct Session {
    /// A number that no other session of this process has.
    pub(super) number: u64,
    /// The host that it leads to, among those of the target.
    place: usize,
    pub(super) client: Client,
    prepared: HashMap<&'static str, Statement>,
}

impl Session {
    /// The statement, prepared once for each connection.
    pub(super) async fn prepare(
        &mut self,
        sql: &'static str,
    ) -> Result<Statement, tokio_postgres::Error> {
        if let Some(statement) = self.prepared.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql).await?;
        self.prepared.insert(sql, statement.clone());
        Ok(statement)
    }
}

impl Target {
    /// Reads the files that connections need.
    ///
    /// # Errors
    /// [`StoreError`] when a file can't be used.
    pub fn new(settings: &PostgresSettings) -> Result<Self, StoreError> {
        let mut config = settings.url.config();
        if let Some(password) = password(settings)? {
            config.password(password.as_bytes());
        }
        config.connect_timeout(CONNECT_TIMEOUT).application_name("bandana");
        config.keepalives_idle(Duration::from_secs(10));
        config.keepalives_interval(Duration::from_secs(3)).keepalives_retries(3);
        config.tcp_user_timeout(SILENCE_MAX);
        let tls = match config.get_ssl_mode() {
            SslMode::Disable => None,
            _ => Some(MakeRustlsConnect::new(client_config(settings)?)),
        };
        Ok(Self { hosts: Hosts::new(&config), tls, store: OnceLock::new() })
    }

    /// Whether this session is open, and leads to the host that connections use. Another one may no
    /// longer be the primary.
    fn leads_to(&self, session: &Session) -> bool {
        !session.client.is_closed() && session.place == self.hosts.place()
    }
}

impl PgConnection {
    /// A connection to `target`, made when it is first used.
    ///
    /// # Errors
    /// [`StoreError::Open`] when its runtime can't start.
    pub fn new(target: Arc<Target>, waits: Waits) -> Result<Self, StoreError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime =
            Some(runtime.map_err(|source| StoreError::Open(OpenError::Thread { source }))?);
        Ok(Self { target, waits, connectivity: None, session: None, runtime })
    }

    /// Makes the connection fail at once whenever the connectivity says that the database does not answer.
    #[must_use]
    pub fn with_connectivity(mut self, connectivity: Option<Connectivity>) -> Self {
        self.connectivity = connectivity;
        self
    }

    /// Requires the database to hold this store from now on: no connection to another store is
    /// used.
    pub fn expect(&self, store: StoreId) {
        // The first call decides.
        self.target.store.set(store).ok();
    }

    /// The id of the store that the database must hold.
    pub(super) fn expected(&self) -> Option<StoreId> {
        self.target.store.get().copied()
    }

    /// Runs `work`, on a new connection if there is none. After an error that may come from the
    /// connection, the next call opens a new one.
    ///
    /// Blocks; must not be called from asynchronous code.
    pub(crate) fn run<T>(
        &mut self,
        doing: &'static str,
        work: impl AsyncFnOnce(&mut Session) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.run_within(self.waits.answer, doing, work)
    }

    /// As [`Self::run`], for a read.
    pub(crate) fn read<T>(
        &mut self,
        read: impl AsyncFnOnce(&Client) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.run("reading", async |session| read(&session.client).await)
    }

    /// As [`Self::run`], with another timeout.
    pub(super) fn run_within<T>(
        &mut self,
        limit: Duration,
        doing: &'static str,
        work: impl AsyncFnOnce(&mut Session) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let Self { target, waits, connectivity, session, runtime } = self;
        let Some(runtime) = runtime else {
            return Err(StoreError::Database(DatabaseError::Slow { doing }));
        };
        if connectivity.as_ref().is_some_and(Connectivity::is_lost) {
            *session = None;
            return Err(StoreError::Database(DatabaseError::Silent));
        }
        let open = session.take().filter(|session| target.leads_to(session));
        runtime.block_on(async {
            let working = async {
                let mut current = match open {
                    Some(open) => open,
                    None => connect(target, *waits).await?,
                };
                let outcome = tokio::time::timeout(limit, work(&mut current)).await;
                let outcome =
                    outcome.unwrap_or(Err(StoreError::Database(DatabaseError::Slow { doing })));
                let keeps = match &outcome {
                    Ok(_) => true,
                    // A dropped transaction is rolled back before this method returns, not later.
                    Err(error) => error.keeps_connection() && settle(&current).await,
                };
                if keeps {
                    *session = Some(current);
                }
                outcome
            };
            let lost = async {
                match connectivity {
                    Some(connectivity) => connectivity.lost().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                outcome = working => outcome.map_err(StoreError::told),
                () = lost => Err(StoreError::Database(DatabaseError::Slow { doing })),
            }
        })
    }

    /// Runs `work` in a transaction. An error before the commit has changed nothing. If the outcome
    /// of the commit is unknown, the database is asked.
    pub(super) fn change<T>(
        &mut self,
        work: impl AsyncFnOnce(&Transaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let failed = postgres("committing");
        let mut committing = None;
        let outcome = self.run("committing", async |session| {
            let transaction = session.client.transaction().await.map_err(failed)?;
            // Both statements are sent at once, in this order.
            let number = transaction.simple_query("SELECT pg_current_xact_id()");
            let (number, value) = join(number, work(&transaction)).await;
            let value = value?;
            let number = number.map_err(failed)?;
            let number = number.iter().find_map(|message| match message {
                SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                _ => None,
            });
            committing = Some(number);
            transaction.commit().await.map_err(failed).map(|()| value)
        });
        match (outcome, committing) {
            (Err(error), None) => Err(error.not_made()),
            (Err(error), Some(Some(number))) if error.outcome() == Outcome::Unknown => {
                Err(if self.was_rolled_back(&number) { error.unmade() } else { error })
            }
            (outcome, _) => outcome,
        }
    }

    /// Whether the database confirms that it has rolled back this transaction. Only a rollback is
    /// believed: in a database that was set back in time, the number of a committed transaction may
    /// belong to another one.
    fn was_rolled_back(&mut self, number: &str) -> bool {
        let known = self.run("reading", async |session| {
            let query = "SELECT pg_xact_status($1::text::xid8)";
            for _ in 0..LOOKS {
                let row = session.client.query_one(query, &[&number]).await;
                let status: Option<String> = row.map_err(postgres("reading"))?.get(0);
                if status.as_deref() != Some("in progress") {
                    return Ok(status);
                }
                // The transaction's connection is lost, which the database will notice.
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            Ok(None)
        });
        known.is_ok_and(|status| status.as_deref() == Some("aborted"))
    }

    /// As [`Self::run`], on a connection of its own and without a timeout.
    pub(crate) fn run_for_long<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut Session) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let Some(runtime) = &self.runtime else {
            return Err(StoreError::Database(DatabaseError::Slow { doing: "connecting" }));
        };
        runtime.block_on(async {
            let mut session = connect(&self.target, self.waits).await?;
            work(&mut session).await.map_err(StoreError::told)
        })
    }

    /// Makes the next connection try another host first, if the URL names several.
    pub(super) fn leave_host(&self) {
        self.target.hosts.leave();
    }

    /// Whether there is an open connection, as far as is known.
    pub(crate) fn is_open(&self) -> bool {
        self.session.as_ref().is_some_and(|session| self.target.leads_to(session))
    }
}

impl Drop for PgConnection {
    fn drop(&mut self) {
        self.session = None;
        if let Some(runtime) = self.runtime.take() {
            // Closes the connection without blocking, since this may run in asynchronous code.
            runtime.shutdown_background();
        }
    }
}

/// Waits until the database has processed everything sent. Returns `false` if it does not answer.
async fn settle(session: &Session) -> bool {
    let answer = tokio::time::timeout(CONNECT_TIMEOUT, session.client.batch_execute(""));
    matches!(answer.await, Ok(Ok(())))
}

async fn connect(target: &Target, waits: Waits) -> Result<Session, StoreError> {
    let connecting = async {
        let (client, place) = target.hosts.connect(target.tls.as_ref()).await?;
        let lock = format!("SET lock_timeout = '{}ms';", waits.lock.as_millis());
        client.batch_execute(&(SESSION.to_owned() + &lock)).await?;
        Ok((client, place))
    };
    let doing = "connecting";
    let connected = tokio::time::timeout(waits.answer, connecting).await;
    let (client, place) = connected
        .map_err(|_| StoreError::Database(DatabaseError::Slow { doing }))?
        .map_err(postgres(doing))?;
    if let Some(expected) = target.store.get() {
        let found = tokio::time::timeout(waits.answer, schema::id(&client)).await;
        same(found.map_err(|_| StoreError::Database(DatabaseError::Slow { doing }))??, *expected)?;
    }
    let number = SESSIONS.fetch_add(1, Ordering::Relaxed);
    Ok(Session { number, place, client, prepared: HashMap::new() })
}

/// # Errors
/// [`StoreError::Database`].
pub(super) fn same(found: StoreId, expected: StoreId) -> Result<(), StoreError> {
    if found == expected {
        Ok(())
    } else {
        Err(StoreError::Database(DatabaseError::OtherStore { found, expected }))
    }
}

fn client_config(settings: &PostgresSettings) -> Result<ClientConfig, StoreError> {
    let roots = if let Some(path) = &settings.ca {
        roots(path)?
    } else {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(load_native_certs().certs);
        roots
    };
    let builder = ClientConfig::builder_with_provider(Arc::new(provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(TlsError::Versions)?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn password(settings: &PostgresSettings) -> Result<Option<Zeroizing<String>>, StoreError> {
    let Some(path) = &settings.password_file else {
        let in_url = settings.url.config().get_password().is_some();
        let of_environment = || std::env::var("PGPASSWORD").ok().map(Zeroizing::new);
        return Ok(if in_url { None } else { of_environment() });
    };
    let unreadable = |source| StoreError::Open(OpenError::Password { path: path.clone(), source });
    let text = Zeroizing::new(std::fs::read_to_string(path).map_err(unreadable)?);
    let password = text.trim_end_matches(['\r', '\n']);
    if password.is_empty() || password.len() > PASSWORD_BYTES_MAX {
        let what = "expected a password and nothing else";
        return Err(unreadable(std::io::Error::new(std::io::ErrorKind::InvalidData, what)));
    }
    Ok(Some(Zeroizing::new(password.to_owned())))
}

impl StoreError {
    /// The database's error code.
    pub(super) fn code(&self) -> Option<&SqlState> {
        match self {
            Self::Database(DatabaseError::Unmade { source }) => source.code(),
            Self::Database(DatabaseError::Postgres { source, .. }) => source.code(),
            _ => None,
        }
    }

    /// Whether the connection remains usable after the error.
    fn keeps_connection(&self) -> bool {
        match self {
            Self::Database(DatabaseError::Slow { .. } | DatabaseError::Silent) => false,
            Self::Database(DatabaseError::Unmade { source }) => source.keeps_connection(),
            Self::Database(DatabaseError::Postgres { source, .. }) => {
                // 08: connection, 57P: shutdown, 25: a read-only database.
                let lost = |code: &SqlState| {
                    ["08", "57P", "25"].iter().any(|class| code.code().starts_with(class))
                };
                !source.is_closed() && source.code().is_some_and(|code| !lost(code))
            }
            _ => true,
        }
    }

    /// Whether a retry may succeed: lost connections, conflicts, and a database that starts, ends,
    /// or lacks resources.
    pub(super) fn is_passing(&self) -> bool {
        let passing = ["08", "40", "53", "55", "57", "58", "25"];
        match self {
            Self::Database(DatabaseError::Slow { .. } | DatabaseError::Silent) => true,
            Self::Database(DatabaseError::Postgres { .. }) => self
                .code()
                .is_none_or(|code| passing.iter().any(|class| code.code().starts_with(class))),
            _ => false,
        }
    }

    /// Whether a lock that another replica holds has timed out.
    pub(super) fn is_locked(&self) -> bool {
        self.code() == Some(&SqlState::LOCK_NOT_AVAILABLE)
    }

    /// Marks an error before any commit as [`DatabaseError::Unmade`] when its outcome is unknown.
    pub(super) fn not_made(self) -> Self {
        if self.outcome() == Outcome::Unknown { self.unmade() } else { self }
    }

    /// Whether the database or the triggers on its rows report damage.
    pub(super) fn is_told_damage(&self) -> bool {
        let damaged =
            |code: &SqlState| [SqlState::DATA_CORRUPTED, SqlState::INDEX_CORRUPTED].contains(code);
        self.code().is_some_and(damaged)
    }

    /// Wraps damage in an error that names the remedy.
    fn told(self) -> Self {
        let damage = match &self {
            Self::Database(DatabaseError::Postgres { source, .. }) if self.is_told_damage() => {
                let said = source.as_db_error().map(|error| error.message().to_owned());
                damaged(said.unwrap_or_default())
            }
            Self::Damage(DamageError::Data { .. } | DamageError::Stored(_)) => self,
            _ => return self,
        };
        DamageError::Database { source: Box::new(damage) }.into()
    }

    /// Whether a row belongs to a day without a partition.
    pub(super) fn lacks_partition(&self) -> bool {
        self.code() == Some(&SqlState::CHECK_VIOLATION)
    }
}
