//! Acceptance: the specifications that an app takes part in.

mod judging;

use std::time::Duration;

use bandana_shared::cells::{Segmentation, Segmentations};
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::Digest;
use bandana_shared::rewards::Rewards;
use bandana_shared::transparency::Witnessed;

pub(crate) use self::judging::Accepted;
use crate::shuffled::Shuffled;
use crate::signers::Signers;

/// An app's terms for one experiment. The client refuses a specification outside these terms, even
/// from its own server.
///
/// ```
#[doc = include_str!("example.txt")]
/// use bandana_client::{Acceptance, Budget, Client, ClientError, Refusal};
/// use bandana_shared::{epsilon::Epsilon, rewards::Rewards};
///
/// // At most 0.5 nats for each report; the experiment asks for 1.
/// let acceptance = Acceptance::unsigned(Epsilon::new(0.5)?, Rewards::binary());
/// # let (mut client, id) = (Client::new(budget()?), specification()?.experiment_id().clone());
/// client.enroll(id.clone(), acceptance);
/// let refused = client.on_fetched(&FetchTask::new(id.clone()), answer(now())?, now());
/// assert!(matches!(refused, Err(ClientError::Refused(Refusal::Epsilon { .. }))));
/// # Ok::<(), Failure>(())
/// ```
#[derive(Clone, Debug)]
pub struct Acceptance {
    epsilon_max: Epsilon,
    rewards: Rewards,
    digests: Option<Vec<Digest>>,
    once_days: Option<u32>,
    signers: Option<Signers>,
    /// None: what the server says need not stand in a log.
    log: Option<Witnessed>,
    least_attribution_window: Duration,
    least_release_delay: Duration,
    /// None: reports go to the aggregator itself.
    shuffled: Option<Shuffled>,
    /// The segmentations that the app agrees to, each with the user's value.
    segments: Vec<(String, String)>,
    metrics: Vec<(String, Rewards)>,
    /// The features of a private context that the app agrees to; empty: to none.
    features: Vec<String>,
}

/// Least attribution window, unless the app says another one.
const ATTRIBUTION_WINDOW_MIN: Duration = Duration::from_secs(1);

/// Least release delay, unless the app says another one.
const RELEASE_DELAY_MIN: Duration = Duration::from_mins(10);

impl Acceptance {
    /// Like [`Self::unsigned`], but accepts only specifications that all of these keys have signed,
    /// and only until a signature expires.
    ///
    /// ```
    #[doc = include_str!("example.txt")]
    /// use bandana_client::{Acceptance, Fetched, Signers};
    /// use bandana_shared::{epsilon::Epsilon, identity::UnixSeconds, rewards::Rewards};
    /// use bandana_shared::signing::SigningKey;
    ///
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// # let operator = SigningKey::from_secret(&[1; 32]);
    /// let signers = Signers::key(operator.public_key());
    /// let acceptance = Acceptance::signed(Epsilon::new(1.0)?, Rewards::binary(), signers);
    /// client.enroll(id.clone(), acceptance);
    /// let task = FetchTask::new(id.clone());
    /// assert!(client.on_fetched(&task, answer(now())?, now()).is_err(), "nobody has signed it");
    ///
    /// let expires = UnixSeconds::new(now().unix_ms() / 1000).after_days(30);
    /// let signatures = vec![operator.sign(&specification()?, expires)];
    /// client.on_fetched(&task, Fetched { signatures, ..answer(now())? }, now())?;
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn signed(epsilon_max: Epsilon, rewards: Rewards, signers: Signers) -> Self {
        Self { signers: Some(signers), ..Self::unsigned(epsilon_max, rewards) }
    }

