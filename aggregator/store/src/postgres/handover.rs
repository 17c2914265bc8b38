//! The handover of disclosures to the replica that commits those of an experiment, in two tables.
//!
//! The tables are a message channel. Their statements do not wait for a disk, and the server
//! empties the tables after its own crash. Their rows are never evidence of a commit: that is
//! decided by disclosure ids and experiment versions.

use std::sync::Arc;

use bandana_shared::identity::ExperimentId;
use futures_util::future::{try_join, try_join3};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::connection::{PgConnection, Target, Waits};
use super::heartbeat::Connectivity;
use crate::{DatabaseError, StoreError, postgres};

/// Takes the lease or renews it, for two seconds: whoever commits does so with every commit.
const LEAD: &str = "INSERT INTO trusted_lease AS l (experiment, holder, expires)
    VALUES ($1, $2, clock_timestamp() + interval '2 seconds')
    ON CONFLICT (experiment) DO UPDATE SET holder = excluded.holder, expires = excluded.expires
    WHERE l.holder = excluded.holder OR l.expires < clock_timestamp()";

/// Whether another replica has the lease.
const LED: &str = "SELECT EXISTS (SELECT FROM trusted_lease
    WHERE experiment = $1 AND holder <> $2 AND expires > clock_timestamp())";

/// Writes answers into the rows that have not been reused since they were taken.
const TELL: &str = "UPDATE trusted_handover h SET told = t.told, handed = ''
    FROM unnest($2::bigint[], $3::integer[], $4::bigint[], $5::bytea[])
        AS t (replica, place, number, told)
    WHERE h.experiment = $1 AND h.replica = t.replica AND h.place = t.place
        AND h.number = t.number";

/// Deletes the rows of replicas that are gone.
pub(super) const SWEEP: &str = "
    DELETE FROM trusted_handover WHERE at < clock_timestamp() - interval '1 minute';
    DELETE FROM trusted_lease WHERE expires < clock_timestamp() - interval '1 minute';
";

/// A parameter of a statement.
type Value<'a> = &'a (dyn ToSql + Sync);

/// The operation named in errors.
const DOING: &str = "handing disclosures over";

/// One use of one of a replica's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The replica that owns the row.
    pub replica: i64,
    /// The index of the row among the replica's, from 0.
    pub place: i32,
    /// The number of this use.
    pub number: i64,
}

/// The content of a row, written by its owner or by the leader.
pub type HandoverMessage = (Slot, Vec<u8>);

/// A connection by which replicas hand disclosures over to the leader.
#[derive(Debug)]
pub struct Handover {
    link: PgConnection,
    replica: i64,
}

impl Handover {
    /// For a replica with a new name, over a connection to this target that uses this connectivity.
    ///
    /// # Errors
    /// [`StoreError::Open`] when its runtime can't start, or there is no randomness.
    pub fn of_target(
        target: Arc<Target>,
        connectivity: Option<Connectivity>,
    ) -> Result<Self, StoreError> {
        let link = PgConnection::new(target, Waits::DISCLOSURES)?.with_connectivity(connectivity);
        let random = getrandom::u64()
            .map_err(|source| StoreError::Database(DatabaseError::Entropy { source }))?;
        Ok(Self { link, replica: (random >> 1).cast_signed() })
    }

    /// The replica's name.
    pub fn replica(&self) -> i64 {
        self.replica
    }

    /// Takes the lease of an experiment, or renews it. `false`: another replica has it.
    ///
    /// # Errors
    /// [`StoreError`] when the database can't be asked.
    pub fn lead(&mut self, id: &ExperimentId) -> Result<bool, StoreError> {
        let replica = self.replica;
        self.link.run(DOING, async |session| {
            let lead = session.prepare(LEAD).await.map_err(postgres(DOING))?;
            let mine = session.client.execute(&lead, &[&id.as_str(), &replica]).await;
            Ok(mine.map_err(postgres(DOING))? > 0)
        })
    }

