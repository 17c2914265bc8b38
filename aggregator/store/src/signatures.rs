//! The table of signatures.

use bandana_shared::identity::UnixSeconds;
use bandana_shared::limits::SIGNATURES_MAX;
use bandana_shared::signing::{PublicKey, Signature};
use bandana_shared::specification::Specification;

use crate::database::{Database, Row};
use crate::{StoreError, StoreRefusal, damaged};

/// Adds a signature to a revision, in place of one by the same key. Drops signatures that have
/// expired by `now`.
pub(crate) async fn add(
    db: &impl Database,
    specification: &Specification,
    signature: &Signature,
    now: UnixSeconds,
) -> Result<(), StoreError> {
    let (digest, key) = (specification.digest(), signature.key());
    let (digest, key) = (digest.as_bytes(), key.as_bytes());
    let forget = "DELETE FROM signature WHERE digest = $1 AND (expires <= $2 OR public_key = $3)";
    db.run(forget, &[digest.into(), now.into(), key.into()]).await?;
    let count = "SELECT count(*) FROM intact_signature WHERE digest = $1";
    let others: u64 = db.value(count, &[digest.into()]).await?;
    if others >= SIGNATURES_MAX as u64 {
        return Err(StoreError::Refused(StoreRefusal::TooManySignatures));
    }
    let insert = "INSERT INTO signature (digest, public_key, expires, signature)
        VALUES ($1, $2, $3, $4)";
    let (expires, bytes) = (signature.expires().into(), signature.as_bytes().into());
    db.run(insert, &[digest.into(), key.into(), expires, bytes]).await.map(drop)
}

/// The signatures of a revision, by key.
///
/// # Errors
/// [`StoreError::Damage`] when a signature is invalid: devices would refuse a revision that the
/// operator believes to be signed.
pub(crate) async fn of(
    db: &impl Database,
    specification: &Specification,
) -> Result<Vec<Signature>, StoreError> {
    let query = "SELECT public_key, expires, signature FROM intact_signature WHERE digest = $1
        ORDER BY public_key";
    let digest = specification.digest();
    let signature = |row: &Row| {
        let key = PublicKey::new(row.get(0)?).map_err(|error| damaged(error.to_string()))?;
        let signature = Signature::new(key, row.get(1)?, row.get(2)?);
        let wrong = || damaged(format!("the signature of {digest} by {key} does not fit"));
        signature.fits(specification).then_some(signature).ok_or_else(wrong)
    };
    db.rows(query, &[digest.as_bytes().into()]).await?.iter().map(signature).collect()
}
