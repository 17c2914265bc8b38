//! Reads over one connection, for [`StoreReader`](crate::store::StoreReader).

use std::ops::RangeInclusive;

use bandana_shared::identity::{Day, ExperimentId, UploadId};

use super::connection::PgConnection;
use super::{answers, audit, queries, records};
use crate::datasets::fingerprint::FingerprintKey;
use crate::store::{
    AuditQuery, AuditRecord, CuratorName, DataSetRecord, DebitRecord, ExperimentKey, KeptAnswer,
    QuestionKey, RevisionTally, SessionRecord, SessionUpdate, StoreError, TrustedRecord,
};

/// The entries of the audit log that `query` selects.
pub(in crate::store) fn entries(
    link: &mut PgConnection,
    query: &AuditQuery,
) -> Result<Vec<AuditRecord>, StoreError> {
    link.run("reading", async |session| audit::entries(&session.client, query).await)
}

/// The days of these on which an experiment has tallies, and how many.
pub(in crate::store) fn days_with_tallies(
    link: &mut PgConnection,
    experiment: ExperimentKey,
    days: &RangeInclusive<Day>,
) -> Result<Vec<(Day, u64)>, StoreError> {
    link.run("reading", async |session| {
        records::days_with_tallies(&session.client, experiment, days).await
    })
}

/// The tallies of an experiment on these days, by day, revision and arm.
pub(in crate::store) fn daily_tallies(
    link: &mut PgConnection,
    experiment: ExperimentKey,
    days: &RangeInclusive<Day>,
) -> Result<Vec<RevisionTally>, StoreError> {
    link.run("reading", async |session| records::daily(&session.client, experiment, days).await)
}

/// The data set of this name, or all of them by name.
pub(in crate::store) fn data_sets(
    link: &mut PgConnection,
    name: Option<&CuratorName>,
) -> Result<Vec<DataSetRecord>, StoreError> {
    link.run("reading", async |session| queries::data_sets(&session.client, name).await)
}

/// The data sets whose names come after this one, by the bytes of names.
pub(in crate::store) fn data_sets_after(
    link: &mut PgConnection,
    after: &str,
    limit: u32,
) -> Result<Vec<DataSetRecord>, StoreError> {
    link.run("reading", async |session| {
        queries::data_sets_after(&session.client, after, limit).await
    })
}

/// The debits of a data set, by this caller or by all, before a number, the newest first.
pub(in crate::store) fn debits(
    link: &mut PgConnection,
    of: (&CuratorName, Option<&str>),
    before: Option<u64>,
    limit: u32,
) -> Result<Vec<DebitRecord>, StoreError> {
    link.run("reading", async |session| queries::debits(&session.client, of, before, limit).await)
}

/// What a caller has spent of a budget.
pub(in crate::store) fn spent_by(
    link: &mut PgConnection,
    of: (&CuratorName, &str),
) -> Result<u64, StoreError> {
    link.run("reading", async |session| queries::spent_by(&session.client, of).await)
}

/// A session of the curator.
pub(in crate::store) fn session(
    link: &mut PgConnection,
    name: &CuratorName,
) -> Result<Option<SessionRecord>, StoreError> {
    link.run("reading", async |session| queries::session(&session.client, name).await)
}

/// The key of fingerprints.
pub(in crate::store) fn fingerprint_key(
    link: &mut PgConnection,
) -> Result<FingerprintKey, StoreError> {
    link.run("reading", async |session| queries::fingerprint_key(&session.client).await)
}

/// The answer to a question, if it is kept.
pub(in crate::store) fn answer(
    link: &mut PgConnection,
    question: &QuestionKey,
) -> Result<Option<KeptAnswer>, StoreError> {
    link.run("reading", async |session| answers::answer(&session.client, question).await)
}

/// The number of rounds of a session.
pub(in crate::store) fn rounds(
    link: &mut PgConnection,
    name: &CuratorName,
) -> Result<Option<u64>, StoreError> {
    link.run("reading", async |session| queries::rounds(&session.client, name).await)
}

/// The updates of a session in order, starting at a number.
pub(in crate::store) fn updates(
    link: &mut PgConnection,
    name: &CuratorName,
    from: u32,
    limit: u32,
) -> Result<Vec<SessionUpdate>, StoreError> {
    link.run("reading", async |session| queries::updates(&session.client, name, from, limit).await)
}

/// The trusted experiment of this name, or all of them by name.
pub(in crate::store) fn trusted(
    link: &mut PgConnection,
    id: Option<&ExperimentId>,
) -> Result<Vec<TrustedRecord>, StoreError> {
    let name = id.map(|id| [id.as_str()]);
    let names = name.as_ref().map(|name| &name[..]);
    link.run("reading", async |session| super::trusted::trusted(&session.client, names).await)
}

/// The subset of these disclosures that were counted.
pub(in crate::store) fn disclosed(
    link: &mut PgConnection,
    id: &ExperimentId,
    disclosures: &[(Day, UploadId)],
) -> Result<Vec<(Day, UploadId)>, StoreError> {
    link.run("reading", async |session| {
        super::trusted::disclosed(&session.client, id, disclosures).await
    })
}
