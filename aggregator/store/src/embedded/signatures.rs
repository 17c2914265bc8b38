//! Signatures in the embedded store.

use bandana_shared::identity::UnixSeconds;
use bandana_shared::limits::SIGNATURES_MAX;
use bandana_shared::signing::{PublicKey, Signature};
use bandana_shared::specification::Specification;
use rusqlite::{Connection, params};

use super::sqlite::{committing, reading};
use super::{SqliteStore, audit};
use crate::{AuditEntry, StoreError, StoreRefusal, damaged};

impl SqliteStore {
    /// Adds a signature to a revision, in place of one by the same key. Drops signatures that have
    /// expired by `now`.
    ///
    /// # Errors
    /// [`StoreError::Refused`]; [`StoreError::Database`] also for an
    /// expiry beyond the range of the database.
    pub fn add_signature(
        &mut self,
        specification: &Specification,
        signature: &Signature,
        now: UnixSeconds,
        entry: &AuditEntry,
    ) -> Result<(), StoreError> {
        let digest = specification.digest();
        let transaction = self.connection.transaction().map_err(committing)?;
        let forget = "DELETE FROM signature WHERE digest = ? AND (expires <= ? OR public_key = ?)";
        let key = signature.key();
        transaction
            .execute(forget, params![digest.as_bytes(), now.get(), key.as_bytes()])
            .map_err(committing)?;
        let count = "SELECT count(*) FROM intact_signature WHERE digest = ?";
        let others: usize =
            transaction.query_row(count, [digest.as_bytes()], |row| row.get(0)).map_err(reading)?;
        if others >= SIGNATURES_MAX {
            return Err(StoreError::Refused(StoreRefusal::TooManySignatures));
        }
        let values = params![
            digest.as_bytes(),
            key.as_bytes(),
            signature.expires().get(),
            signature.as_bytes()
        ];
        transaction
            .execute("INSERT INTO signature (digest, public_key, expires, signature) VALUES (?, ?, ?, ?)", values)
            .map_err(committing)?;
        audit::append(&transaction, entry).map_err(committing)?;
        transaction.commit().map_err(committing)
    }

    /// The signatures of a revision, by key.
    ///
    /// # Errors
    /// [`StoreError::Damage`] when a signature is invalid: devices would refuse a revision that the
    /// operator believes to be signed.
    pub fn signatures(&self, specification: &Specification) -> Result<Vec<Signature>, StoreError> {
        read(&self.connection, specification)
    }
}

pub(super) fn read(
    connection: &Connection,
    specification: &Specification,
) -> Result<Vec<Signature>, StoreError> {
    let query = "SELECT public_key, expires, signature FROM intact_signature WHERE digest = ?
        ORDER BY public_key";
    let mut statement = connection.prepare_cached(query).map_err(reading)?;
    let rows = statement
        .query_map([specification.digest().as_bytes()], |row| {
            Ok((row.get::<_, [u8; 32]>(0)?, row.get(1)?, row.get::<_, [u8; 64]>(2)?))
        })
        .map_err(reading)?;
    rows.map(|row| {
        let (key, expires, bytes) = row.map_err(reading)?;
        let key = PublicKey::new(key).map_err(|error| damaged(error.to_string()))?;
        let signature = Signature::new(key, UnixSeconds::new(expires), bytes);
        let digest = specification.digest();
        signature
            .fits(specification)
            .then_some(signature)
            .ok_or_else(|| damaged(format!("the signature of {digest} by {key} does not fit")))
    })
    .collect()
}
