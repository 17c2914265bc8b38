//! The digests of the aggregator's keys that devices may seal reports for.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use bandana_shared::gateway::GatewayKeys;

use crate::forward::Keys;

/// Most keys that are remembered: an aggregator changes them rarely.
const KNOWN_MAX: usize = 64;

/// The keys that the relay has had from the aggregator lately.
#[derive(Clone, Debug)]
pub(super) struct GatewayDigests {
    keys: Keys,
    known: Arc<Mutex<VecDeque<[u8; 16]>>>,
}

impl GatewayDigests {
    pub(super) fn new(keys: Keys) -> Self {
        Self { keys, known: Arc::default() }
    }

    /// Whether these are keys of the aggregator. Others, which anybody can make up, are asked for
    /// anew, as seldom as devices can.
    pub(super) async fn know(&self, digest: [u8; 16]) -> bool {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known().contains(&digest) {
            return true;
        }
        let Ok(answer) = self.keys.get().await else { return false };
        let keys = GatewayKeys::new(&answer.key_configurations);
        let Some(now) = keys.ok().map(|keys| keys.digest()) else { return false };
        let mut known = known();
        if !known.contains(&now) {
            known.truncate(KNOWN_MAX - 1);
            known.push_front(now);
        }
        now == digest
    }
}
