//! Bytes shared by many answers.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::{Budget, Hold};

/// A message in gRPC framing, encoded once for all receivers.
#[derive(Clone, Debug)]
pub struct Shared(Arc<Framed>);

#[derive(Debug)]
struct Framed {
    bytes: Vec<u8>,
    /// The charge for the message once no new answers use it.
    hold: OnceLock<Hold>,
}

impl Shared {
    /// Encodes the message.
    pub fn of(message: &impl prost::Message) -> Self {
        let length = message.encoded_len();
        let mut bytes = Vec::with_capacity(5 + length);
        // Uncompressed.
        bytes.push(0);
        bytes.extend(u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
        message.encode_raw(&mut bytes);
        Self(Arc::new(Framed { bytes, hold: OnceLock::new() }))
    }

    /// Marks the message as no longer used by new answers. From now on it is charged for the
    /// answers that were not yet taken, and not for the experiment.
    pub fn retire(&self, budget: &Budget) {
        self.0.hold.get_or_init(|| budget.hold_anyway(self.0.bytes.len()));
    }

    /// The encoded message without its framing.
    pub fn message(&self) -> &[u8] {
        &self.0.bytes[5..]
    }

    /// The framed bytes, without copying them.
    pub fn framed(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes
    }
}

/// An extension of an answer: the message that replaces its body.
#[derive(Clone, Debug)]
pub struct SharedAnswer(pub Shared);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retired_message_is_held_until_the_last_has_taken_it() {
        let budget = Budget::new(100);
        let shared = Shared::of(&"a string".to_owned());
        assert_eq!(shared.as_ref()[..5], [0, 0, 0, 0, 10]);
        assert_eq!(shared.message().len(), 10);
        let taken = shared.clone().framed();
        assert_eq!((taken.len(), budget.held()), (15, 0));
        shared.retire(&budget);
        shared.retire(&budget);
        assert_eq!(budget.held(), 15);
        drop(shared);
        let rest = taken.slice(10..);
        drop(taken);
        assert_eq!(budget.held(), 15);
        drop(rest);
        assert_eq!(budget.held(), 0);
    }
}
