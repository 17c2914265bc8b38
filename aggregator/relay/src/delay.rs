//! The random time for which a relay holds what devices make it say.

use std::time::Duration;

/// The longest time. What a device causes at the aggregator begins after a random part of it, so that the
/// aggregator does not learn when the device called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RandomDelay(pub(crate) Duration);

impl RandomDelay {
    /// Waits for a random part of the longest time; without randomness for all of it.
    pub(crate) async fn wait(self) {
        // 53 bits, which a float holds exactly.
        #[expect(clippy::cast_precision_loss, reason = "53 bits")]
        let part = getrandom::u64().map_or(1.0, |word| (word >> 11) as f64 / (1_u64 << 53) as f64);
        tokio::time::sleep(self.0.mul_f64(part)).await;
    }
}