    /// Accepts experiments with rewards of this kind and range whose reports each lose at most
    /// `epsilon_max`, in nats. It does not matter who made the experiment. The experiment decides
    /// what is reported for a reward beyond the range, and when there is no reward. That changes
    /// what the bit is about, not what it costs.
    ///
    /// # Privacy
    /// Whoever controls the server can make an experiment for one device, and recognise the
    /// device's reports by it. So can anybody on the path of a connection without TLS.
    /// [`Self::signed`] prevents that.
    ///
    /// ```
    #[doc = include_str!("example.txt")]
    /// use bandana_client::{Acceptance, ClientError, Refusal};
    /// use bandana_shared::{epsilon::Epsilon, rewards::RewardRange, rewards::Rewards};
    ///
    /// // Any reward from 0 to 1; the experiment knows only 0 and 1.
    /// let rewards = Rewards::bounded(RewardRange::UNIT);
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// client.enroll(id.clone(), Acceptance::unsigned(Epsilon::new(1.0)?, rewards));
    /// let refused = client.on_fetched(&FetchTask::new(id.clone()), answer(now())?, now());
    /// assert!(matches!(refused, Err(ClientError::Refused(Refusal::Kind { .. }))));
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn unsigned(epsilon_max: Epsilon, rewards: Rewards) -> Self {
        Self {
            epsilon_max,
            rewards,
            digests: None,
            once_days: None,
            signers: None,
            log: None,
            least_attribution_window: ATTRIBUTION_WINDOW_MIN,
            least_release_delay: RELEASE_DELAY_MIN,
            shuffled: None,
            segments: Vec::new(),
            metrics: Vec::new(),
            features: Vec::new(),
        }
    }

    /// Accepts experiments whose attribution window is at least this long. The default is one
    /// second.
    ///
    /// ```
    #[doc = include_str!("example.txt")]
    /// use std::time::Duration;
    /// use bandana_client::Refusal;
    ///
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// // Users react within an hour; the experiment counts what comes in ten minutes.
    /// let patient = acceptance()?.least_attribution_window(Duration::from_secs(3600));
    /// client.enroll(id.clone(), patient);
    /// assert!(client.on_fetched(&FetchTask::new(id.clone()), answer(now())?, now()).is_err());
    /// assert!(matches!(client.refusal(&id), Some(Refusal::AttributionWindow { .. })));
    /// # Ok::<(), Failure>(())
    /// ```
    #[must_use]
    pub fn least_attribution_window(self, window: Duration) -> Self {
        Self { least_attribution_window: window, ..self }
    }

    /// Accepts experiments whose longest random release delay is at least this long. The default is
    /// ten minutes.
    ///
    /// # Privacy
    /// A report leaves after the attribution window and a random delay. The delay is drawn between
    /// zero and the experiment's longest delay. If that longest delay is short, the time of an
    /// upload tells more exactly when the arm was shown, and so whose upload it is.
    ///
    /// ```
    #[doc = include_str!("example.txt")]
    /// use std::time::Duration;
    /// use bandana_client::Refusal;
    ///
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// client.enroll(id.clone(), acceptance()?.least_release_delay(Duration::from_secs(7200)));
    /// assert!(client.on_fetched(&FetchTask::new(id.clone()), answer(now())?, now()).is_err());
    /// assert!(matches!(client.refusal(&id), Some(Refusal::ReleaseDelay { .. })));
    /// # Ok::<(), Failure>(())
    /// ```
    #[must_use]
    pub fn least_release_delay(self, delay: Duration) -> Self {
        Self { least_release_delay: delay, ..self }
    }

    /// Accepts only specifications with one of these digests. An empty list accepts none.
    ///
    /// ```
    #[doc = include_str!("example.txt")]
    /// use bandana_client::Refusal;
    /// # use bandana_shared::identity::Digest;
    ///
    /// # let reviewed = Digest::new([7; 16]);
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// // The build of the app contains the digests that were reviewed.
    /// client.enroll(id.clone(), acceptance()?.pinned(vec![reviewed]));
    /// assert!(client.on_fetched(&FetchTask::new(id.clone()), answer(now())?, now()).is_err());
    /// assert_eq!(client.refusal(&id), Some(&Refusal::Digest(specification()?.digest())));
    /// # Ok::<(), Failure>(())
    /// ```
    #[must_use]
    pub fn pinned(self, digests: Vec<Digest>) -> Self {
        Self { digests: Some(digests), ..self }
    }

    /// Accepts only specifications that all of these keys have signed. Replaces earlier signers.
    ///
    /// ```
    #[doc = include_str!("example.txt")]
    /// # use bandana_client::Signers;
    /// # use bandana_shared::signing::SigningKey;
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// # let successor = SigningKey::from_secret(&[2; 32]).public_key();
    /// client.enroll(id.clone(), acceptance()?.signed_by(Signers::key(successor)));
    /// let task = FetchTask::new(id.clone());
    /// assert!(client.on_fetched(&task, answer(now())?, now()).is_err(), "not by this key");
    /// # Ok::<(), Failure>(())
    /// ```
    #[must_use]
    pub fn signed_by(self, signers: Signers) -> Self {
        Self { signers: Some(signers), ..self }
    }

