//! An app's terms for experiments whose reports a relay shuffles.

use bandana_shared::accounting::delta::Delta;
use bandana_shared::accounting::delta_units::DeltaUnits;
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::accounting::nano_nats::NanoNats;
use bandana_shared::accounting::shuffling::Shuffling;
use bandana_shared::gateway::GatewayKeys;
use bandana_shared::shuffling::{BatchSize, Permille};
use bandana_shared::specification::Specification;

use crate::debit::Debit;

/// The relay that an app believes, and the least privacy that the app accepts of its shuffled
/// reports.
///
/// ```
/// use bandana_client::Shuffled;
/// use bandana_shared::accounting::{delta::Delta, loss::PrivacyLoss};
/// use bandana_shared::gateway::GatewayKeys;
///
/// // The public key of the relay, from whoever runs it: part of the app.
/// let relay: GatewayKeys =
///     "00290100208520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a000400010003"
///         .parse()?;
/// // At most 0.2 nats and one in a billion for each report, as the aggregator sees it.
/// let terms = Shuffled::by(relay.clone(), PrivacyLoss::new(0.2)?, Delta::new(1e-9)?);
/// assert_eq!(terms.relay(), &relay);
/// // A tenth of the users in a batch may collude with the aggregator.
/// assert_eq!(terms.colluders().get(), 100);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Privacy
/// An aggregator that sees a report only in its batch learns no more of the reward than these terms
/// say, under two conditions:
/// - The relay does not collude with it. The relay shuffles, hands on full batches only, and tells
///   nobody who sent which report.
/// - At most [`Self::colluders`] of a thousand users in a batch collude with it. Made-up users
///   break that. So do signers who sign a specification or a gateway's key for few devices: batches
///   of those few can be filled with anything.
///
/// Several reports of an installation for one arm may lie in one batch. So the m-th costs what m
/// reports in one batch certify, less what m - 1 certify. Each costs more than the one before. From
/// the seventeenth on, each costs its local ε.
///
/// If either condition fails, the ε of the experiment still holds, as for reports that nobody
/// shuffles. A relay that does not collude sees who reports, when, and for which arm. As long as
/// the aggregator's key is genuine, it can't read the bit, which is sealed for the aggregator. So
/// have that key signed.
#[derive(Clone, Debug, PartialEq)]
pub struct Shuffled {
    relay: GatewayKeys,
    epsilon_max: PrivacyLoss,
    delta: Delta,
    colluders: Permille,
}

/// The share of users in a batch that is assumed to collude, unless the app says another one: a
/// tenth, which costs a batch little of its certificate. Users that nobody vouches for can be made
/// by whoever wants many.
const COLLUDERS: u16 = 100;

impl Shuffled {
    /// Believes the relay with this public key, and accepts experiments whose batches certify at
    /// most `epsilon_max` for a report, with `delta`, while a tenth of the users in a batch
    /// collude with the aggregator.
    ///
    /// ```
    /// use bandana_client::Shuffled;
    /// use bandana_shared::accounting::{delta::Delta, loss::PrivacyLoss};
    /// # let text = "00290100208520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a000400010003";
    ///
    /// # let relay = || text.parse::<bandana_shared::gateway::GatewayKeys>();
    /// let strict = Shuffled::by(relay()?, PrivacyLoss::new(0.1)?, Delta::new(1e-12)?);
    /// let generous = Shuffled::by(relay()?, PrivacyLoss::UNBOUNDED, Delta::new(1e-6)?);
    /// assert_ne!(strict, generous);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Privacy
    /// `delta` is the price of each report in the central account of the [`crate::Budget`],
    /// whatever the experiment. Choose it so small that its sum over the reports of one user is far
    /// below 1 / (number of users).
    pub fn by(relay: GatewayKeys, epsilon_max: PrivacyLoss, delta: Delta) -> Self {
        let colluders = Permille::new(COLLUDERS).unwrap_or_default();
        Self { relay, epsilon_max, delta, colluders }
    }

    /// The same terms, with this assumed share of the users in a batch who collude with the
    /// aggregator, in thousandths.
    ///
    /// ```
    /// use bandana_client::Shuffled;
    /// # use bandana_shared::accounting::{delta::Delta, loss::PrivacyLoss};
    /// use bandana_shared::shuffling::Permille;
    /// # let text = "00290100208520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a000400010003";
    /// # let terms = Shuffled::by(text.parse()?, PrivacyLoss::new(0.1)?, Delta::new(1e-12)?);
    ///
    /// // Anybody can install this app as often as they like.
    /// let half = Permille::new(500).ok_or("more than all")?;
    /// assert_eq!(terms.with_colluders(half).colluders(), half);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Privacy
    /// The reports of colluders hide nobody. If all of a thousand collude, only the ε of the
    /// experiment is left.
    #[must_use]
    pub fn with_colluders(self, colluders: Permille) -> Self {
        Self { colluders, ..self }
    }

    /// The public key of the relay.
    pub fn relay(&self) -> &GatewayKeys {
        &self.relay
    }

    /// The share of the users in a batch that is assumed to collude with the aggregator.
    pub fn colluders(&self) -> Permille {
        self.colluders
    }

