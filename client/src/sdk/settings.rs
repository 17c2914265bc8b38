//! Settings of a client, as its builder was told.

use std::collections::BTreeMap;
use std::sync::Arc;

use bandana_shared::identity::ExperimentId;

use super::disk::Place;
use crate::acceptance::Acceptance;
use crate::ledger::Budget;
use crate::time::Clock;

/// Whether the user agrees to take part.
///
/// ```
#[doc = include_str!("../example.txt")]
/// use bandana_client::{Bandana, Choice, Consent, DefaultReason};
///
/// # let app = tempfile::tempdir()?;
/// # let start = |consent| -> Result<_, Failure> {
/// #     let builder = Bandana::builder().host_transport().directory(app.path());
/// #     Ok(builder.accept(acceptance()?).budget(budget()?).consent(consent).build())
/// # };
/// // The user was not asked yet.
/// let (bandana, tasks) = start(Consent::Withheld)?;
/// let choice = bandana.experiment("button-colour")?.choose();
/// assert!(matches!(choice, Choice::Default(DefaultReason::OptedOut)));
/// # drop((bandana, tasks, choice));
/// // At the next start the user agrees, and later withdraws.
/// let (bandana, tasks) = start(Consent::Given)?;
/// let choice = bandana.experiment("button-colour")?.choose();
/// assert!(matches!(choice, Choice::Default(DefaultReason::NoPolicyYet)));
/// bandana.opt_out()?;
/// # drop((bandana, tasks, choice));
/// // That stands, whatever the app says, until the user takes part again.
/// let (bandana, _tasks) = start(Consent::Given)?;
/// let choice = bandana.experiment("button-colour")?.choose();
/// assert!(matches!(choice, Choice::Default(DefaultReason::OptedOut)));
/// bandana.opt_in()?;
/// let choice = bandana.experiment("button-colour")?.choose();
/// assert!(matches!(choice, Choice::Default(DefaultReason::NoPolicyYet)));
/// # Ok::<(), Failure>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consent {
    /// The user agrees. An earlier [`crate::Bandana::opt_out`] stands until [`crate::Bandana::opt_in`].
    Given,
    /// The user does not agree, or was not asked yet: nothing is asked for, kept or
    /// sent, and what was kept is deleted, all but what was spent. It lasts until
    /// [`crate::Bandana::opt_in`], or the next start with [`Self::Given`].
    Withheld,
}

/// What an app agrees to, for all experiments or for each.
#[derive(Clone, Debug, Default)]
pub(super) struct Acceptances {
    pub(super) any: Option<Acceptance>,
    pub(super) by_id: BTreeMap<ExperimentId, Acceptance>,
}

impl Acceptances {
    pub(super) fn of(&self, experiment_id: &ExperimentId) -> Option<&Acceptance> {
        self.by_id.get(experiment_id).or(self.any.as_ref())
    }

    pub(super) fn listed(&self) -> impl Iterator<Item = (&ExperimentId, &Acceptance)> {
        self.by_id.iter()
    }
}

pub(super) struct Settings {
    pub(super) place: Place,
    pub(super) acceptances: Acceptances,
    pub(super) budget: Budget,
    pub(super) consent: Consent,
    #[cfg_attr(not(feature = "storage"), expect(dead_code, reason = "read by a storage"))]
    pub(super) keeps_rewards: bool,
    pub(super) clock: Arc<dyn Clock>,
}
