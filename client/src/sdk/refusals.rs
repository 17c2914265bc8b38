//! The report on refusals: an installation privately reports why it takes no part, if the app
//! agrees.

use bandana_shared::identity::ExperimentId;

use super::{Builder, Ready, Shared};
use crate::acceptance::Acceptance;
use crate::reward::Reward;

impl<T> Builder<Ready<T>> {
    /// Takes part in an experiment about refusals (`bandana experiment create NAME --refusals`).
    /// Its reports say, by k-ary randomized response, whether and why the installation refuses one
    /// of the other experiments. Otherwise an operator sees that reports are missing, but not why.
    /// The rewards are [`bandana_shared::refusals::rewards`].
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
    /// This is a separate report, debited like any other. It is drawn when the app chooses an arm
    /// of any experiment, whatever comes of that choice. It is never drawn because something was
    /// refused or fetched again. A refusal, or a reward that its experiment does not admit, changes
    /// only the odds of one symbol. The report does not
    /// name the refused experiment. Whoever sees all calls of one installation needs no report: an
    /// installation that refuses fetches again, and sends no reports. An installation whose budget
    /// is spent makes none, and one that refuses spends less elsewhere.
    pub fn report_refusals(mut self, id: ExperimentId, acceptance: Acceptance) -> Self {
        let settings = &mut self.step.settings;
        settings.acceptances.by_id.insert(id.clone(), acceptance);
        settings.refusals = Some(id);
        self
    }
}

impl Shared {
    /// Draws the assignment whose report is on refusals, if none is open. Only for the app's own calls:
    /// the time of a fetch may depend on what is refused.
    pub(super) fn draw_about_refusals(&self) {
        let Some(id) = &self.refusals else { return };
        let now = self.now();
        // Without a policy, or consent, there is nothing to report.
        self.core().choose(id, now).ok();
        self.tell_refusals();
    }

    /// Adds to the open report on refusals what is refused now. Of the categories told within the
    /// window the last one counts.
    pub(super) fn tell_refusals(&self) {
        let Some(id) = &self.refusals else { return };
        let now = self.now();
        let mut core = self.core();
        let Some(assignment) = core.open_assignment(id, now) else { return };
        let reason = core.first_refusal(id);
        if let Ok(category) = Reward::new(reason.category().into()) {
            core.reward(assignment, category, now).ok();
        }
        let keeps = core.keeps_rewards();
        drop(core);
        if keeps {
            self.writes.wake();
        }
    }
}
