//! The progress of the embedded store, from its tables.

use bandana_sqlite::acknowledged::Progress;
use rusqlite::Connection;

/// The progress of a store of the current schema version.
pub(super) fn of(connection: &Connection) -> rusqlite::Result<Progress> {
    let query = "SELECT (SELECT COALESCE(sum(seq), 0) FROM sqlite_sequence),
        (SELECT COALESCE(sum(sequence), 0) FROM trusted_experiment),
        (SELECT COALESCE(sum(rounds), 0) FROM curator_session),
        (SELECT COALESCE(max(key), 0) FROM upload_group)";
    connection.prepare_cached(query)?.query_row([], |row| {
        Ok(Progress {
            entries: row.get(0)?,
            disclosures: row.get(1)?,
            rounds: row.get(2)?,
            groups: row.get(3)?,
        })
    })
}

/// What a store that has come to `found` lacks of what was acknowledged, in words.
pub(super) fn lacks(found: Progress, acknowledged: Progress) -> Option<String> {
    found.is_behind(acknowledged).then(|| {
        format!(
            "what was acknowledged is missing: the store had come to {acknowledged}, and is at \
             {found}. Its log was cut, overwritten or removed, or an older database was put in \
             its place. Restore what is missing. If you can't, `bandana seal` takes what is \
             there"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_store_lacks_nothing() {
        let at = |entries, groups| Progress { entries, disclosures: 5, rounds: 5, groups };
        assert_eq!(lacks(at(3, 7), at(3, 7)), None);
        assert_eq!(lacks(at(4, 7), at(3, 7)), None);
        // A deletion leaves an audit entry.
        assert_eq!(lacks(Progress { disclosures: 0, ..at(4, 7) }, at(3, 7)), None);
        assert!(lacks(at(3, 6), at(3, 7)).unwrap().contains("bandana seal"));
        assert!(lacks(at(2, 7), at(3, 7)).is_some());
        // A backup has ended trusted experiments.
        assert!(lacks(Progress { disclosures: 6, ..at(3, 6) }, at(3, 7)).is_some());
    }
}
