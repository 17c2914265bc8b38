//! Kept answers: a question that is repeated with the same id gets the same answer.

use bandana_shared::identity::UnixSeconds;
use bandana_shared::wire::v1::{AskRequest, AskResponse, AskSessionRequest, AskSessionResponse};
use bandana_store::{AnswerToKeep, CuratorName, KeptAnswer, QuestionKey, QuestionScope};
use prost::Message;
use sha2::{Digest as _, Sha256};
use tonic::Status;

use super::{Inner, internal, unreadable};

/// A question with an id.
#[derive(Clone, Debug)]
pub(super) struct KeptQuestion {
    key: QuestionKey,
    digest: [u8; 32],
}

/// An answer that can be kept.
pub(super) trait Keepable: Message + Default {
    /// Marks the answer as that of an earlier call.
    fn was_kept(&mut self);
}

impl Keepable for AskResponse {
    fn was_kept(&mut self) {
        self.kept = true;
    }
}

impl Keepable for AskSessionResponse {
    fn was_kept(&mut self) {
        self.kept = true;
    }
}

impl KeptQuestion {
    /// The question to a data set, if it has an id.
    pub(super) fn to_data_set(
        request: &AskRequest,
        name: &CuratorName,
        caller: String,
    ) -> Result<Option<Self>, Status> {
        Self::new(&request.question_id, request, QuestionScope::DataSet(name.clone()), caller)
    }

    /// The question to a session, if it has an id.
    pub(super) fn to_session(
        request: &AskSessionRequest,
        name: &CuratorName,
        caller: String,
    ) -> Result<Option<Self>, Status> {
        Self::new(&request.question_id, request, QuestionScope::Session(name.clone()), caller)
    }

    fn new(
        id: &[u8],
        request: &impl Message,
        scope: QuestionScope,
        caller: String,
    ) -> Result<Option<Self>, Status> {
        if id.is_empty() {
            return Ok(None);
        }
        let id = id.try_into().map_err(|_| {
            Status::invalid_argument("question_id must be 16 random bytes, or be left out")
        })?;
        let digest = Sha256::digest(request.encode_to_vec()).into();
        Ok(Some(Self { key: QuestionKey { scope, caller, id }, digest }))
    }

    /// The kept answer, if the question was answered before.
    pub(super) fn answer<A: Keepable>(&self, inner: &Inner) -> Result<Option<A>, Status> {
        let kept = inner.reader.kept_answer(&self.key).map_err(unreadable)?;
        let Some(KeptAnswer { digest, answer }) = kept else { return Ok(None) };
        if digest != self.digest {
            return Err(Status::invalid_argument(
                "another question was asked with this question_id; make a new one for each question",
            ));
        }
        let mut answer = A::decode(&answer[..])
            .map_err(|error| internal("the answer that was kept can't be read", error))?;
        answer.was_kept();
        Ok(Some(answer))
    }

    /// The answer in the form in which the store keeps it.
    pub(super) fn keep(&self, answer: &impl Keepable, at: UnixSeconds) -> AnswerToKeep {
        let kept = KeptAnswer { digest: self.digest, answer: answer.encode_to_vec() };
        AnswerToKeep { question: self.key.clone(), kept, at }
    }
}
