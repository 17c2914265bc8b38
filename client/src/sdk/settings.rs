//! Settings of a client, made by its builder.

use std::collections::BTreeMap;
use std::sync::Arc;

use bandana_shared::identity::ExperimentId;

use super::disk::Place;
use crate::acceptance::Acceptance;
use crate::budget::Budget;
use crate::time::Clock;

/// Whether the user consents to take part.
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
/// // At the next start the user consents, and later opts out.
/// let (bandana, tasks) = start(Consent::Given)?;
/// let choice = bandana.experiment("button-colour")?.choose();
/// assert!(matches!(choice, Choice::Default(DefaultReason::NoPolicyYet)));
/// bandana.opt_out()?;
/// # drop((bandana, tasks, choice));
/// // The opt-out stands, whatever the app sets, until the user opts in.
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
    /// The user consents. An earlier [`crate::Bandana::opt_out`] stands until
    /// [`crate::Bandana::opt_in`].
    Given,
    /// The user does not consent, or was not asked yet. Nothing is fetched, kept or sent. What
    /// [`crate::Bandana::opt_out`] deletes is deleted. This lasts until [`crate::Bandana::opt_in`],
    /// or until the next start with [`Self::Given`].
    Withheld,
}

/// An app's terms, for all experiments or for each.
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
    /// The experiment about refusals.
    pub(super) refusals: Option<ExperimentId>,
    #[cfg_attr(not(feature = "storage"), expect(dead_code, reason = "read by a storage"))]
    pub(super) keeps_rewards: bool,
    pub(super) on_work: Option<Box<dyn Fn() + Send + Sync>>,
    pub(super) clock: Arc<dyn Clock>,
}
