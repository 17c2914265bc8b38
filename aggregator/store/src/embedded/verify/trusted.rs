//! The check that stored trusted experiments can be decoded and that their parts match.

use rusqlite::Connection;

use super::super::ready;
use super::read;
use crate::{StoreError, Verification, trusted};

/// Checks every trusted experiment, and the number of its disclosure ids.
pub(super) fn check(
    connection: &Connection,
    verification: &mut Verification,
) -> Result<(), StoreError> {
    verification.begin("trusted experiments and their disclosures");
    let records = ready(trusted::trusted(connection, None));
    let records = read(verification, "the trusted experiments", records)?.unwrap_or_default();
    for record in &records {
        verification.examined(1);
        let id = &record.id;
        trusted::verify(record, verification);
        let what = format!("the disclosures of trusted experiment {id}");
        let disclosed = ready(trusted::disclosed(connection, id));
        if let Some((names, is_taken)) = read(verification, &what, disclosed)? {
            verification.examined(names);
            trusted::verify_names(record, names, is_taken, verification);
        }
    }
    Ok(())
}
