//! The report on refusals: why an installation takes no part, told privately if the app agrees.

use bandana_shared::identity::ExperimentId;
use bandana_shared::refusals::RefusalReason;

use super::{Builder, Ready, Shared};
use crate::acceptance::Acceptance;
use crate::refusal::Refusal;
use crate::reward::Reward;

impl<T> Builder<Ready<T>> {
    /// Takes part in an experiment about refusals (`bandana experiment create NAME --refusals`): its
    /// reports say, by k-ary randomized response, whether and why the installation refuses one of the
    /// other experiments. Without this an operator sees no reports, and not why. The rewards are
    /// [`bandana_shared::refusals::rewards`].
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::{Acceptance, Bandana};
    /// use bandana_shared::{epsilon::Epsilon, identity::ExperimentId, refusals};
    ///
    /// # let builder = agree(Bandana::builder().host_transport().in_memory())?;
    /// let little = Acceptance::unsigned(Epsilon::new(0.5)?, refusals::rewards());
    /// let builder = builder.report_refusals(ExperimentId::new("refusals")?, little);
    /// # let (_bandana, mut tasks) = builder.build();
    /// # let bandana_client::Task::Fetch(task) = tasks.next_task()? else { panic!() };
    /// # assert_eq!(task.experiment_id.as_str(), "refusals");
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Privacy
    /// A report of its own, debited like any other. An installation that refuses nothing makes it too,
    /// at times that don't depend on refusals; they change the odds of one symbol. Which experiment is
    /// refused is not told.
    pub fn report_refusals(mut self, id: ExperimentId, acceptance: Acceptance) -> Self {
        let settings = &mut self.step.settings;
        settings.acceptances.by_id.insert(id.clone(), acceptance);
        settings.refusals = Some(id);
        self
    }
}

impl Shared {
    /// Adds to the report on refusals what is refused now.
    pub(super) fn tell_refusals(&self) {
        let Some(id) = &self.refusals else { return };
        let mut core = self.core();
        if core.specification(id).is_none() {
            return;
        }
        let now = self.now();
        let reason = core.first_refusal(id).map_or(RefusalReason::Nothing, Refusal::reason);
        if let Ok(chosen) = core.choose(id, now)
            && chosen.unreported().is_none()
            && let Ok(category) = Reward::new(reason.category().into())
        {
            // Of the categories told within the window the last one counts.
            core.reward(chosen.id(), category, now).ok();
        }
        drop(core);
        self.wake_after_draw();
    }
}
