//! Ids of questions. With its id, a question whose answer was lost is repeated without a second
//! charge.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use thiserror::Error;
use tonic::{Code, Response, Status};

use crate::views::failure::Failure;

/// Pauses before retries of a question whose answer was lost.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(250), Duration::from_secs(1), Duration::from_secs(3)];

#[derive(Debug, Args)]
#[group(skip)]
pub(super) struct Repeatable {
    /// Id of the question, 32 hexadecimal digits. If you ask again with the same id, you get the
    /// same answer and pay nothing more. Without this flag, the question gets a new id.
    #[arg(long, value_name = "ID")]
    question_id: Option<QuestionId>,
}

/// The id of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QuestionId([u8; 16]);

impl fmt::Display for QuestionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The error for text that is not an id.
#[derive(Debug, Error)]
#[error("write 32 hexadecimal digits")]
pub(super) struct NoQuestionId;

impl QuestionId {
    fn random() -> anyhow::Result<Self> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).context("the operating system's random source failed")?;
        Ok(Self(random))
    }
}

impl FromStr for QuestionId {
    type Err = NoQuestionId;

    fn from_str(text: &str) -> Result<Self, NoQuestionId> {
        let is_digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u128::from_str_radix(text, 16).map_err(|_| NoQuestionId)?;
        is_digits.then_some(Self(number.to_be_bytes())).ok_or(NoQuestionId)
    }
}

impl Repeatable {
    /// Sends the question, and retries with the same id while its outcome is unknown.
    pub(super) async fn ask<T>(
        &self,
        mut ask: impl AsyncFnMut(Vec<u8>) -> Result<Response<T>, Status>,
    ) -> anyhow::Result<T> {
        let id = self.question_id.map_or_else(QuestionId::random, Ok)?;
        let mut pauses = PAUSES.into_iter();
        loop {
            let status = match ask(id.0.to_vec()).await {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) => status,
            };
            if !is_lost(&status) {
                return Err(Failure::from(status).into());
            }
            let Some(pause) = pauses.next() else {
                let again = format!(
                    "the answer was lost; to get it and not pay again, ask the same within a day \
                     with --question-id {id}"
                );
                return Err(anyhow::Error::new(Failure::from(status)).context(again));
            };
            tokio::time::sleep(pause).await;
        }
    }
}

/// Whether the outcome is unknown: the question may have been answered.
fn is_lost(status: &Status) -> bool {
    let is_broken = std::error::Error::source(status).is_some();
    is_broken || matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_32_digits() {
        let id: QuestionId = "000102030405060708090A0b0c0d0e0f".parse().unwrap();
        assert_eq!(id.to_string(), "000102030405060708090a0b0c0d0e0f");
        for wrong in
            ["", "00", "+0102030405060708090a0b0c0d0e0f0", "0x02030405060708090a0b0c0d0e0f00"]
        {
            assert!(wrong.parse::<QuestionId>().is_err(), "{wrong}");
        }
    }
}
