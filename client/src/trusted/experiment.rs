//! Trusted experiments as an app sees them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bandana_shared::accounting::concentrated::Rho;
use bandana_shared::accounting::nano_nats::NanoNats;
use bandana_shared::identity::{Day, ExperimentId};
use bandana_shared::wire::v1::disclose_request::Played;
use bandana_shared::wire::v1::trusted_specification::Algorithm;
use bandana_shared::wire::v1::{
    DiscloseRequest, DisclosureStatus, RecommendRequest, TrustedExperimentName,
    TrustedSpecification, Vector,
};

use super::rho_ledger::price_of;
use super::{Agreement, DisclosedReward, Disclosure, Disclosures, TrustedError};
use crate::day::HeardDay;
use crate::grpc::Transport;
use crate::time::{Clock as _, ClockReading, SystemClock};

/// A trusted experiment that the client has judged. Needs a tokio runtime. Clones share the
/// server's day.
///
/// ```
#[doc = include_str!("example.txt")]
/// use bandana_client::trusted::{Agreement, TrustedExperiment};
/// use bandana_shared::{accounting::concentrated::Rho, identity::ExperimentId};
///
/// # with_server(async |transport| {
/// let agreement = Agreement::users_disclose_rewards(Rho::new(0.1)?);
/// let id = ExperimentId::new("headlines")?;
/// let experiment = TrustedExperiment::open(transport, id, agreement).await?;
/// assert!(experiment.rho() <= Rho::new(0.1)?);
/// # Ok(())
/// # })?;
/// # Ok::<(), Failure>(())
/// ```
#[derive(Clone, Debug)]
pub struct TrustedExperiment {
    transport: Transport,
    id: ExperimentId,
    agreement: Agreement,
    specification: TrustedSpecification,
    /// The largest price of a reward that the server has asked for, in billionths of ρ.
    price: Arc<AtomicU64>,
    heard_day: SharedDay,
}

/// The server's day as last received, shared by several experiments.
pub(super) type SharedDay = Arc<Mutex<HeardDay>>;

impl TrustedExperiment {
    /// Fetches an experiment and judges it.
    ///
    /// ```
    #[doc = include_str!("example.txt")]
    /// use bandana_client::trusted::{Agreement, TrustedError, TrustedExperiment};
    /// use bandana_shared::{accounting::concentrated::Rho, identity::ExperimentId};
    ///
    /// # with_server(async |transport| {
    /// // A reward of this experiment costs 0.1.
    /// let id = ExperimentId::new("headlines")?;
    /// let agreement = Agreement::users_disclose_rewards(Rho::new(0.01)?);
    /// let refused = TrustedExperiment::open(transport, id, agreement).await;
    /// assert!(matches!(refused, Err(TrustedError::Beyond { .. })));
    /// # Ok(())
    /// # })?;
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Errors
    /// [`TrustedError::Beyond`] when the price of a reward exceeds the agreement,
    /// [`TrustedError::NotUnderstood`], and [`TrustedError::Call`].
    pub async fn open(
        transport: Transport,
        id: ExperimentId,
        agreement: Agreement,
    ) -> Result<Self, TrustedError> {
        Self::open_and_hear(transport, id, agreement, SharedDay::default()).await
    }

    /// Opens an experiment, and keeps the server's day even if the experiment is refused. A day
    /// that is not accepted is no error: the experiment recommends arms, and rewards wait until the
    /// clocks agree.
    pub(super) async fn open_and_hear(
        transport: Transport,
        id: ExperimentId,
        agreement: Agreement,
        heard_day: SharedDay,
    ) -> Result<Self, TrustedError> {
        let (specification, _) = ask(&transport, &id, agreement, &heard_day).await?;
        let price = Arc::new(AtomicU64::new(price(&specification)));
        Ok(Self { transport, id, agreement, specification, price, heard_day })
    }

    /// The largest price of a reward.
    pub fn rho(&self) -> Rho {
        rho(&self.specification)
    }

    /// Whether each recommendation takes a list of actions.
    pub fn has_contexts(&self) -> bool {
        matches!(self.specification.algorithm, Some(Algorithm::AdacOful(_)))
    }

