//! PostgreSQL as a database of tables.

use std::error::Error;

use bytes::BytesMut;
use tokio_postgres::GenericClient;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::changes::signed;
use super::days::DATABASE_DAY;
use crate::database::{Database, Dialect, Row, Value};
use crate::{StoreError, postgres};

/// Databases have collations of their own, and replicas lock rows.
const DIALECT: Dialect =
    Dialect { lock: " FOR NO KEY UPDATE", by_bytes: " COLLATE \"C\"", today: Some(DATABASE_DAY) };

/// A client or an open transaction, with what it is used for: the word of its errors.
#[derive(Debug)]
pub(crate) struct Tables<'a, C> {
    pub(super) client: &'a C,
    pub(super) doing: &'static str,
}

impl<'a, C> Tables<'a, C> {
    /// For a transaction that changes the tables.
    pub(super) fn committing(transaction: &'a C) -> Self {
        Self { client: transaction, doing: "committing" }
    }

    /// For what only reads.
    pub(crate) fn reading(client: &'a C) -> Self {
        Self { client, doing: "reading" }
    }
}

impl<C: GenericClient> Database for Tables<'_, C> {
    fn dialect(&self) -> &'static Dialect {
        &DIALECT
    }

    async fn run(&self, sql: &str, values: &[Value<'_>]) -> Result<u64, StoreError> {
        self.client.execute(sql, &parameters(values)).await.map_err(postgres(self.doing))
    }

    async fn rows(&self, sql: &str, values: &[Value<'_>]) -> Result<Vec<Row>, StoreError> {
        let failed = postgres(self.doing);
        let rows = self.client.query(sql, &parameters(values)).await.map_err(failed)?;
        let values = |row: &tokio_postgres::Row| {
            let values = (0..row.len()).map(|column| row.try_get(column));
            values.collect::<Result<_, _>>().map(Row).map_err(failed)
        };
        rows.iter().map(values).collect()
    }

    async fn take_turns(&self) -> Result<(), StoreError> {
        let lock = "LOCK TABLE audit IN SHARE ROW EXCLUSIVE MODE";
        self.client.batch_execute(lock).await.map_err(postgres(self.doing))
    }
}

fn parameters<'v>(values: &'v [Value<'_>]) -> Vec<&'v (dyn ToSql + Sync)> {
    values.iter().map(|value| value as &(dyn ToSql + Sync)).collect()
}

impl ToSql for Value<'_> {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            // Of days, which have 32 bits.
            Self::Integer(number) if *ty == Type::INT4 => {
                i32::try_from(*number).unwrap_or(i32::MAX).to_sql_checked(ty, out)
            }
            Self::Integer(number) => number.to_sql_checked(ty, out),
            Self::Unsigned(number) => signed(*number).to_sql_checked(ty, out),
            Self::Text(text) => (&**text).to_sql_checked(ty, out),
            Self::Bytes(bytes) => (&**bytes).to_sql_checked(ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl FromSql<'_> for Value<'static> {
    fn from_sql(ty: &Type, raw: &[u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(match *ty {
            Type::BOOL => Self::Integer(bool::from_sql(ty, raw)?.into()),
            Type::INT4 => Self::Integer(i32::from_sql(ty, raw)?.into()),
            Type::INT8 => Self::Integer(i64::from_sql(ty, raw)?),
            Type::TEXT => Self::Text(String::from_sql(ty, raw)?.into()),
            _ => Self::Bytes(raw.to_vec().into()),
        })
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self::Null)
    }

    fn accepts(ty: &Type) -> bool {
        matches!(*ty, Type::BOOL | Type::INT4 | Type::INT8 | Type::TEXT | Type::BYTEA)
    }
}
