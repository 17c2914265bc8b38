//! A database as tables use it: statements with parameters, and rows of values.
//!
//! Both stores implement [`Database`], so each table is written once. Its SQL is what both dialects
//! understand, with the parameters `$1`, `$2` and so on. [`Dialect`] has what they say differently.

use std::borrow::Cow;
use std::fmt;

use bandana_shared::identity::{Day, ExperimentId, UnixSeconds};

use crate::{CuratorName, StoreError, damaged};

/// An open transaction, or a connection that reads.
///
/// The futures of SQLite are ready at once.
pub(crate) trait Database {
    /// The dialect of SQL.
    fn dialect(&self) -> &'static Dialect;

    /// Runs a statement that changes rows, and returns their number.
    async fn run(&self, sql: &str, values: &[Value<'_>]) -> Result<u64, StoreError>;

    /// Runs a query, or a statement that returns rows.
    async fn rows(&self, sql: &str, values: &[Value<'_>]) -> Result<Vec<Row>, StoreError>;

    /// Makes audited changes of all replicas take turns from here on, until the transaction ends.
    async fn take_turns(&self) -> Result<(), StoreError>;

    /// As [`Self::rows`], for a query with at most one row.
    async fn row(&self, sql: &str, values: &[Value<'_>]) -> Result<Option<Row>, StoreError> {
        Ok(self.rows(sql, values).await?.pop())
    }

    /// As [`Self::rows`], for a query with one row of one value.
    async fn value<T: Column>(&self, sql: &str, values: &[Value<'_>]) -> Result<T, StoreError> {
        let row = self.row(sql, values).await?;
        row.ok_or_else(|| damaged("a row is missing".to_owned()))?.get(0)
    }
}

/// What the dialects of SQL say differently.
pub(crate) struct Dialect {
    /// Ends a query whose rows nobody else may change until the transaction ends.
    pub(crate) lock: &'static str,
    /// Makes a text compare by its bytes.
    pub(crate) by_bytes: &'static str,
    /// The day by the database's clock. None: it has the clock of the only server.
    pub(crate) today: Option<&'static str>,
}

/// A parameter of a statement, or a value of a row. It may be secret, so only its kind
/// is printed.
pub(crate) enum Value<'a> {
    Null,
    Integer(i64),
    /// Of a number beyond 2^63 - 1, SQLite makes an error, and PostgreSQL the largest number.
    Unsigned(u64),
    Text(Cow<'a, str>),
    Bytes(Cow<'a, [u8]>),
}

/// A row of a query.
pub(crate) struct Row(pub(crate) Vec<Value<'static>>);

impl Row {
    /// The value in this column, from 0.
    ///
    /// # Errors
    /// [`StoreError::Damage`]: it is not of this type.
    pub(crate) fn get<T: Column>(&self, column: usize) -> Result<T, StoreError> {
        T::of(self.0.get(column).unwrap_or(&Value::Null))
    }
}

/// The type of a column's values.
pub(crate) trait Column: Sized {
    fn of(value: &Value<'_>) -> Result<Self, StoreError>;
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Null => "nothing",
            Self::Integer(_) | Self::Unsigned(_) => "a number",
            Self::Text(_) => "a text",
            Self::Bytes(_) => "bytes",
        })
    }
}

impl Value<'_> {
    fn unlike(&self, expected: &str) -> StoreError {
        damaged(format!("there is {self:?} in place of {expected}"))
    }

    fn text(&self) -> Result<&str, StoreError> {
        match self {
            Self::Text(text) => Ok(text),
            _ => Err(self.unlike("a text")),
        }
    }

    fn bytes(&self) -> Result<&[u8], StoreError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(self.unlike("bytes")),
        }
    }

    fn number<T: TryFrom<i64>>(&self) -> Result<T, StoreError> {
        let number = i64::of(self)?;
        T::try_from(number).map_err(|_| damaged(format!("the number {number} is out of range")))
    }
}

impl Column for i64 {
    fn of(value: &Value<'_>) -> Result<Self, StoreError> {
        match value {
            Value::Integer(number) => Ok(*number),
            _ => Err(value.unlike("a number")),
        }
    }
}

impl Column for u64 {
    fn of(value: &Value<'_>) -> Result<Self, StoreError> {
        value.number()
    }
}

impl Column for u32 {
    fn of(value: &Value<'_>) -> Result<Self, StoreError> {
        value.number()
    }
}

impl Column for u8 {
    fn of(value: &Value<'_>) -> Result<Self, StoreError> {
        value.number()
    }
}

impl Column for bool {
    fn of(value: &Value<'_>) -> Result<Self, StoreError> {
        i64::of(value).map(|number| number != 0)
    }
}

impl Column for Day {
    fn of(value: &Value<'_>) -> Result<Self, StoreError> {
        let number = i64::of(value)?;
        let day = u32::try_from(number).map(Self::new);
        day.map_err(|_| damaged(format!("a day with the number {number}")))
    }
}

impl Column for UnixSeconds {
    fn of(value: &Value<'_>) -> Result<Self, StoreError> {
        value.number().map(Self::new)
    }
}

impl Column for String {
    fn of(value: &Value<'_>) -> Result<Self, StoreError> {
        value.text().map(str::to_owned)
    }
}

impl Column for CuratorName {
    fn of(value: &Value<'_>) -> Result<Self, StoreError> {
        Self::new(value.text()?).map_err(|error| damaged(error.to_string()))
    }
}

impl Column for ExperimentId {
    fn of(value: &Value<'_>) -> Result<Self, StoreError> {
        Self::new(value.text()?).map_err(|error| damaged(error.to_string()))
    }
}

impl Column for Vec<u8> {
    fn of(value: &Value<'_>) -> Result<Self, StoreError> {
        value.bytes().map(<[u8]>::to_vec)
    }
}

impl<const N: usize> Column for [u8; N] {
    fn of(value: &Value<'_>) -> Result<Self, StoreError> {
        let bytes = value.bytes()?;
        let length = || damaged(format!("{} bytes of a code of {N}", bytes.len()));
        bytes.try_into().map_err(|_| length())
    }
}

impl<T: Column> Column for Option<T> {
    fn of(value: &Value<'_>) -> Result<Self, StoreError> {
        match value {
            Value::Null => Ok(None),
            _ => T::of(value).map(Some),
        }
    }
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<u32> for Value<'_> {
    fn from(number: u32) -> Self {
        Self::Integer(number.into())
    }
}

impl From<u64> for Value<'_> {
    fn from(number: u64) -> Self {
        Self::Unsigned(number)
    }
}

impl From<Day> for Value<'_> {
    fn from(day: Day) -> Self {
        day.get().into()
    }
}

impl From<UnixSeconds> for Value<'_> {
    fn from(seconds: UnixSeconds) -> Self {
        seconds.get().into()
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text.into())
    }
}

impl<'a> From<&'a String> for Value<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(text.into())
    }
}

impl<'a> From<&'a CuratorName> for Value<'a> {
    fn from(name: &'a CuratorName) -> Self {
        name.as_str().into()
    }
}

impl<'a> From<&'a ExperimentId> for Value<'a> {
    fn from(id: &'a ExperimentId) -> Self {
        id.as_str().into()
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl<'a> From<&'a Vec<u8>> for Value<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Value<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        bytes[..].into()
    }
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}
