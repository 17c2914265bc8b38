//! The witnesses of a server's log, as it asks them for cosignatures (C2SP tlog-witness).

use std::time::Duration;

use bandana_edge::outgoing::Outgoing;
use bandana_relay::witness::{ADD_CHECKPOINT, PROOF_MAX, request_text};
use bandana_shared::identity::UnixSeconds;
use bandana_shared::transparency::{Checkpoint, Cosignature, Hash, Note, NoteKey, Witnessed};
use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt as _, Full, Limited};
use thiserror::Error;
use tonic::body::Body;
use tower::Service as _;

use super::WitnessAddress;

/// Time for the answer of a witness.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// Most bytes of an answer.
const ANSWER_BYTES_MAX: usize = 16 * 1024;

/// A witness, with what it has last cosigned as far as this server knows.
#[derive(Debug)]
pub(super) struct Witness {
    key: NoteKey,
    calls: Outgoing,
    /// The number of epochs that it knows.
    pub(super) size: u64,
    /// Its last cosignature, and of how many epochs.
    pub(super) cosignature: Option<(u64, Cosignature)>,
}

impl Witness {
    pub(super) fn new(address: WitnessAddress) -> Self {
        let WitnessAddress { key, endpoint } = address;
        let endpoint = endpoint.connect_timeout(ANSWER_TIME);
        Self { key, calls: Outgoing::new(endpoint, ANSWER_TIME), size: 0, cosignature: None }
    }

    pub(super) fn name(&self) -> &str {
        self.key.name()
    }

    /// Hands a checkpoint to the witness, whose tree begins with the one that the witness knows, as this
    /// proof says. Keeps the cosignature, or the size that the witness says to know.
    pub(super) async fn hand_in(
        &mut self,
        (checkpoint, note): (&Checkpoint, &str),
        proof: &[Hash],
        now: u64,
    ) -> Result<(), CosigningError> {
        debug_assert!(proof.len() <= PROOF_MAX, "a proof of {} hashes", proof.len());
        let body = request_text(self.size, proof, note);
        let request = http::Request::post(ADD_CHECKPOINT)
            .body(Body::new(Full::new(Bytes::from(body))))
            .map_err(|_| CosigningError::Silent)?;
        let answer = self.calls.call(request).await.map_err(|_| CosigningError::Silent)?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect();
        let body = tokio::time::timeout(ANSWER_TIME, body).await;
        let body = body.map_err(|_| CosigningError::Silent)?.map_err(|_| CosigningError::Silent)?;
        let text = String::from_utf8(body.to_bytes().to_vec()).unwrap_or_default();
        match head.status {
            StatusCode::OK => {}
            StatusCode::CONFLICT => {
                let known = text.trim_end().parse().map_err(|_| CosigningError::Answer)?;
                if known > checkpoint.size {
                    return Err(CosigningError::Ahead { known, size: checkpoint.size });
                }
                if known == self.size {
                    return Err(CosigningError::Other { size: known });
                }
                self.size = known;
                return Err(CosigningError::Behind);
            }
            StatusCode::UNPROCESSABLE_ENTITY => return Err(CosigningError::Proof),
            StatusCode::TOO_MANY_REQUESTS => return Err(CosigningError::Soon),
            status => return Err(CosigningError::Refused(status)),
        }
        let note = Note::parse(note).and_then(|note| note.with(&text));
        let cosignature = note.and_then(|note| note.cosignature(&self.key));
        let cosignature = cosignature.ok_or(CosigningError::Answer)?;
        self.size = checkpoint.size;
        if cosignature.time.get().abs_diff(now) > Witnessed::FRESHNESS.as_secs() {
            return Err(CosigningError::Clock { time: cosignature.time });
        }
        self.cosignature = Some((checkpoint.size, cosignature));
        Ok(())
    }

    /// The line of a note with its last cosignature, if that is of so many epochs.
    pub(super) fn line(&self, size: u64) -> Option<String> {
        let (cosigned, cosignature) = self.cosignature.as_ref()?;
        (*cosigned == size).then(|| self.key.line(&cosignature.content()))
    }
}

/// Why a witness has not cosigned.
#[derive(Debug, Error)]
pub(super) enum CosigningError {
    #[error("it does not answer")]
    Silent,
    #[error("its answer is not one of a witness; see whether its URL is right")]
    Answer,
    #[error("it knows another number of epochs than was thought; it is asked again")]
    Behind,
    #[error(
        "it knows {known} epochs, and this store has {size}: the store is an older copy. Devices take \
         nothing from it; see \"If the log went back\" in docs/transparency.md"
    )]
    Ahead { known: u64, size: u64 },
    #[error(
        "it has seen another log under this name with {size} epochs: two stores are used with one key. \
         Devices take nothing that it has not cosigned; see \"If the log went back\" in docs/transparency.md"
    )]
    Other { size: u64 },
    #[error(
        "its clock says {time}, more than an hour from this server's: devices would not take what it \
         signs; set the wrong one right"
    )]
    Clock { time: UnixSeconds },
    #[error(
        "it refuses a tree that does not continue the one that it knows: the store is an older copy, or \
         two are used with one key; see \"If the log went back\" in docs/transparency.md"
    )]
    Proof,
    #[error("it signs the next state later, since the last one is less than its interval ago")]
    Soon,
    #[error("it refuses, with status {0}")]
    Refused(StatusCode),
}
