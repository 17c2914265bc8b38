//! Experiments in which users disclose their rewards to the server. Feature `trusted`.
//!
//! Everything else in this crate keeps rewards on the device. Here they leave it: the server is
//! trusted with them, and protects each one from everybody else by zero-concentrated
//! differential privacy. An app says so itself, by an [`Agreement`]; there is no other way in, and
//! an experiment of this kind is never one of the other.
//!
//! ```no_run
//! use bandana_client::grpc::Transport;
//! use bandana_client::trusted::{Agreement, DisclosedReward, TrustedExperiment};
//! use bandana_shared::{accounting::concentrated::Rho, identity::ExperimentId};
//!
//! # async fn app() -> Result<(), Box<dyn std::error::Error>> {
//! let transport = Transport::to("http://127.0.0.1:7301")?;
//! let agreement = Agreement::users_disclose_rewards(Rho::new(0.1)?);
//! let experiment = TrustedExperiment::open(transport, ExperimentId::new("headlines")?, agreement).await?;
//! let arm = experiment.recommend().await?;
//! // The user may see another arm; what counts is what was played.
//! let disclosure = experiment.disclosure(arm, DisclosedReward::new(1.0)?)?;
//! // Again and again until it succeeds: it counts once.
//! experiment.disclose(&disclosure).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Privacy
//! ρ is the price of one reward. Someone with k rewards pays up to k² ρ. The server, and whoever
//! reads along where there is no TLS, sees rewards, addresses and times.

use std::fmt;

use bandana_shared::accounting::concentrated::Rho;
use bandana_shared::identity::ExperimentId;
use bandana_shared::wire::v1::trusted_specification::Algorithm;
use bandana_shared::wire::v1::{
    DiscloseRequest, RecommendRequest, TrustedExperimentName, TrustedSpecification, Vector,
    disclose_request,
};
use thiserror::Error;
use tonic::Status;

use crate::grpc::Transport;

/// What an app agrees to: that its users' rewards reach the server, and at what price each.
///
/// ```
/// use bandana_client::trusted::Agreement;
/// use bandana_shared::accounting::concentrated::Rho;
/// // The largest price of one reward, whatever a server asks for.
/// let agreement = Agreement::users_disclose_rewards(Rho::new(0.1)?);
/// # assert_ne!(agreement, Agreement::users_disclose_rewards(Rho::ZERO));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Agreement {
    rho_max: Rho,
}

impl Agreement {
    /// Users disclose rewards, and each costs at most this, whatever a server asks for.
    ///
    /// ```
    /// use bandana_client::trusted::Agreement;
    /// use bandana_shared::accounting::concentrated::Rho;
    /// // The largest price of one reward, whatever a server asks for.
    /// let agreement = Agreement::users_disclose_rewards(Rho::new(0.1)?);
    /// # assert_ne!(agreement, Agreement::users_disclose_rewards(Rho::ZERO));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn users_disclose_rewards(rho_max: Rho) -> Self {
        Self { rho_max }
    }

    fn judge(self, specification: &TrustedSpecification) -> Result<(), TrustedError> {
        let asked = Rho::new(specification.rho).ok().filter(|rho| *rho > Rho::ZERO);
        let rho = asked.ok_or(TrustedError::NotUnderstood)?;
        if !specification.rewards_are_disclosed || specification.algorithm.is_none() {
            return Err(TrustedError::NotUnderstood);
        }
        if rho > self.rho_max {
            return Err(TrustedError::Beyond { asked: rho, agreed: self.rho_max });
        }
        Ok(())
    }
}

/// A reward that its user discloses. It can't be printed, copied or serialised by accident.
///
/// ```
/// use bandana_client::trusted::DisclosedReward;
/// let reward = DisclosedReward::new(0.25)?;
/// assert_eq!(format!("{reward:?}"), "DisclosedReward(<private>)");
/// # Ok::<(), bandana_client::trusted::TrustedError>(())
/// ```
/// ```compile_fail,E0382
/// let reward = bandana_client::trusted::DisclosedReward::new(0.25).unwrap();
/// let (first, second) = (reward, reward);
/// ```
pub struct DisclosedReward(f64);

impl DisclosedReward {
    /// Wraps a finite number. Whether the experiment's range has it is seen when it is sent.
    ///
    /// ```
    /// use bandana_client::trusted::DisclosedReward;
    /// assert!(DisclosedReward::new(f64::NAN).is_err());
    /// ```
    ///
    /// # Errors
    /// [`TrustedError::Reward`] for what is not finite.
    pub fn new(reward: f64) -> Result<Self, TrustedError> {
        if reward.is_finite() { Ok(Self(reward)) } else { Err(TrustedError::Reward) }
    }
}

impl fmt::Debug for DisclosedReward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DisclosedReward(<private>)")
    }
}

