//! Kept answers in the embedded store, for callers who did not receive them.

use rusqlite::{Connection, OptionalExtension as _, Transaction, params};

use super::sqlite::{committing, reading};
use crate::queries::{KEPT_BYTES_MAX, KEPT_MAX, KEPT_SECONDS};
use crate::{AnswerToKeep, CuratorRefusal, KeptAnswer, QuestionKey, StoreError};

/// Keeps an answer, and deletes answers that are too old or too many.
pub(super) fn keep(transaction: &Transaction<'_>, answer: &AnswerToKeep) -> Result<(), StoreError> {
    let AnswerToKeep { question, kept, at } = answer;
    let (kind, name) = question.scope.columns();
    let insert = "INSERT INTO curator_answer (kind, name, caller, question, digest, answer, at)
        VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING";
    let QuestionKey { caller, id, .. } = question;
    let values = params![kind, name, caller, id, kept.digest, kept.answer, at.get()];
    if transaction.execute(insert, values).map_err(committing)? == 0 {
        return Err(CuratorRefusal::Answered.into());
    }
    let forget = "DELETE FROM curator_answer WHERE number IN (
        SELECT number FROM (
            SELECT number, at, row_number() OVER newest AS place,
                sum(length(answer)) OVER newest AS bytes
            FROM curator_answer WHERE kind = ?1 AND name = ?2 AND caller = ?3
            WINDOW newest AS (ORDER BY number DESC)
        ) WHERE place > 1 AND (at < ?4 OR place > ?5 OR bytes > ?6))";
    let begin = at.get().saturating_sub(KEPT_SECONDS);
    let values = params![kind, name, caller, begin, KEPT_MAX, KEPT_BYTES_MAX];
    transaction.execute(forget, values).map(drop).map_err(committing)
}

/// The answer to a question, if it is kept.
pub(crate) fn answer(
    connection: &Connection,
    question: &QuestionKey,
) -> Result<Option<KeptAnswer>, StoreError> {
    let QuestionKey { scope, caller, id } = question;
    let (kind, name) = scope.columns();
    let select = "SELECT digest, answer FROM intact_curator_answer
        WHERE kind = ? AND name = ? AND caller = ? AND question = ?";
    let found = connection.query_row(select, params![kind, name, caller, id], |row| {
        Ok(KeptAnswer { digest: row.get(0)?, answer: row.get(1)? })
    });
    found.optional().map_err(reading)
}
