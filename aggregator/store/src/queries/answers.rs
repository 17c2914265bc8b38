//! The table of kept answers, for callers who did not receive them.

use super::{AnswerToKeep, KeptAnswer, QuestionKey};
use crate::database::{Database, Row};
use crate::{CuratorRefusal, StoreError};

/// The least time for which answers are kept, unless there are too many.
const KEPT_SECONDS: u64 = 86_400;

/// Most kept answers for a caller about a data set or session, and most bytes of those answers. The
/// newest answer is kept in any case.
const KEPT_MAX: i64 = 256;
const KEPT_BYTES_MAX: i64 = 16 << 20;

/// Keeps an answer, and deletes answers that are too old or too many. If several replicas answer
/// one question at the same time, all but one get [`CuratorRefusal::Answered`].
pub(super) async fn keep(
    db: &impl Database,
    answer: Option<&AnswerToKeep>,
) -> Result<(), StoreError> {
    let Some(AnswerToKeep { question, kept, at }) = answer else { return Ok(()) };
    let QuestionKey { scope, caller, id } = question;
    let (kind, name) = scope.columns();
    let insert = "INSERT INTO curator_answer (kind, name, caller, question, digest, answer, at)
        VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING";
    let (digest, answer) = ((&kept.digest).into(), (&kept.answer).into());
    let values = [kind.into(), name.into(), caller.into(), id.into(), digest, answer, (*at).into()];
    if db.run(insert, &values).await? == 0 {
        return Err(CuratorRefusal::Answered.into());
    }
    let forget = "DELETE FROM curator_answer WHERE number IN (
        SELECT number FROM (
            SELECT number, at, row_number() OVER newest AS place,
                sum(length(answer)) OVER newest AS bytes
            FROM curator_answer WHERE kind = $1 AND name = $2 AND caller = $3
            WINDOW newest AS (ORDER BY number DESC)
        ) AS kept WHERE place > 1 AND (at < $4 OR place > $5 OR bytes > $6))";
    let (kept, bytes) = (KEPT_MAX.into(), KEPT_BYTES_MAX.into());
    let begin = at.get().saturating_sub(KEPT_SECONDS).into();
    let values = [kind.into(), name.into(), caller.into(), begin, kept, bytes];
    db.run(forget, &values).await.map(drop)
}

/// The answer to a question, if it is kept.
pub(crate) async fn kept(
    db: &impl Database,
    question: &QuestionKey,
) -> Result<Option<KeptAnswer>, StoreError> {
    let QuestionKey { scope, caller, id } = question;
    let (kind, name) = scope.columns();
    let select = "SELECT digest, answer FROM intact_curator_answer
        WHERE kind = $1 AND name = $2 AND caller = $3 AND question = $4";
    let values = [kind.into(), name.into(), caller.into(), id.into()];
    let answer = |row: Row| Ok(KeptAnswer { digest: row.get(0)?, answer: row.get(1)? });
    db.row(select, &values).await?.map(answer).transpose()
}