    /// The number of the arm or action to play.
    ///
    /// ```
    #[doc = include_str!("example.txt")]
    /// # with_server(async |transport| {
    /// # let experiment = open(&transport).await?;
    /// let arm = experiment.recommend().await?;
    /// # assert!(arm < 2);
    /// # Ok(())
    /// # })?;
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Errors
    /// [`TrustedError::Call`].
    pub async fn recommend(&self) -> Result<u32, TrustedError> {
        self.recommend_among(&[]).await
    }

    /// The index of the best of these actions, where the experiment has contexts. The actions are
    /// public, and each has a norm of at most 1.
    ///
    /// ```
    #[doc = include_str!("example.txt")]
    /// # with_server(async |transport| {
    /// # let experiment = open(&transport).await?;
    /// // Two of today's articles, by topic.
    /// let articles = [vec![1.0, 0.0], vec![0.6, 0.8]];
    /// let place = experiment.recommend_among(&articles).await?;
    /// # assert!(place < 2);
    /// # Ok(())
    /// # })?;
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Errors
    /// [`TrustedError::Call`].
    pub async fn recommend_among(&self, actions: &[Vec<f64>]) -> Result<u32, TrustedError> {
        let actions = actions.iter().map(|action| Vector { coordinates: action.clone() }).collect();
        let experiment_id = self.id.to_string();
        let request = self.transport.request(RecommendRequest { experiment_id, actions });
        let mut trusted = self.transport.trusted();
        let answer = self.transport.answered(trusted.recommend(request)).await?.into_inner();
        self.hear(Day::new(answer.server_day));
        Ok(answer.arm)
    }

    /// Makes the disclosure of the reward of an arm that was played.
    ///
    /// ```
    #[doc = include_str!("example.txt")]
    /// use bandana_client::trusted::DisclosedReward;
    /// # with_server(async |transport| {
    /// # let experiment = open(&transport).await?;
    /// let arm = experiment.recommend().await?;
    /// // The user saw the other arm.
    /// let disclosure = experiment.disclosure(1 - arm, DisclosedReward::new(1.0)?)?;
    /// # experiment.disclose(&disclosure, &ledger()?).await?;
    /// # Ok(())
    /// # })?;
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Errors
    /// [`TrustedError::Entropy`].
    pub fn disclosure(
        &self,
        arm: u32,
        reward: DisclosedReward,
    ) -> Result<Disclosure, TrustedError> {
        Disclosure::new(self.id.clone(), Played::Arm(arm), reward)
    }

    /// Makes the disclosure of the reward of an action that was played, where the experiment has
    /// contexts.
    ///
    /// ```
    #[doc = include_str!("example.txt")]
    /// use bandana_client::trusted::DisclosedReward;
    /// # with_server(async |transport| {
    /// # let experiment = open(&transport).await?;
    /// let reward = DisclosedReward::new(-1.0)?;
    /// let disclosure = experiment.disclosure_of(vec![0.6, 0.8], reward)?;
    /// # experiment.disclose(&disclosure, &ledger()?).await?;
    /// # Ok(())
    /// # })?;
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Errors
    /// [`TrustedError::Entropy`].
    pub fn disclosure_of(
        &self,
        action: Vec<f64>,
        reward: DisclosedReward,
    ) -> Result<Disclosure, TrustedError> {
        Disclosure::new(self.id.clone(), Played::Action(Vector { coordinates: action }), reward)
    }

    /// Sends a reward, and returns when it is durable. If you send it again, it still counts once,
    /// because its message never changes. Before the reward leaves, its price is durable in the
    /// ledger of `disclosures`. Later attempts with the same ledger cost nothing.
    ///
    /// ```
    #[doc = include_str!("example.txt")]
    /// use bandana_client::trusted::{DisclosedReward, Disclosures, RhoBudget};
    /// # with_server(async |transport| {
    /// # let experiment = open(&transport).await?;
    /// let disclosure = experiment.disclosure(0, DisclosedReward::new(1.0)?)?;
    /// # let directory = tempfile::tempdir()?;
    /// let disclosures = Disclosures::open(directory.path(), RhoBudget::default())?;
    /// while let Err(error) = experiment.disclose(&disclosure, &disclosures).await {
    ///     if error.is_final() {
    ///         break;
    ///     }
    ///     // ... and wait before it is sent again.
    /// }
    /// # Ok(())
    /// # })?;
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Errors
    /// [`TrustedError::is_final`] says whether to send the reward again. After
    /// [`TrustedError::Call`] it may have counted. After any other error this attempt did not
    /// count, but an earlier one may have. With [`TrustedError::Budget`] the budget has no room,
    /// and with [`TrustedError::Ledger`] the disk failed. In these two cases nothing has left.
    pub async fn disclose(
        &self,
        disclosure: &Disclosure,
        disclosures: &Disclosures,
    ) -> Result<(), TrustedError> {
        if *disclosure.experiment_id() != self.id {
            return Err(TrustedError::OtherExperiment);
        }
        let day = match disclosure.day() {
            Some(day) => day,
            None => self.day().await?,
        };
        let today = self.known_day().unwrap_or(day);
        disclosures.debit(disclosure.debtor(), self.price(), today).await?;
        self.submit(disclosure.message(disclosure.fix_day(day))).await
    }

