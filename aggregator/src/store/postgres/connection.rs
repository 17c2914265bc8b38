//! One connection to the database, for one thread.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bandana_shared::identity::StoreId;
use futures_util::future::join;
use rustls_native_certs::load_native_certs;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage, Statement, Transaction};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use zeroize::Zeroizing;

use super::heartbeat::Pulse;
use super::schema;
use super::settings::PostgresSettings;
use crate::store::{DamageError, DatabaseError, OpenError, Outcome, StoreError, damaged, postgres};
use crate::tls::{TlsError, provider, roots};

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// How long an answer may take that takes long: longer than the database lets a statement run.
pub(super) const LONG_ANSWER: Duration = Duration::from_secs(12);

/// How often the database is asked what became of a transaction that it is still at, and how soon.
const LOOKS: usize = 20;
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// How long the other end of a connection may be silent, in both directions.
const SILENCE_MAX: Duration = Duration::from_secs(9);

/// For every connection: what is acknowledged is on the disk whatever the role's defaults
/// are, statements see all that was committed before they began, and nothing takes long, as
/// compiling a statement of a millisecond would. The locks of a replica that is stopped in a
/// transaction are free after three seconds, whether its host is still there or not.
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

/// How long a link waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits {
    /// For an answer.
    answer: Duration,
    /// For a lock that another replica holds.
    lock: Duration,
}

impl Waits {
    const fn new(answer_ms: u64, lock_ms: u64) -> Self {
        Self { answer: Duration::from_millis(answer_ms), lock: Duration::from_millis(lock_ms) }
    }

    /// For uploads: they wait for nobody but a commit of the same upload, or for the end of a
    /// day.
    pub(crate) const UPLOADS: Self = Self::new(2500, 1000);
    /// For changes of experiments and for the curator, which other replicas make too.
    pub(crate) const CHANGES: Self = Self::new(5000, 1000);
    /// For disclosures to trusted experiments: a row is changed within milliseconds, and others
    /// wait as long.
    pub(crate) const DISCLOSURES: Self = Self::new(2500, 200);
    /// For reading, which waits for no lock but those of changes of tables.
    pub(crate) const READING: Self = Self { answer: LONG_ANSWER, lock: Duration::from_secs(1) };
    /// For what tells others and follows them: it comes again.
    pub(crate) const FOLLOWING: Self =
        Self { answer: LONG_ANSWER, lock: Duration::from_millis(200) };
    /// For signs of life.
    pub(super) const HEARTBEAT: Self = Self::new(2000, 1000);
}

/// Longest password, in bytes.
const PASSWORD_BYTES_MAX: usize = 1024;

/// A way to the database, made when it is needed and again when it was lost.
#[derive(Debug)]
pub(crate) struct PgConnection {
    target: Arc<Target>,
    waits: Waits,
    /// Whether the database answers at all. None: that is not known.
    pulse: Option<Pulse>,
    session: Option<Session>,
    /// What the connection lives in. None: this is being dropped.
    runtime: Option<Runtime>,
}

/// Where connections lead.
pub(crate) struct Target {
    config: Config,
    tls: Option<MakeRustlsConnect>,
    /// The store that the database must be, once that is known.
    store: OnceLock<StoreId>,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The configuration shows no password.
        f.debug_struct("Target").field("config", &self.config).finish_non_exhaustive()
    }
}

/// An open connection.
#[derive(Debug)]
pub(crate) struct Session {
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
    pub(crate) fn new(settings: &PostgresSettings) -> Result<Self, StoreError> {
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
        Ok(Self { config, tls, store: OnceLock::new() })
    }
}