    /// Limits the reports to one in each period of `days` days (UTC, counted from 1970-01-01),
    /// whichever arm is drawn. If `days` is 0, the installation reports once ever. Further
    /// assignments of the experiment do not report. [Sticky](bandana_shared::participation::Sticky)
    /// experiments have such a period themselves. Then both limits hold.
    ///
    /// # Privacy
    /// A user who sees arms a hundred times then loses ε once, not a hundred times. The client
    /// sends the first bit again if it must, and never draws it again. Opting out and in again does
    /// not lead to a second report.
    ///
    /// ```
    #[doc = include_str!("example.txt")]
    /// use bandana_client::Unreported;
    ///
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// client.enroll(id.clone(), acceptance()?.report_once(30));
    /// let first = client.draw(&id, now())?;
    /// assert_eq!(first.unreported(), None);
    /// // The next time, whichever arm is drawn:
    /// assert_eq!(client.draw(&id, now())?.unreported(), Some(Unreported::ReportedOnce));
    /// # Ok::<(), Failure>(())
    /// ```
    #[must_use]
    pub fn report_once(self, days: u32) -> Self {
        Self { once_days: Some(days), ..self }
    }

    /// Accepts only experiments whose reports a relay shuffles. The relay must be the one of these
    /// terms, and a batch must certify at most the central ε of these terms. Without such terms, an
    /// app accepts no experiment whose reports are shuffled.
    ///
    /// Waiting reports of such an experiment leave only sealed, for the relay that the app believes
    /// at that time. While the app believes no relay, they wait. After 60 days they are dropped. A
    /// relay takes no report whose day is older than its replay window.
    ///
    /// The transport must lead through that relay: see `grpc::Transport::through_relay`.
    ///
    /// ```
    #[doc = include_str!("example.txt")]
    /// use bandana_client::{Fetched, Refusal, Shuffled};
    /// use bandana_shared::accounting::{delta::Delta, loss::PrivacyLoss};
    /// use bandana_shared::shuffling::BatchSize;
    ///
    /// # let (mut client, id) = (bandana_client::Client::new(budget()?), specification()?.experiment_id().clone());
    /// let relay =
    ///     "00290100208520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a000400010003";
    /// let terms = Shuffled::by(relay.parse()?, PrivacyLoss::new(0.2)?, Delta::new(1e-6)?);
    /// client.enroll(id.clone(), acceptance()?.shuffled(terms));
    /// let task = FetchTask::new(id.clone());
    /// // Nobody shuffles this experiment.
    /// assert!(client.on_fetched(&task, answer(now())?, now()).is_err());
    /// assert_eq!(client.refusal(&id), Some(&Refusal::NotShuffled));
    ///
    /// // With a tenth of them colluding, 1000 reports of epsilon 1 hide each to 0.14 nats.
    /// let specification = specification()?.in_batches(BatchSize::new(1000)?)?;
    /// client.on_fetched(&task, Fetched { specification, ..answer(now())? }, now())?;
    /// client.draw(&id, now())?;
    /// let spent = client.spent();
    /// assert_eq!(spent.lifetime.to_loss().get(), 1.0);
    /// assert!((0.13..0.14).contains(&spent.central_lifetime.epsilon.to_loss().get()));
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Privacy
    /// The central loss holds only under conditions: see [`Shuffled`]. The ε that you give to
    /// [`Self::unsigned`] holds without any. So choose an ε that you can defend by itself.
    #[cfg(feature = "relay")]
    #[must_use]
    pub fn shuffled(self, terms: Shuffled) -> Self {
        Self { shuffled: Some(terms), ..self }
    }

