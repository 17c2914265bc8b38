//! Agreements: the terms on which a user discloses rewards.

use bandana_shared::accounting::concentrated::Rho;
use bandana_shared::identity::ExperimentId;
use bandana_shared::wire::v1::TrustedSpecification;
use bandana_shared::wire::v1::trusted_specification::Algorithm;

use super::TrustedError;

/// Possible numbers of arms or actions of an experiment.
const ARMS: std::ops::RangeInclusive<usize> = 2..=1024;

/// Possible numbers of coordinates of an action.
const DIMENSIONS: std::ops::RangeInclusive<usize> = 1..=64;

/// An app's agreement that its users' rewards reach the server, with the largest price of each.
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
    /// Users disclose rewards, and each costs at most `rho_max`, whatever a server asks for.
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

    pub(super) fn judge(
        self,
        id: &ExperimentId,
        specification: &TrustedSpecification,
    ) -> Result<(), TrustedError> {
        let is_price = |rho: &Rho| *rho > Rho::ZERO && rho.get().is_finite();
        let asked = Rho::new(specification.rho).ok().filter(is_price);
        let rho = asked.ok_or(TrustedError::NotUnderstood)?;
        let understood = specification.rewards_are_disclosed
            && specification.experiment_id == id.as_str()
            && specification.algorithm.as_ref().is_some_and(is_understood);
        if !understood {
            return Err(TrustedError::NotUnderstood);
        }
        if rho > self.rho_max {
            return Err(TrustedError::Beyond { asked: rho, agreed: self.rho_max });
        }
        Ok(())
    }
}

fn is_understood(algorithm: &Algorithm) -> bool {
    let within = |range: &std::ops::RangeInclusive<usize>, number: u32| {
        usize::try_from(number).is_ok_and(|number| range.contains(&number))
    };
    match algorithm {
        Algorithm::AdacUcb(ucb) => within(&ARMS, ucb.arms),
        Algorithm::LazyRelease(lazy) => within(&ARMS, lazy.arms),
        Algorithm::AdacOful(oful) => within(&DIMENSIONS, oful.dimension),
        Algorithm::AdacGope(gope) => {
            let dimension = gope.actions.first().map_or(0, |action| action.coordinates.len());
            ARMS.contains(&gope.actions.len())
                && DIMENSIONS.contains(&dimension)
                && gope.actions.iter().all(|action| action.coordinates.len() == dimension)
        }
    }
}

#[cfg(test)]
mod tests {
    use bandana_shared::wire::v1::{AdacGope, AdacOful, AdacUcb, LazyRelease, Vector};

    use super::*;

    #[test]
    fn an_app_is_the_judge() -> Result<(), Box<dyn std::error::Error>> {
        let agreement = Agreement::users_disclose_rewards(Rho::new(0.5)?);
        let id = ExperimentId::new("headlines")?;
        let fair = TrustedSpecification {
            experiment_id: "headlines".to_owned(),
            rewards_are_disclosed: true,
            rho: 0.5,
            algorithm: Some(Algorithm::AdacUcb(AdacUcb { arms: 2, beta: 1.0 })),
        };
        agreement.judge(&id, &fair)?;
        for (rho, disclosed) in
            [(0.51, true), (f64::INFINITY, true), (f64::NAN, true), (0.0, true), (0.1, false)]
        {
            let unfair =
                TrustedSpecification { rho, rewards_are_disclosed: disclosed, ..fair.clone() };
            assert!(agreement.judge(&id, &unfair).is_err(), "{unfair:?}");
        }
        assert!(agreement.judge(&ExperimentId::new("other")?, &fair).is_err());
        // An agreement to any price does not accept an experiment without protection.
        let anything = Agreement::users_disclose_rewards(Rho::new(f64::INFINITY)?);
        let unprotected = TrustedSpecification { rho: f64::INFINITY, ..fair.clone() };
        assert!(anything.judge(&id, &unprotected).is_err());

        let gope = |lengths: &[usize]| {
            let vector = |length: &usize| Vector { coordinates: vec![0.5; *length] };
            let actions = lengths.iter().map(vector).collect();
            Some(Algorithm::AdacGope(AdacGope { actions, delta: 0.1 }))
        };
        let lazy = |arms| Some(Algorithm::LazyRelease(LazyRelease { arms }));
        let oful = |dimension| Some(Algorithm::AdacOful(AdacOful { dimension }));
        for (algorithm, understood) in [
            (lazy(2), true),
            (lazy(1024), true),
            (oful(64), true),
            (gope(&[3, 3]), true),
            (None, false),
            (lazy(1), false),
            (lazy(1025), false),
            (oful(0), false),
            (oful(65), false),
            (gope(&[3]), false),
            (gope(&[0, 0]), false),
            (gope(&[3, 2]), false),
        ] {
            let asked = TrustedSpecification { algorithm, ..fair.clone() };
            assert_eq!(agreement.judge(&id, &asked).is_ok(), understood, "{asked:?}");
        }
        Ok(())
    }
}
