//! The central loss: what a report among a shuffled batch gives away of a user.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use bandana_shared::accounting::delta::Delta;
use bandana_shared::channel::Channel;
use bandana_shared::shuffling::{BatchSize, Permille};
use bandana_shared::specification::Specification;

/// The δ for which the guarantee is stated.
const DELTA: f64 = 1e-6;

/// The share of colluders for which it is stated a second time: a tenth.
const COLLUDERS: u16 = 100;

/// The losses that were computed; the largest batch takes a third of a second.
static KNOWN: LazyLock<Mutex<Losses>> = LazyLock::new(Mutex::default);

/// Without colluders and with, by floor and batch.
type Losses = HashMap<(u64, BatchSize), [f64; 2]>;

/// Most of them that are kept.
const KNOWN_MAX: usize = 1000;

/// The privacy of a report that the aggregator sees among a batch only: (central_epsilon,
/// delta)-differential privacy, as long as the relay does not collude with the aggregator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CentralLoss {
    /// The reports of a batch.
    pub batch: BatchSize,
    /// The probability of a larger loss.
    pub delta: f64,
    /// The loss in nats if nobody in the batch colludes with the aggregator.
    pub central_epsilon: f64,
    /// The loss in nats if a tenth of the batch does.
    pub central_epsilon_with_colluders: f64,
}

/// The central loss of one report. None: reports are not shuffled.
pub(crate) fn central_loss(specification: &Specification) -> Option<CentralLoss> {
    let batch = specification.batch()?;
    let [central_epsilon, central_epsilon_with_colluders] = losses(specification.channel(), batch)?;
    Some(CentralLoss { batch, delta: DELTA, central_epsilon, central_epsilon_with_colluders })
}

fn losses(channel: Channel, batch: BatchSize) -> Option<[f64; 2]> {
    let name = (channel.floor(), batch);
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(losses) = known().get(&name) {
        return Some(*losses);
    }
    let delta = Delta::new(DELTA).ok()?;
    let loss = |colluders| {
        let certificate = batch.certificate(channel, Permille::new(colluders)?)?;
        Some(certificate.loss(delta).get())
    };
    let losses = [loss(0)?, loss(COLLUDERS)?];
    let mut known = known();
    if known.len() >= KNOWN_MAX {
        known.clear();
    }
    known.insert(name, losses);
    Some(losses)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bandana_shared::curve::Mechanism;
    use bandana_shared::epsilon::Epsilon;
    use bandana_shared::identity::ExperimentId;
    use bandana_shared::rewards::Rewards;
    use bandana_shared::specification::{Arm, ReleaseTiming};

    #[test]
    fn a_batch_is_worth_more_than_the_bit_and_colluders_take_some_of_it() {
        let plain = Specification::first(
            ExperimentId::new("a").unwrap(),
            Epsilon::new(1.0).unwrap(),
            Rewards::binary(),
            Mechanism::Linear,
            vec![Arm::new("x").unwrap(), Arm::new("y").unwrap()],
            ReleaseTiming::IMMEDIATE,
        )
        .unwrap();
        assert_eq!(central_loss(&plain), None);
        let batch = plain.in_batches(BatchSize::new(1000).unwrap()).unwrap();
        for _ in 0..2 {
            let central = central_loss(&batch).unwrap();
            assert!((0.126..0.127).contains(&central.central_epsilon), "{central:?}");
            let colluded = central.central_epsilon_with_colluders;
            assert!(colluded > central.central_epsilon && colluded < 0.15, "{central:?}");
        }
        // With two reports nearly all is lost, and with none that is honest all.
        let two = plain.in_batches(BatchSize::new(2).unwrap()).unwrap();
        assert!(central_loss(&two).unwrap().central_epsilon_with_colluders > 0.99);
    }
}