    /// Accepts experiments that divide installations by this property, such as `platform`. `value`
    /// is the value of this installation. Without this call, an app takes part in no experiment
    /// with that property. If the experiment does not list the value, the installation does not
    /// take part, like one outside of a sample.
    ///
    /// # Privacy
    /// The value is not private: each report of such an experiment contains it. Choose a property
    /// that you would tell in public, and a value that many users share. Do not use an age or a
    /// place.
    ///
    /// ```
    #[doc = include_str!("example.txt")]
    /// use bandana_client::{Fetched, Refusal};
    /// use bandana_shared::cells::{Measurement, Segmentation, Segmentations};
    ///
    /// # let (mut client, id) = (bandana_client::Client::new(budget()?), specification()?.experiment_id().clone());
    /// let platforms = Segmentation::new("platform", ["ios", "android"])?;
    /// let segmentations = platforms.into();
    /// let segments = Measurement { segmentations, ..Measurement::REWARDS_ONLY };
    /// let specification = specification()?.measuring(segments)?;
    /// # let weights = answer(now())?.policy.weights;
    /// # let weights = weights.clone().with_segments(&[weights.clone(), weights])?;
    /// # let policy = bandana_shared::policy::Policy { weights, ..answer(now())?.policy };
    /// # let answer = Fetched { specification, policy, ..answer(now())? };
    /// let task = FetchTask::new(id.clone());
    /// client.enroll(id.clone(), acceptance()?);
    /// assert!(client.on_fetched(&task, answer.clone(), now()).is_err());
    /// let name = "platform".to_owned();
    /// assert_eq!(client.refusal(&id), Some(&Refusal::Segmentation { name }));
    ///
    /// client.enroll(id.clone(), acceptance()?.segment("platform", "ios"));
    /// client.on_fetched(&task, answer, now())?;
    /// client.draw(&id, now())?;
    /// # Ok::<(), Failure>(())
    /// ```
    #[must_use]
    pub fn segment(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let (name, value) = (name.into(), value.into());
        self.segments.retain(|(known, _)| *known != name);
        self.segments.push((name, value));
        self
    }

    /// Accepts experiments that measure this metric in addition to the rewards. Its values have
    /// this kind and range. Without this call, an app takes part in no experiment with such a
    /// metric. Experiments without the metric are accepted too.
    ///
    /// # Privacy
    /// A metric costs nothing more: an assignment reports its rewards or one metric, once.
    ///
    /// ```
    #[doc = include_str!("example.txt")]
    /// use bandana_client::{Fetched, Refusal, Reward};
    /// use bandana_shared::cells::{Measurement, Metric};
    /// use bandana_shared::{participation::Millionths, rewards::Rewards};
    ///
    /// # let (mut client, id) = (bandana_client::Client::new(budget()?), specification()?.experiment_id().clone());
    /// let fifth = Millionths::from_share(0.2)?;
    /// let metrics = vec![Metric::new("returned", Rewards::binary(), fifth)?];
    /// let measurement = Measurement { metrics, ..Measurement::REWARDS_ONLY };
    /// let specification = specification()?.measuring(measurement)?;
    /// # let answer = Fetched { specification, ..answer(now())? };
    /// let task = FetchTask::new(id.clone());
    /// client.enroll(id.clone(), acceptance()?);
    /// assert!(client.on_fetched(&task, answer.clone(), now()).is_err());
    /// assert_eq!(client.refusal(&id), Some(&Refusal::Metric { name: "returned".to_owned() }));
    ///
    /// client.enroll(id.clone(), acceptance()?.metric("returned", Rewards::binary()));
    /// client.on_fetched(&task, answer, now())?;
    /// let chosen = client.draw(&id, now())?;
    /// client.reward(chosen.id(), Reward::new(1.0)?, now())?;
    /// client.measure(chosen.id(), "returned", Reward::new(0.0)?, now())?;
    /// assert_eq!(client.spent().lifetime.get(), 1_000_000_000);
    /// # Ok::<(), Failure>(())
    /// ```
    #[must_use]
    pub fn metric(mut self, name: impl Into<String>, values: Rewards) -> Self {
        let name = name.into();
        self.metrics.retain(|(known, _)| *known != name);
        self.metrics.push((name, values));
        self
    }

