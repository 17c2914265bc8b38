//! Debits, filtered by the caller's permissions.

use tonic::Status;

use super::{Inner, unreadable};
use crate::auth::Caller;
use crate::store::{CuratorName, DebitRecord};

/// Debits read at a time when those of other callers are left out.
const READ_AT_ONCE: u32 = 1000;

/// The debits of a data set before a number, newest first. An analyst sees only the debits made
/// under its own token name.
pub(super) fn visible(
    inner: &Inner,
    caller: &Caller,
    data_set: &CuratorName,
    mut before: Option<u64>,
    limit: u32,
) -> Result<Vec<DebitRecord>, Status> {
    let read = |before, limit| inner.reader.debits(data_set, before, limit).map_err(unreadable);
    if caller.sees_all_debits() {
        return read(before, limit);
    }
    let (own, most) = (caller.to_string(), limit as usize);
    let mut seen = Vec::new();
    loop {
        let some = read(before, READ_AT_ONCE)?;
        before = some.last().map(|record| record.number);
        seen.extend(some.into_iter().filter(|record| record.debit.caller == own));
        if before.is_none() || seen.len() >= most {
            seen.truncate(most);
            return Ok(seen);
        }
    }
}
