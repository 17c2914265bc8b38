//! The check that stored trusted experiments can be decoded and that their parts match.

use rusqlite::Connection;

use super::super::trusted::trusted;
use super::{noted, unreadable};
use crate::{StoreError, Verification, trusted};

/// Checks every trusted experiment, and the number of its disclosure ids.
pub(super) fn check(
    connection: &Connection,
    verification: &mut Verification,
) -> Result<(), StoreError> {
    verification.begin("trusted experiments and their disclosures");
    let records = match trusted(connection, None) {
        Ok(records) => records,
        Err(error) => return unreadable(verification, "the trusted experiments", error),
    };
    for record in &records {
        verification.examined(1);
        let id = &record.id;
        trusted::verify(record, verification);
        let query = "SELECT count(*), (SELECT count(*) FROM experiment WHERE id = ?1)
            FROM trusted_disclosure
            WHERE experiment = (SELECT key FROM trusted_experiment WHERE id = ?1)";
        let row = connection.query_row(query, [id.as_str()], |row| {
            Ok((row.get::<_, u64>(0)?, row.get::<_, u64>(1)?))
        });
        let what = format!("the disclosures of trusted experiment {id}");
        if let Some((names, others)) = noted(verification, &what, row)? {
            verification.examined(names);
            trusted::verify_names(record, names, others > 0, verification);
        }
    }
    Ok(())
}