/// A reward on its way. It has a name, under which it counts once.
///
/// ```no_run
/// # use bandana_client::trusted::{TrustedError, TrustedExperiment};
/// # async fn app(experiment: TrustedExperiment) -> Result<(), TrustedError> {
/// use bandana_client::trusted::DisclosedReward;
/// let disclosure = experiment.disclosure(0, DisclosedReward::new(1.0)?)?;
/// experiment.disclose(&disclosure).await?;
/// # Ok(())
/// # }
/// ```
pub struct Disclosure(DiscloseRequest);

impl fmt::Debug for Disclosure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Disclosure(<private>)")
    }
}

/// An experiment that was judged. Needs a tokio runtime.
///
/// ```no_run
/// use bandana_client::grpc::Transport;
/// use bandana_client::trusted::{Agreement, TrustedExperiment};
/// use bandana_shared::{accounting::concentrated::Rho, identity::ExperimentId};
///
/// # async fn app(transport: Transport) -> Result<(), Box<dyn std::error::Error>> {
/// let agreement = Agreement::users_disclose_rewards(Rho::new(0.1)?);
/// let id = ExperimentId::new("headlines")?;
/// let experiment = TrustedExperiment::open(transport, id, agreement).await?;
/// assert!(experiment.rho() <= Rho::new(0.1)?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TrustedExperiment {
    transport: Transport,
    id: ExperimentId,
    specification: TrustedSpecification,
}

impl TrustedExperiment {
    /// Fetches an experiment and judges it.
    ///
    /// ```no_run
    /// use bandana_client::grpc::Transport;
    /// use bandana_client::trusted::{Agreement, TrustedExperiment};
    /// use bandana_shared::{accounting::concentrated::Rho, identity::ExperimentId};
    ///
    /// # async fn app(transport: Transport) -> Result<(), Box<dyn std::error::Error>> {
    /// let agreement = Agreement::users_disclose_rewards(Rho::new(0.1)?);
    /// let id = ExperimentId::new("headlines")?;
    /// let experiment = TrustedExperiment::open(transport, id, agreement).await?;
    /// assert!(experiment.rho() <= Rho::new(0.1)?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`TrustedError::Beyond`] when a reward would cost more than the app agreed to,
    /// [`TrustedError::NotUnderstood`], and [`TrustedError::Call`].
    pub async fn open(
        transport: Transport,
        id: ExperimentId,
        agreement: Agreement,
    ) -> Result<Self, TrustedError> {
        let name = TrustedExperimentName { experiment_id: id.to_string() };
        let request = transport.request(name);
        let answer = transport.trusted().get_trusted_experiment(request).await?;
        let specification = answer.into_inner();
        agreement.judge(&specification)?;
        Ok(Self { transport, id, specification })
    }

    /// What a reward costs at most.
    pub fn rho(&self) -> Rho {
        Rho::new(self.specification.rho).unwrap_or(Rho::ZERO)
    }

    /// Whether actions come with each recommendation.
    pub fn has_contexts(&self) -> bool {
        matches!(self.specification.algorithm, Some(Algorithm::AdacOful(_)))
    }

    /// The number of the arm or action to play.
    ///
    /// ```no_run
    /// # use bandana_client::trusted::{TrustedError, TrustedExperiment};
    /// # async fn app(experiment: TrustedExperiment) -> Result<(), TrustedError> {
    /// let arm = experiment.recommend().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`TrustedError::Call`].
    pub async fn recommend(&self) -> Result<u32, TrustedError> {
        self.recommend_among(&[]).await
    }

    /// The place of the best of these actions, where the experiment has contexts. They are
    /// public, and at most 1 long.
    ///
    /// ```no_run
    /// # use bandana_client::trusted::{TrustedError, TrustedExperiment};
    /// # async fn app(experiment: TrustedExperiment) -> Result<(), TrustedError> {
    /// // Two articles of today, by what they are about.
    /// let articles = [vec![1.0, 0.0], vec![0.6, 0.8]];
    /// let place = experiment.recommend_among(&articles).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`TrustedError::Call`].
    pub async fn recommend_among(&self, actions: &[Vec<f64>]) -> Result<u32, TrustedError> {
        let vector = |coordinates: &Vec<f64>| Vector { coordinates: coordinates.clone() };
        let actions = actions.iter().map(vector).collect();
        let experiment_id = self.id.to_string();
        let request = self.transport.request(RecommendRequest { experiment_id, actions });
        Ok(self.transport.trusted().recommend(request).await?.into_inner().arm)
    }

    /// Names the reward of an arm that was played.
    ///
    /// ```no_run
    /// # use bandana_client::trusted::{DisclosedReward, TrustedError, TrustedExperiment};
    /// # async fn app(experiment: TrustedExperiment) -> Result<(), TrustedError> {
    /// // Whatever was recommended, arm 2 was played.
    /// let disclosure = experiment.disclosure(2, DisclosedReward::new(1.0)?)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`TrustedError::Entropy`].
    pub fn disclosure(
        &self,
        arm: u32,
        reward: DisclosedReward,
    ) -> Result<Disclosure, TrustedError> {
        self.named(disclose_request::Played::Arm(arm), reward)
    }

