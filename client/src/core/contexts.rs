//! Choosing in a private context explores by a coin, or else takes the arm with the greatest score.

use bandana_shared::cells::Cell;
use bandana_shared::context::PrivateContext;
use bandana_shared::identity::{ArmIndex, CellIndex, ExperimentId};
use bandana_shared::policy::Weights;
use bandana_shared::specification::Specification;

use super::choosing::Drawn;
use super::{ClientError, Core};
use crate::assignment::{AssignmentId, Chosen};
use crate::noise::NoiseSource;
use crate::sign::Sign;
use crate::time::Timestamp;

/// Checks that a call gives a context with one `bool` for each feature of an experiment, if that has a
/// private context.
pub(super) fn check_context(
    specification: &Specification,
    context: Option<&[bool]>,
) -> Result<(), ClientError> {
    let Some(private) = specification.private_context() else { return Ok(()) };
    let (expected, given) = (private.features().len(), context.map_or(0, <[bool]>::len));
    if given == expected {
        return Ok(());
    }
    let experiment_id = specification.experiment_id().clone();
    Err(ClientError::Context { experiment_id, expected, given })
}

impl<N: NoiseSource> Core<N> {
    /// Like [`Self::choose`], but in a context. Pass one `bool` for each feature that the app has
    /// agreed to by [`crate::Acceptance::private_context`], in the same order. **This is
    /// research.**
    ///
    /// The device flips a coin of its own. Either it explores: it shows an arm that does not depend
    /// on the context, and makes one report. Or it takes the arm with the greatest score in the
    /// context, which never reports ([`crate::Unreported::NotExploring`]). While the window of an
    /// assignment lasts, its arm is shown in other contexts too. [`Self::draw_in_context`] chooses
    /// again. In an experiment without a private context, the call is the same as [`Self::choose`].
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// use bandana_client::{ClientError, Fetched, Unreported};
    /// use bandana_shared::cells::Measurement;
    /// use bandana_shared::policy::{Policy, Weights};
    /// use bandana_shared::{context::PrivateContext, participation::Millionths};
    ///
    /// # let (mut client, id) = (bandana_client::Client::new(budget()?), specification()?.experiment_id().clone());
    /// // Hardly any assignment explores here. On weekends the second arm, green, is better.
    /// let context = PrivateContext::new(vec!["weekend".parse()?], Millionths::new(1)?)?;
    /// let measurement = Measurement { context: Some(context), ..Measurement::REWARDS_ONLY };
    /// let specification = specification()?.measuring(measurement)?;
    /// let [even, scores] = [[1.0, 1.0], [0.9, 1.1]].map(|shares| Weights::from_shares(&shares));
    /// let weights = even.clone()?.with_segments(&[even?, scores?])?;
    /// let policy = Policy { weights, ..answer(now())?.policy };
    /// client.enroll(id.clone(), acceptance()?.private_context(["weekend"]));
    /// let fetched = Fetched { specification, policy, ..answer(now())? };
    /// client.on_fetched(&FetchTask::new(id.clone()), fetched, now())?;
    ///
    /// let chosen = client.choose_in_context(&id, &[true], now())?;
    /// # if chosen.unreported().is_some() {
    /// assert_eq!(chosen.label(), "green");
    /// assert_eq!(chosen.unreported(), Some(Unreported::NotExploring));
    /// assert_eq!(client.spent().lifetime.get(), 0);
    /// # }
    /// // A call without a context is refused, and so is one with too many features.
    /// assert!(matches!(client.choose(&id, now()), Err(ClientError::Context { .. })));
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Privacy
    /// If an assignment does not explore, nothing about it leaves the device, and nothing is
    /// written to the device's disk. If it explores, all that leaves, and when, is independent of
    /// the context, except for one bit. That bit costs ε for context and reward together. This
    /// holds whatever a server sends. Make the call in every context alike, because it is not
    /// hidden whether an app asks for an arm.
    ///
    /// # Errors
    /// [`ClientError::Context`] for another number of features. Otherwise as for [`Self::draw`].
    pub fn choose_in_context(
        &mut self,
        experiment_id: &ExperimentId,
        context: &[bool],
        now: Timestamp,
    ) -> Result<Chosen, ClientError> {
        self.choose_by(experiment_id, Some(context), now)
    }

    /// Like [`Self::draw`], but in a context, which you pass as to [`Self::choose_in_context`].
    /// **This is research.**
    ///
    /// ```
    #[doc = include_str!("../example.txt")]
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// // An experiment without a private context: the context changes nothing.
    /// let chosen = client.draw_in_context(&id, &[true, false], now())?;
    /// assert_eq!(chosen.unreported(), None);
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Privacy
    /// The same as for [`Self::choose_in_context`].
    ///
    /// # Errors
    /// The same as for [`Self::choose_in_context`].
    pub fn draw_in_context(
        &mut self,
        experiment_id: &ExperimentId,
        context: &[bool],
        now: Timestamp,
    ) -> Result<Chosen, ClientError> {
        self.draw_by(experiment_id, Some(context), now)
    }

    /// Flips the coin, and draws the arm and the coordinate of a report: all of them before the context
    /// is looked at.
    pub(super) fn draw_coordinate(
        &mut self,
        (specification, private): (&Specification, &PrivateContext),
        weights: &Weights,
        context: &[bool],
    ) -> Result<Drawn, ClientError> {
        let explores = private.explores(self.uniform()?);
        let arm = weights.draw(self.uniform()?);
        let coordinate = private.draw(self.uniform()?);
        let cell = Cell { coordinate, ..Cell::of(arm) };
        let is_negative = !PrivateContext::is_positive(coordinate, context);
        let cell = specification.cells().index(cell);
        Ok(Drawn { cell, explores, sign: Sign::Known { is_negative } })
    }

    /// A cell of the arm with the greatest score in a context, or of one of them; `None`: there is no
    /// private context.
    pub(super) fn best_cell(
        &mut self,
        specification: &Specification,
        weights: &Weights,
        context: &[bool],
    ) -> Result<Option<CellIndex>, ClientError> {
        let Some(private) = specification.private_context() else { return Ok(None) };
        let best = private.best_arms(weights, &specification.active_arms(), context);
        // The product is below `2^32` times the number of arms.
        let scaled = u64::from(self.uniform()?) * best.len() as u64;
        let place = usize::try_from(scaled >> 32).unwrap_or_default();
        let arm = best.get(place).and_then(|arm| ArmIndex::new(*arm).ok());
        Ok(arm.map(|arm| specification.cells().index(Cell::of(arm))))
    }

    /// Remembers the coordinate that an assignment reports its rewards with.
    pub(super) fn remember(&mut self, id: AssignmentId, sign: Sign) {
        let Some(open) = self.state.open.get_mut(&id) else { return };
        open.set_sign(sign);
        if open.specification.private_context().is_some() {
            self.journal.note_reward();
        }
    }
}