    /// Accepts an experiment that chooses arms by a private context of exactly these features, in
    /// this order: see [`crate::Core::choose_in_context`]. Without this call, an app takes part in
    /// no such experiment. Experiments without a private context are accepted too. **This is
    /// research**: `docs/private-contexts.md` says what was proved and measured, and when not to
    /// use it.
    ///
    /// # Privacy
    /// A context never leaves the device. If the context chose the arm of an assignment, nothing
    /// about that assignment leaves either. Other assignments explore. A coin decides which ones
    /// do, and both the coin and the arm are independent of the context. An assignment that
    /// explores sends one bit, which costs ε for context and reward together.
    ///
    /// ```
    #[doc = include_str!("example.txt")]
    /// use bandana_client::{Fetched, Refusal};
    /// use bandana_shared::cells::Measurement;
    /// use bandana_shared::{context::PrivateContext, participation::Millionths};
    ///
    /// # let (mut client, id) = (bandana_client::Client::new(budget()?), specification()?.experiment_id().clone());
    /// let context = PrivateContext::new(vec!["weekend".parse()?], Millionths::from_share(0.2)?)?;
    /// let measurement = Measurement { context: Some(context), ..Measurement::REWARDS_ONLY };
    /// let specification = specification()?.measuring(measurement)?;
    /// # let weights = answer(now())?.policy.weights;
    /// # let weights = weights.clone().with_segments(&[weights.clone(), weights])?;
    /// # let policy = bandana_shared::policy::Policy { weights, ..answer(now())?.policy };
    /// # let answer = Fetched { specification, policy, ..answer(now())? };
    /// let task = FetchTask::new(id.clone());
    /// client.enroll(id.clone(), acceptance()?);
    /// assert!(client.on_fetched(&task, answer.clone(), now()).is_err());
    /// let features = vec!["weekend".to_owned()];
    /// assert_eq!(client.refusal(&id), Some(&Refusal::PrivateContext { features }));
    ///
    /// client.enroll(id.clone(), acceptance()?.private_context(["weekend"]));
    /// client.on_fetched(&task, answer, now())?;
    /// client.choose_in_context(&id, &[true], now())?;
    /// # Ok::<(), Failure>(())
    /// ```
    #[must_use]
    pub fn private_context<F: Into<String>>(self, features: impl IntoIterator<Item = F>) -> Self {
        Self { features: features.into_iter().map(Into::into).collect(), ..self }
    }

    /// Accepts only a specification, a policy and a store that the server's public log contains, as
    /// enough of these witnesses have seen it. They are then the same for all devices. Without this
    /// call, a server can give one device a policy that nobody else gets, and recognise its reports
    /// by the arm.
    ///
    /// What the client already holds stays in use until the first fetch. So set this in the first
    /// version of an app, or with a new experiment.
    ///
    /// # Privacy
    /// `docs/transparency.md` says what a server can still do, and only in public. Choose witnesses
    /// that the server's operator does not run, and a quorum of more than half of them.
    ///
    /// ```
    #[doc = include_str!("example.txt")]
    /// use bandana_client::Refusal;
    /// use bandana_shared::transparency::{ViewError, Witnessed};
    ///
    /// # let (mut client, id) = (client()?, specification()?.experiment_id().clone());
    /// // As `bandana log-key` printed them.
    /// let log = "bandana.example/log+2707c076+AddamAGCsQq31Uv+08lkBzoO4XLz2qYjJa8CGmj3B1Ea";
    /// let witness = "witness.example/w1+04d2d833+BD1AF8PoQ4lakrcKp00bfrycmCzPLsSWjMDNVfEq9GYM";
    /// let witnessed = Witnessed::new(log.parse()?, vec![witness.parse()?], 1)?;
    /// client.enroll(id.clone(), acceptance()?.witnessed(witnessed));
    /// // This server keeps no log.
    /// assert!(client.on_fetched(&FetchTask::new(id.clone()), answer(now())?, now()).is_err());
    /// assert_eq!(client.refusal(&id), Some(&Refusal::Log(ViewError::Missing)));
    /// # Ok::<(), Failure>(())
    /// ```
    #[must_use]
    pub fn witnessed(self, log: Witnessed) -> Self {
        Self { log: Some(log), ..self }
    }

    /// The log that must say what is accepted.
    pub(crate) fn log(&self) -> Option<&Witnessed> {
        self.log.as_ref()
    }

    /// The segment of this installation; `None`: of some segmentation it has none of the values.
    pub(crate) fn segment_of(&self, segmentations: &Segmentations) -> Option<usize> {
        let place = |one: &Segmentation| {
            let own = self.segments.iter().find(|(name, _)| name == one.name());
            own.and_then(|(_, value)| one.place_of(value))
        };
        segmentations.segment(segmentations.all().iter().map(place))
    }

    /// The relay that the app believes, if it does.
    pub(crate) fn relay(&self) -> Option<&Shuffled> {
        self.shuffled.as_ref()
    }

    /// Whether the app pins signers, whose signatures an impostor can't forge.
    pub(crate) fn is_signed(&self) -> bool {
        self.signers.is_some()
    }

    /// Length in days of the periods in which the installation reports once; `None`: no such limit.
    pub(crate) fn once_days(&self) -> Option<u32> {
        self.once_days
    }
}