    /// Names the reward of an action that was played, where the experiment has contexts.
    ///
    /// ```no_run
    /// # use bandana_client::trusted::{DisclosedReward, TrustedError, TrustedExperiment};
    /// # async fn app(experiment: TrustedExperiment) -> Result<(), TrustedError> {
    /// let reward = DisclosedReward::new(-1.0)?;
    /// let disclosure = experiment.disclosure_of(vec![0.6, 0.8], reward)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`TrustedError::Entropy`].
    pub fn disclosure_of(
        &self,
        action: Vec<f64>,
        reward: DisclosedReward,
    ) -> Result<Disclosure, TrustedError> {
        self.named(disclose_request::Played::Action(Vector { coordinates: action }), reward)
    }

    fn named(
        &self,
        played: disclose_request::Played,
        DisclosedReward(reward): DisclosedReward,
    ) -> Result<Disclosure, TrustedError> {
        let mut name = [0; 16];
        getrandom::fill(&mut name).map_err(TrustedError::Entropy)?;
        Ok(Disclosure(DiscloseRequest {
            experiment_id: self.id.to_string(),
            disclosure_id: name.to_vec().into(),
            played: Some(played),
            reward,
        }))
    }

    /// Sends a reward, and returns when it is durable. Sent again, it still counts once.
    ///
    /// ```no_run
    /// # use bandana_client::trusted::{DisclosedReward, TrustedError, TrustedExperiment};
    /// # async fn app(experiment: TrustedExperiment) -> Result<(), TrustedError> {
    /// let disclosure = experiment.disclosure(0, DisclosedReward::new(1.0)?)?;
    /// if experiment.disclose(&disclosure).await.is_err() {
    ///     // Later, when the server can be reached again.
    ///     experiment.disclose(&disclosure).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`TrustedError::Call`]: it may count or not; send it again, unless the status is
    /// `InvalidArgument`.
    pub async fn disclose(&self, disclosure: &Disclosure) -> Result<(), TrustedError> {
        let request = self.transport.request(disclosure.0.clone());
        self.transport.trusted().disclose(request).await?;
        Ok(())
    }
}

/// Why something did not happen.
///
/// ```
/// use bandana_client::trusted::{DisclosedReward, TrustedError};
/// let refused = DisclosedReward::new(f64::INFINITY).unwrap_err();
/// assert!(matches!(refused, TrustedError::Reward));
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TrustedError {
    /// A reward would cost more than the app agreed to.
    #[error(
        "the experiment asks for rho = {} for each reward, the app agreed to {}; nothing was \
         disclosed", asked.get(), agreed.get()
    )]
    Beyond {
        /// What the experiment asks for.
        asked: Rho,
        /// What the app agreed to.
        agreed: Rho,
    },
    /// The specification is not one that this client understands.
    #[error("the experiment is not one that this client understands; nothing was disclosed")]
    NotUnderstood,
    /// Not a finite number.
    #[error("a reward must be a finite number")]
    Reward,
    /// The operating system has no randomness.
    #[error("the operating system's random source failed; nothing was disclosed")]
    Entropy(#[source] getrandom::Error),
    /// The server did not answer, or refused.
    #[error("the server refused or did not answer")]
    Call(#[from] Box<Status>),
}

impl From<Status> for TrustedError {
    fn from(status: Status) -> Self {
        Self::Call(Box::new(status))
    }
}

#[cfg(test)]
mod tests {
    use bandana_shared::wire::v1::AdacUcb;

    use super::*;

    #[test]
    fn an_app_is_the_judge() {
        let agreement = Agreement::users_disclose_rewards(Rho::new(0.5).unwrap());
        let fair = TrustedSpecification {
            experiment_id: "headlines".to_owned(),
            rewards_are_disclosed: true,
            rho: 0.5,
            algorithm: Some(Algorithm::AdacUcb(AdacUcb { arms: 2, beta: 1.0 })),
        };
        assert!(agreement.judge(&fair).is_ok());
        for (rho, disclosed) in
            [(0.51, true), (f64::INFINITY, true), (f64::NAN, true), (0.0, true), (0.1, false)]
        {
            let unfair =
                TrustedSpecification { rho, rewards_are_disclosed: disclosed, ..fair.clone() };
            assert!(agreement.judge(&unfair).is_err(), "{unfair:?}");
        }
        assert!(agreement.judge(&TrustedSpecification { algorithm: None, ..fair }).is_err());
        let reward = DisclosedReward::new(0.25).unwrap();
        assert_eq!(format!("{reward:?}"), "DisclosedReward(<private>)");
    }
}