impl PgConnection {
    pub(crate) fn new(target: Arc<Target>, waits: Waits) -> Result<Self, StoreError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime =
            Some(runtime.map_err(|source| StoreError::Open(OpenError::Thread { source }))?);
        Ok(Self { target, waits, pulse: None, session: None, runtime })
    }

    /// A link that gives up at once, and from then on, when the database does not answer.
    pub(crate) fn with_pulse(mut self, pulse: Option<Pulse>) -> Self {
        self.pulse = pulse;
        self
    }

    /// From now on the database must be this store: no connection is used to another one.
    pub(crate) fn expect(&self, store: StoreId) {
        // The first one counts.
        self.target.store.set(store).ok();
    }

    /// The store that the database must be.
    pub(super) fn expected(&self) -> Option<StoreId> {
        self.target.store.get().copied()
    }

    /// Has `work` done, on a new connection if there is none. After an error that may have
    /// come from the connection, the next work gets a new one.
    ///
    /// Must not be called where asynchronous code runs.
    pub(crate) fn run<T>(
        &mut self,
        doing: &'static str,
        work: impl AsyncFnOnce(&mut Session) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.run_within(self.waits.answer, doing, work)
    }

    /// As [`Self::run`] for work that may take another time.
    pub(super) fn run_within<T>(
        &mut self,
        limit: Duration,
        doing: &'static str,
        work: impl AsyncFnOnce(&mut Session) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let Self { target, waits, pulse, session, runtime } = self;
        let Some(runtime) = runtime else {
            return Err(StoreError::Database(DatabaseError::Slow { doing }));
        };
        if pulse.as_ref().is_some_and(Pulse::is_lost) {
            *session = None;
            return Err(StoreError::Database(DatabaseError::Silent));
        }
        let open = session.take().filter(|session| !session.client.is_closed());
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
                    // A transaction that was dropped is rolled back before this is answered,
                    // and not some time later.
                    Err(error) => error.keeps_connection() && settle(&current).await,
                };
                if keeps {
                    *session = Some(current);
                }
                outcome
            };
            let lost = async {
                match pulse {
                    Some(pulse) => pulse.lost().await,
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

    /// Has `work` done in a transaction. What fails before that is to be committed has changed
    /// nothing, and if nobody knows whether it was committed, the database is asked.
    pub(super) fn change<T>(
        &mut self,
        work: impl AsyncFnOnce(&Transaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let failed = postgres("committing");
        let mut committing = None;
        let outcome = self.run("committing", async |session| {
            let transaction = session.client.transaction().await.map_err(failed)?;
            // Both are said at once, in this order.
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

    /// Whether the database knows that it has rolled back this transaction. Only this is asked: in
    /// a database that has gone back in time, the number of one that was committed may be another's.
    fn was_rolled_back(&mut self, number: &str) -> bool {
        let known = self.run("reading", async |session| {
            let query = "SELECT pg_xact_status($1::text::xid8)";
            for _ in 0..LOOKS {
                let row = session.client.query_one(query, &[&number]).await;
                let status: Option<String> = row.map_err(postgres("reading"))?.get(0);
                if status.as_deref() != Some("in progress") {
                    return Ok(status);
                }
                // Its connection is lost, which the database will notice.
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            Ok(None)
        });
        known.is_ok_and(|status| status.as_deref() == Some("aborted"))
    }

    /// As [`Self::run`] on a connection of its own, however long it takes.
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

    /// Whether there is a connection, as far as is known.
    pub(crate) fn is_open(&self) -> bool {
        self.session.as_ref().is_some_and(|session| !session.client.is_closed())
    }
}

impl Drop for PgConnection {
    fn drop(&mut self) {
        self.session = None;
        if let Some(runtime) = self.runtime.take() {
            // Closes the connection, also where asynchronous code runs.
            runtime.shutdown_background();
        }
    }
}

/// Waits until the database has heard all. `false`: it does not answer.
async fn settle(session: &Session) -> bool {
    let answer = tokio::time::timeout(CONNECT_TIMEOUT, session.client.batch_execute(""));
    matches!(answer.await, Ok(Ok(())))
}

async fn connect(target: &Target, waits: Waits) -> Result<Session, StoreError> {
    let connecting = async {
        let config = &target.config;
        let client = if let Some(tls) = &target.tls {
            let (client, connection) = config.connect(tls.clone()).await?;
            drop(tokio::spawn(connection));
            client
        } else {
            let (client, connection) = config.connect(NoTls).await?;
            drop(tokio::spawn(connection));
            client
        };
        let lock = format!("SET lock_timeout = '{}ms';", waits.lock.as_millis());
        client.batch_execute(&(SESSION.to_owned() + &lock)).await?;
        Ok(client)
    };
    let doing = "connecting";
    let client = tokio::time::timeout(waits.answer, connecting).await;
    let client = client
        .map_err(|_| StoreError::Database(DatabaseError::Slow { doing }))?
        .map_err(postgres(doing))?;
    if let Some(expected) = target.store.get() {
        let found = tokio::time::timeout(waits.answer, schema::id(&client)).await;
        same(found.map_err(|_| StoreError::Database(DatabaseError::Slow { doing }))??, *expected)?;
    }
    Ok(Session { client, prepared: HashMap::new() })
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
    /// What the database calls it.
    pub(super) fn code(&self) -> Option<&SqlState> {
        match self {
            Self::Database(DatabaseError::Unmade { source }) => source.code(),
            Self::Database(DatabaseError::Postgres { source, .. }) => source.code(),
            _ => None,
        }
    }

    /// Whether the connection is as good as before.
    fn keeps_connection(&self) -> bool {
        match self {
            Self::Database(DatabaseError::Slow { .. } | DatabaseError::Silent) => false,
            Self::Database(DatabaseError::Unmade { source }) => source.keeps_connection(),
            Self::Database(DatabaseError::Postgres { source, .. }) => {
                // 08: connection, 57P: shut down, 25: a database that can't be written to.
                let lost = |code: &SqlState| {
                    ["08", "57P", "25"].iter().any(|class| code.code().starts_with(class))
                };
                !source.is_closed() && source.code().is_some_and(|code| !lost(code))
            }
            _ => true,
        }
    }

    /// Whether the same again may well succeed: lost connections, conflicts, a database that
    /// starts, ends, or has run out of something.
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

    /// Whether another replica has held a lock for too long.
    pub(super) fn is_locked(&self) -> bool {
        self.code() == Some(&SqlState::LOCK_NOT_AVAILABLE)
    }

    /// An error of a change of which nothing was to be committed yet.
    pub(super) fn not_made(self) -> Self {
        if self.outcome() == Outcome::Unknown { self.unmade() } else { self }
    }

    /// Whether the database, or what guards its rows, says that something is not as it was
    /// written.
    pub(super) fn is_told_damage(&self) -> bool {
        let damaged =
            |code: &SqlState| [SqlState::DATA_CORRUPTED, SqlState::INDEX_CORRUPTED].contains(code);
        self.code().is_some_and(damaged)
    }

    /// Damage, under an error that says what to do about it.
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

    /// Whether a row belongs to a day that has no partition.
    pub(super) fn lacks_partition(&self) -> bool {
        self.code() == Some(&SqlState::CHECK_VIOLATION)
    }
}
