//! The price of a report: what the ledger of a device counts for it.

use super::Specification;
use crate::accounting::nano_nats::NanoNats;
use crate::channel::{Channel, Floor, KaryChannel};
use crate::epsilon::Epsilon;

impl Specification {
    /// The price of a report, in whole nano-nats. It is [`NanoNats::of_decimal`] of ε if the
    /// channel loses no more, and otherwise ε rounded up. So 0.2 nats cost 200 000 000 nano-nats,
    /// although the floating-point number 0.2 is a little more than a fifth. The floor keeps the
    /// loss below that, since [`Floor::for_epsilon`] rounds it to the private side.
    ///
    /// # Privacy
    /// The loss of the channel is at most the price. If ε is not rounded up, the floor is verified
    /// in integers against the next floating-point number below ε, which is below the price.
    ///
    /// ```
    /// # use bandana_shared::curve::Mechanism;
    /// # use bandana_shared::epsilon::Epsilon;
    /// # use bandana_shared::identity::ExperimentId;
    /// # use bandana_shared::rewards::Rewards;
    /// # use bandana_shared::specification::{Arm, ReleaseTiming, Specification};
    /// # let specification = Specification::first(
    /// #     ExperimentId::new("button-colour")?,
    /// #     Epsilon::new(0.2)?,
    /// #     Rewards::binary(),
    /// #     Mechanism::RandomizedResponse,
    /// #     vec![Arm::new("red")?, Arm::new("green")?],
    /// #     ReleaseTiming { attribution_window_seconds: 3600, release_delay_seconds_max: 600 },
    /// # )?;
    /// // The experiment of the example above, with ε = 0.2.
    /// assert_eq!(specification.price().get(), 200_000_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn price(&self) -> NanoNats {
        let epsilon = self.parts.epsilon;
        let ceiling = NanoNats::from_epsilon(epsilon);
        match (NanoNats::of_decimal(epsilon.get()), Epsilon::new(epsilon.get().next_down())) {
            (Some(decimal), Ok(below)) if decimal < ceiling && self.keeps(below) => decimal,
            _ => ceiling,
        }
    }

    /// Whether the channel loses no more than `epsilon`.
    fn keeps(&self, epsilon: Epsilon) -> bool {
        match self.channel {
            Channel::Bit(floor) => Floor::verify(floor.get(), epsilon).is_ok(),
            Channel::Kary(channel) => {
                KaryChannel::verify(channel.alphabet(), channel.share(), epsilon).is_ok()
            }
        }
    }
}
