//! Kept answers in the database that replicas share, for callers who did not receive them.

use tokio_postgres::GenericClient;

use super::changes::signed;
use super::queries::code;
use crate::queries::{KEPT_BYTES_MAX, KEPT_MAX, KEPT_SECONDS};
use crate::{AnswerToKeep, CuratorRefusal, KeptAnswer, QuestionKey, StoreError, postgres};

/// Keeps an answer, and deletes answers that are too old or too many. If several replicas answer
/// one question at the same time, all but one get [`CuratorRefusal::Answered`].
pub(super) async fn keep(
    client: &impl GenericClient,
    answer: Option<&AnswerToKeep>,
) -> Result<(), StoreError> {
    let Some(AnswerToKeep { question, kept, at }) = answer else { return Ok(()) };
    let failed = postgres("committing");
    let (kind, name) = question.scope.columns();
    let insert = "INSERT INTO curator_answer (kind, name, caller, question, digest, answer, at)
        VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING";
    let (id, digest) = (&question.id[..], &kept.digest[..]);
    let (caller, seconds) = (&question.caller, signed(at.get()));
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 7] =
        [&kind, &name, caller, &id, &digest, &kept.answer, &seconds];
    if client.execute(insert, &values).await.map_err(failed)? == 0 {
        return Err(CuratorRefusal::Answered.into());
    }
    let forget = "DELETE FROM curator_answer WHERE number IN (
        SELECT number FROM (
            SELECT number, at, row_number() OVER newest AS place,
                sum(octet_length(answer)) OVER newest AS bytes
            FROM curator_answer WHERE kind = $1 AND name = $2 AND caller = $3
            WINDOW newest AS (ORDER BY number DESC)
        ) AS kept WHERE place > 1 AND (at < $4 OR place > $5 OR bytes > $6))";
    let begin = signed(at.get().saturating_sub(KEPT_SECONDS));
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
        [&kind, &name, caller, &begin, &KEPT_MAX, &KEPT_BYTES_MAX];
    client.execute(forget, &values).await.map(drop).map_err(failed)
}

/// The answer to a question, if it is kept.
pub(crate) async fn answer(
    client: &impl GenericClient,
    question: &QuestionKey,
) -> Result<Option<KeptAnswer>, StoreError> {
    let QuestionKey { scope, caller, id } = question;
    let (kind, name) = scope.columns();
    let select = "SELECT digest, answer FROM intact_curator_answer
        WHERE kind = $1 AND name = $2 AND caller = $3 AND question = $4";
    let row = client.query_opt(select, &[&kind, &name, caller, &&id[..]]).await;
    let kept =
        |row: tokio_postgres::Row| Ok(KeptAnswer { digest: code(row.get(0))?, answer: row.get(1) });
    row.map_err(postgres("reading"))?.map(kept).transpose()
}
