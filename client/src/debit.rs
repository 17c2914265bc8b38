//! Amounts in the two accounts of a ledger: local, and central.

use bandana_shared::accounting::delta_units::DeltaUnits;
use bandana_shared::accounting::guarantee::Guarantee;
use bandana_shared::accounting::nano_nats::NanoNats;

/// An amount in the central account, as ε and δ. It is the privacy loss to an aggregator that sees
/// shuffled reports only in their batches.
///
/// ```
#[doc = include_str!("example.txt")]
/// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
/// client.draw(&id, now())?;
/// // The report is not shuffled, so it costs as much here as in the local account, and no delta.
/// let central = client.spent().central_lifetime;
/// assert_eq!((central.epsilon.get(), central.delta.get()), (1_000_000_000, 0));
/// # Ok::<(), Failure>(())
/// ```
///
/// # Privacy
/// The amount holds under two conditions. The relays that shuffle don't collude with the
/// aggregator. Of the users in a batch, at most the share that the app assumes colludes with it.
/// See [`crate::Shuffled`]. Otherwise the local account holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CentralLoss {
    /// ε, in nano-nats.
    pub epsilon: NanoNats,
    /// δ, in units of 2^-64.
    pub delta: DeltaUnits,
}

impl CentralLoss {
    /// No cap.
    pub(crate) const MAX: Self = Self { epsilon: NanoNats::MAX, delta: DeltaUnits::MAX };

    /// A cap, rounded down.
    pub(crate) fn cap(cap: Guarantee) -> Self {
        Self { epsilon: NanoNats::cap(cap.loss()), delta: DeltaUnits::cap(cap.delta()) }
    }
}

/// The price of a report in both accounts, or a sum of prices.
///
/// All operations are those of three independent sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Debit {
    pub(crate) local: NanoNats,
    pub(crate) central: NanoNats,
    pub(crate) delta: DeltaUnits,
}

impl Debit {
    pub(crate) const ZERO: Self = Self::unshuffled(NanoNats::ZERO);

    /// The price of a report that is not shuffled: the aggregator sees it, so its central loss is the
    /// local one.
    pub(crate) const fn unshuffled(local: NanoNats) -> Self {
        Self { local, central: local, delta: DeltaUnits::ZERO }
    }

    /// The amount in the central account.
    pub(crate) fn central(self) -> CentralLoss {
        CentralLoss { epsilon: self.central, delta: self.delta }
    }

    /// Whether none of the three is less than that of `other`.
    #[cfg(feature = "storage")]
    pub(crate) fn covers(self, other: Self) -> bool {
        self.min(other) == other
    }

    #[must_use]
    pub(crate) fn saturating_add(self, other: Self) -> Self {
        Self {
            local: self.local.saturating_add(other.local),
            central: self.central.saturating_add(other.central),
            delta: self.delta.saturating_add(other.delta),
        }
    }

    /// The rest of each of the three, at least 0.
    #[must_use]
    pub(crate) fn saturating_sub(self, other: Self) -> Self {
        Self {
            local: self.local.saturating_sub(other.local),
            central: self.central.saturating_sub(other.central),
            delta: self.delta.saturating_sub(other.delta),
        }
    }

    /// The smaller one of each of the three.
    #[must_use]
    pub(crate) fn min(self, other: Self) -> Self {
        Self {
            local: self.local.min(other.local),
            central: self.central.min(other.central),
            delta: self.delta.min(other.delta),
        }
    }
}
