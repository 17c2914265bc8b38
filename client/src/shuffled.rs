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

/// The relay that an app believes, and what it accepts of the reports that this relay shuffles.
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
/// An aggregator that sees a report only in its batch learns this little of the reward as long as
/// - the relay does not collude with it: it shuffles, hands on full batches only, and tells nobody
///   who sent which report;
/// - and at most [`Self::colluders`] of a thousand users in a batch do. Whoever makes up users
///   breaks that, and so do signers who sign a specification or a gateway's key for few devices:
///   batches of those few can be filled with anything.
///
/// If either fails, the ε of the experiment holds, the same as for reports that nobody shuffles. A
/// relay that does not collude sees who reports, when, and for which arm. It can't read the bit,
/// which is sealed for the aggregator, as long as the aggregator's key is genuine: have it signed.
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
    /// most `epsilon_max` for each report, with `delta`, while a tenth of the users in a batch
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
    /// `delta` is the price of each report in the central account of the [`crate::Budget`], whatever
    /// the experiment: choose it far below one in the number of users, and so that its sum over the
    /// reports of a user is.
    pub fn by(relay: GatewayKeys, epsilon_max: PrivacyLoss, delta: Delta) -> Self {
        let colluders = Permille::new(COLLUDERS).unwrap_or_default();
        Self { relay, epsilon_max, delta, colluders }
    }

    /// The same terms, while so many of a thousand users in a batch collude with the aggregator.
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
    /// The reports of colluders hide nobody. With all of a thousand, nothing is left but the ε of the
    /// experiment.
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

    /// The largest central ε of a report that the app accepts.
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
        let (delta, same) = (self.delta, |known: &Certified| known.is_of(batch, self.delta));
        let certified = known.filter(same);
        let certified =
            certified.unwrap_or_else(|| Certified { batch, delta, loss: batch.loss(delta) });
        *known = Some(certified);
        certified.loss
    }

    /// The price of a report whose batch certifies this loss.
    pub(crate) fn price(&self, specification: &Specification, central: PrivacyLoss) -> Debit {
        let local = NanoNats::from_epsilon(specification.epsilon());
        Debit {
            local,
            // It holds too.
            central: NanoNats::from_loss(central).unwrap_or(local).min(local),
            delta: DeltaUnits::from_delta(self.delta),
        }
    }
}

/// A batch whose loss was computed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Certified {
    batch: Shuffling,
    delta: Delta,
    loss: PrivacyLoss,
}

impl Certified {
    fn is_of(&self, batch: Shuffling, delta: Delta) -> bool {
        self.batch == batch && self.delta == delta
    }
}