    /// The largest central ε, in nats, that the app accepts of the first report for an arm.
    pub fn epsilon_max(&self) -> PrivacyLoss {
        self.epsilon_max
    }

    /// The δ of a report.
    pub fn delta(&self) -> Delta {
        self.delta
    }

    /// What a batch of an experiment certifies. It takes up to a second to compute for the largest
    /// batches, and so is taken from `known` if that is of the same batch.
    pub(crate) fn certify(
        &self,
        specification: &Specification,
        batch: BatchSize,
        known: &mut Option<Certified>,
    ) -> PrivacyLoss {
        let Some(batch) = batch.certificate(specification.channel(), self.colluders) else {
            // Nobody in the batch is honest.
            return specification.epsilon().into();
        };
        let same = known.take().filter(|known| known.is_of(batch, self.delta));
        let certified = same.unwrap_or_else(|| Certified::new(batch, self.delta));
        known.insert(certified).loss
    }

    /// The price of a report whose batch certifies this loss.
    pub(crate) fn price(&self, specification: &Specification, central: PrivacyLoss) -> Debit {
        let local = specification.price();
        Debit {
            local,
            // It holds too.
            central: NanoNats::from_loss(central).unwrap_or(local).min(local),
            delta: DeltaUnits::from_delta(self.delta),
        }
    }
}

/// A batch whose loss was computed.
#[derive(Clone, Debug)]
pub(crate) struct Certified {
    batch: Shuffling,
    delta: Delta,
    loss: PrivacyLoss,
    /// What the second report of a person in one batch costs, and each further one, as far as that was
    /// asked for.
    further: Vec<NanoNats>,
}

impl Certified {
    fn new(batch: Shuffling, delta: Delta) -> Self {
        Self { batch, delta, loss: batch.loss(delta), further: Vec::new() }
    }

    fn is_of(&self, batch: Shuffling, delta: Delta) -> bool {
        self.batch == batch && self.delta == delta
    }

    /// The central price of a report beside `before` others of the same person in one batch, with δ for
    /// each of them; `None` if it is the local one. `first` is the price of the first.
    ///
    /// # Privacy
    /// The prices of m reports sum to at least the loss of m that lie in one batch. They never fall, so
    /// they sum to no less if the m lie in several batches, or begin after others: a sum of the last m
    /// of n is no less than that of the first m. Where the local price limits one, it limits all after
    /// it, and one more report never costs more than that.
    pub(crate) fn price_after(&mut self, before: u32, first: Debit) -> Option<NanoNats> {
        if NanoNats::from_loss(self.loss).ok()?.min(first.local) != first.central {
            return None;
        }
        let place = usize::try_from(before).ok()?;
        while self.further.len() < place {
            let own = u32::try_from(self.further.len()).ok()?.checked_add(2)?;
            let group = self.batch.of_group(own)?;
            let delta = Delta::new((self.delta.get() * f64::from(own)).next_down().clamp(0.0, 1.0));
            let together = NanoNats::from_loss(group.loss(delta.ok()?)).ok()?;
            let paid = self.further.iter().copied().fold(first.central, NanoNats::saturating_add);
            let last = self.further.last().copied().unwrap_or(first.central);
            self.further.push(together.saturating_sub(paid).max(last).min(first.local));
        }
        let price = place.checked_sub(1).map_or(first.central, |place| self.further[place]);
        (price < first.local).then_some(price)
    }
}

#[cfg(test)]
mod tests {
    use bandana_shared::accounting::shuffling::OWN_MAX;
    use bandana_shared::channel::Floor;
    use bandana_shared::epsilon::Epsilon;

    use super::*;

    #[test]
    fn prices_cover_every_division_into_batches() -> Result<(), Box<dyn std::error::Error>> {
        for (epsilon, reports, delta) in [(2.0, 900, 1e-6), (1.0, 100, 1e-4), (4.0, 900, 1e-9)] {
            let epsilon = Epsilon::new(epsilon)?;
            let batch = Shuffling::new(Floor::for_epsilon(epsilon), reports)?;
            let mut certified = Certified::new(batch, Delta::new(delta)?);
            let local = NanoNats::from_epsilon(epsilon);
            let central = NanoNats::from_loss(certified.loss)?;
            let first = Debit { local, central, delta: DeltaUnits::from_delta(Delta::new(delta)?) };
            let prices: Vec<NanoNats> = (0..OWN_MAX + 2)
                .map(|before| certified.price_after(before, first).unwrap_or(local))
                .collect();
            assert_eq!(prices[0], central);
            assert_eq!(prices[OWN_MAX as usize..], [local, local]);
            assert!(prices.is_sorted() && prices[1] < local, "{prices:?}");
            // Sums in nats, of any run of reports that begins anywhere.
            for own in 2..=OWN_MAX {
                let Some(group) = batch.of_group(own) else { return Err("a small batch".into()) };
                let all = Delta::new(delta * f64::from(own))?;
                for run in prices.windows(own as usize) {
                    let paid = run.iter().copied().fold(NanoNats::ZERO, NanoNats::saturating_add);
                    assert!(group.delta(paid.to_loss()).get() <= all.get(), "{epsilon:?} {own}");
                }
            }
        }
        Ok(())
    }
}