    /// Answers the disclosures handed over by others, renews the lease, and takes the disclosures
    /// handed over since. None: another replica has the lease.
    ///
    /// # Errors
    /// [`StoreError`] when the database can't be asked.
    pub fn take(
        &mut self,
        id: &ExperimentId,
        told: &[HandoverMessage],
    ) -> Result<Option<Vec<HandoverMessage>>, StoreError> {
        let replica = self.replica;
        self.link.run(DOING, async |session| {
            let failed = postgres(DOING);
            let query = session.prepare(
                "SELECT replica, place, number, handed FROM trusted_handover
                WHERE experiment = $1 AND told IS NULL ORDER BY at",
            );
            let query = query.await.map_err(failed)?;
            let [lead, tell] = [session.prepare(LEAD).await, session.prepare(TELL).await];
            let (lead, tell) = (lead.map_err(failed)?, tell.map_err(failed)?);
            let (client, id) = (&session.client, id.as_str());
            let told = Columns::of(told);
            let (told, both): (_, [Value<'_>; 2]) = (told.values(&id), [&id, &replica]);
            // The statements are sent together, and executed in this order.
            let done = try_join3(
                client.execute(&tell, &told),
                client.execute(&lead, &both),
                client.query(&query, &both[..1]),
            );
            let (_, leads, rows) = done.await.map_err(failed)?;
            let letter = |row: &Row| {
                let (replica, place, number) = (row.get(0), row.get(1), row.get(2));
                (Slot { replica, place, number }, row.get(3))
            };
            Ok((leads > 0).then(|| rows.iter().map(letter).collect()))
        })
    }

    /// Writes disclosures into a row of this replica, for the leader.
    ///
    /// # Errors
    /// [`StoreError`] when the database can't be asked.
    pub fn hand_over(
        &mut self,
        id: &ExperimentId,
        (Slot { replica, place, number }, handed): &HandoverMessage,
    ) -> Result<(), StoreError> {
        self.link.run(DOING, async |session| {
            let insert = session.prepare(
                "INSERT INTO trusted_handover (experiment, replica, place, number, at, handed)
                VALUES ($1, $2, $3, $4, clock_timestamp(), $5)
                ON CONFLICT (experiment, replica, place) DO UPDATE SET number = excluded.number,
                    at = excluded.at, handed = excluded.handed, told = NULL",
            );
            let insert = insert.await.map_err(postgres(DOING))?;
            let name = id.as_str();
            let values: [Value<'_>; 5] = [&name, replica, place, number, handed];
            session.client.execute(&insert, &values).await.map_err(postgres(DOING))?;
            Ok(())
        })
    }

    /// Whether another replica has the lease.
    ///
    /// # Errors
    /// [`StoreError`] when the database can't be asked.
    pub fn is_led(&mut self, id: &ExperimentId) -> Result<bool, StoreError> {
        let replica = self.replica;
        self.link.run(DOING, async |session| {
            let led = session.prepare(LED).await.map_err(postgres(DOING))?;
            let led = session.client.query_one(&led, &[&id.as_str(), &replica]).await;
            Ok(led.map_err(postgres(DOING))?.get(0))
        })
    }

    /// What this replica was told, and whether another one has the lease.
    ///
    /// # Errors
    /// [`StoreError`] when the database can't be asked.
    pub fn collect_decisions(
        &mut self,
        id: &ExperimentId,
    ) -> Result<(Vec<HandoverMessage>, bool), StoreError> {
        let replica = self.replica;
        self.link.run(DOING, async |session| {
            let failed = postgres(DOING);
            let told = "SELECT place, number, told FROM trusted_handover
                WHERE experiment = $1 AND replica = $2 AND told IS NOT NULL";
            let told = session.prepare(told).await.map_err(failed)?;
            let led = session.prepare(LED).await.map_err(failed)?;
            let name = id.as_str();
            let values: [Value<'_>; 2] = [&name, &replica];
            let both = try_join(
                session.client.query(&told, &values),
                session.client.query_one(&led, &values),
            );
            let (told, led) = both.await.map_err(failed)?;
            let letter =
                |row: &Row| (Slot { replica, place: row.get(0), number: row.get(1) }, row.get(2));
            Ok((told.iter().map(letter).collect(), led.get(0)))
        })
    }

    /// Empties the rows of this replica, so that their content is not taken any more.
    ///
    /// # Errors
    /// [`StoreError`] when the database can't be asked.
    pub fn withdraw(&mut self, id: &ExperimentId) -> Result<(), StoreError> {
        let replica = self.replica;
        self.link.run(DOING, async |session| {
            let update = "UPDATE trusted_handover SET handed = '', told = ''
                WHERE experiment = $1 AND replica = $2";
            let done = session.client.execute(update, &[&id.as_str(), &replica]).await;
            done.map(drop).map_err(postgres(DOING))
        })
    }

    /// Gives up the lease of an experiment, so that the next leader need not wait until it expires.
    ///
    /// # Errors
    /// [`StoreError`] when the database can't be asked.
    pub fn resign(&mut self, id: &ExperimentId) -> Result<(), StoreError> {
        let replica = self.replica;
        self.link.run(DOING, async |session| {
            let delete = "DELETE FROM trusted_lease WHERE experiment = $1 AND holder = $2";
            let done = session.client.execute(delete, &[&id.as_str(), &replica]).await;
            done.map(drop).map_err(postgres(DOING))
        })
    }

    /// Deletes the rows of replicas that are gone.
    ///
    /// # Errors
    /// [`StoreError`] when the database can't be asked.
    pub fn sweep(&mut self) -> Result<(), StoreError> {
        self.link.run(DOING, async |session| {
            session.client.batch_execute(SWEEP).await.map_err(postgres(DOING))
        })
    }
}

/// Letters as arrays, one for each column.
struct Columns {
    replicas: Vec<i64>,
    places: Vec<i32>,
    numbers: Vec<i64>,
    told: Vec<Vec<u8>>,
}

impl Columns {
    fn of(letters: &[HandoverMessage]) -> Self {
        let slots = || letters.iter().map(|(slot, _)| slot);
        Self {
            replicas: slots().map(|slot| slot.replica).collect(),
            places: slots().map(|slot| slot.place).collect(),
            numbers: slots().map(|slot| slot.number).collect(),
            told: letters.iter().map(|(_, told)| told.clone()).collect(),
        }
    }

    fn values<'a>(&'a self, id: &'a &str) -> [Value<'a>; 5] {
        [id, &self.replicas, &self.places, &self.numbers, &self.told]
    }
}