    /// The largest price of a reward that the server has asked for so far, in billionths of ρ.
    pub(super) fn price(&self) -> NanoNats {
        NanoNats::new(self.price.load(Ordering::Relaxed))
    }

    /// The server's day, fetched if it was not received lately.
    pub(super) async fn day(&self) -> Result<Day, TrustedError> {
        if let Some(day) = self.known_day() {
            return Ok(day);
        }
        let (told, server) =
            ask(&self.transport, &self.id, self.agreement, &self.heard_day).await?;
        self.price.fetch_max(price(&told), Ordering::Relaxed);
        let device = SystemClock.now().day();
        self.known_day().ok_or(TrustedError::Day { device, server })
    }

    /// The server's day, if it was received lately and is accepted.
    pub(super) fn known_day(&self) -> Option<Day> {
        known(&self.heard_day)
    }

    pub(super) async fn submit(&self, message: DiscloseRequest) -> Result<(), TrustedError> {
        let request = self.transport.request(message);
        let mut trusted = self.transport.trusted();
        let answer = self.transport.answered(trusted.disclose(request)).await?.into_inner();
        self.hear(Day::new(answer.server_day));
        verdict(answer.status(), answer.message)
    }

    fn hear(&self, day: Day) {
        lock(&self.heard_day).hear(day, ClockReading::of_system());
    }
}

/// The server's day, if it was received lately and is accepted.
pub(super) fn known(heard_day: &SharedDay) -> Option<Day> {
    lock(heard_day).get(ClockReading::of_system())
}

fn lock(heard_day: &SharedDay) -> MutexGuard<'_, HeardDay> {
    heard_day.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Fetches an experiment, keeps the server's day, and judges the answer.
async fn ask(
    transport: &Transport,
    id: &ExperimentId,
    agreement: Agreement,
    heard_day: &SharedDay,
) -> Result<(TrustedSpecification, Day), TrustedError> {
    let name = TrustedExperimentName { experiment_id: id.to_string() };
    let request = transport.request(name);
    let mut trusted = transport.trusted();
    let answer = transport.answered(trusted.get_trusted_experiment(request)).await?.into_inner();
    let day = Day::new(answer.server_day);
    lock(heard_day).hear(day, ClockReading::of_system());
    let specification = answer.specification.ok_or(TrustedError::NotUnderstood)?;
    agreement.judge(id, &specification)?;
    Ok((specification, day))
}

fn rho(specification: &TrustedSpecification) -> Rho {
    Rho::new(specification.rho).unwrap_or(Rho::ZERO)
}

/// The price of a reward in billionths of ρ, rounded up.
fn price(specification: &TrustedSpecification) -> u64 {
    price_of(rho(specification)).get()
}

fn verdict(status: DisclosureStatus, message: String) -> Result<(), TrustedError> {
    match status {
        DisclosureStatus::Counted | DisclosureStatus::Duplicate => Ok(()),
        DisclosureStatus::Malformed => Err(TrustedError::Malformed { message }),
        DisclosureStatus::Expired => Err(TrustedError::Expired { message }),
        DisclosureStatus::Stopped => Err(TrustedError::Stopped { message }),
        DisclosureStatus::Paused => Err(TrustedError::Paused),
        DisclosureStatus::FutureDay => Err(TrustedError::FutureDay),
        // Newer servers may send a verdict that this client does not know.
        DisclosureStatus::Unspecified => Err(TrustedError::Undecided),
    }
}
