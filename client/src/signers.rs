//! Signers: the keys whose signatures an app demands.

use bandana_shared::identity::UnixSeconds;
use bandana_shared::signing::{PublicKey, Signable, Signature};
use thiserror::Error;

use crate::time::Timestamp;

/// The keys that an app pins. The client accepts a specification only if every one of them has
/// signed it.
///
/// With [`Self::operator_and_countersigner`], neither party alone can give a device a specification
/// of its own, such as one that tags the device.
///
/// ```
/// use bandana_client::Signers;
/// use bandana_shared::signing::PublicKey;
///
/// // Put your parties' keys here, as `bandana keys show` prints them.
/// let operator: PublicKey =
///     "fe1e430f306107d8a478c205e881326dfe92991bf9a7af9f042dc18aa39cbab5".parse()?;
/// let countersigner: PublicKey =
///     "758911ed0aeee9fa856f83ddd4bfc9dbe277b0dca8a0f3cc9b93b3db11d3d308".parse()?;
/// let signers = Signers::operator_and_countersigner(operator, countersigner)?;
/// assert_eq!(signers.keys(), [operator, countersigner]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signers {
    first: PublicKey,
    others: Vec<PublicKey>,
}

impl Signers {
    /// One key. It must have signed.
    ///
    /// ```
    /// use bandana_client::Signers;
    /// use bandana_shared::signing::SigningKey;
    ///
    /// let operator = SigningKey::generate()?.public_key();
    /// assert_eq!(Signers::key(operator).keys(), [operator]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn key(key: PublicKey) -> Self {
        Self { first: key, others: Vec::new() }
    }

    /// Two keys. Both must have signed.
    ///
    /// ```
    /// use bandana_client::{SameKey, Signers};
    /// use bandana_shared::signing::SigningKey;
    ///
    /// let [operator, countersigner] = [SigningKey::generate()?, SigningKey::generate()?];
    /// let [operator, countersigner] = [operator.public_key(), countersigner.public_key()];
    /// assert!(Signers::operator_and_countersigner(operator, countersigner).is_ok());
    /// assert_eq!(Signers::operator_and_countersigner(operator, operator), Err(SameKey(operator)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SameKey`] when the keys are equal, since one holder would then be both parties.
    pub fn operator_and_countersigner(
        operator: PublicKey,
        countersigner: PublicKey,
    ) -> Result<Self, SameKey> {
        if operator == countersigner {
            Err(SameKey(operator))
        } else {
            Ok(Self { first: operator, others: vec![countersigner] })
        }
    }

    /// The keys, in the order in which they were given.
    pub fn keys(&self) -> Vec<PublicKey> {
        std::iter::once(&self.first).chain(&self.others).copied().collect()
    }

    /// Checks that every key has signed `content`. Returns the time at which that no longer holds.
    /// Judge `content` again then. Signatures by other keys are ignored.
    ///
    /// ```
    #[doc = include_str!("example.txt")]
    /// use bandana_client::{Signers, Timestamp};
    /// use bandana_shared::{identity::UnixSeconds, signing::SigningKey};
    ///
    /// # let [operator, countersigner] = [1, 2].map(|number| SigningKey::from_secret(&[number; 32]));
    /// let signers = Signers::operator_and_countersigner(operator.public_key(), countersigner.public_key())?;
    /// let specification = specification()?;
    /// let (sooner, later) = (UnixSeconds::new(2_000_000_000), UnixSeconds::new(2_100_000_000));
    /// let signatures =
    ///     [operator.sign(&specification, later), countersigner.sign(&specification, sooner)];
    /// let until = signers.judge(&specification, &signatures, now())?;
    /// assert_eq!(until, Timestamp::from_unix_ms(sooner.get() * 1000));
    /// assert!(signers.judge(&specification, &signatures[..1], now()).is_err());
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Errors
    /// [`SignatureRefusal`] for the first key without a good signature.
    ///
    /// # Privacy
    /// `now` is the device's own clock: a server can't extend a signature.
    pub fn judge<T: Signable>(
        &self,
        content: &T,
        signatures: &[Signature],
        now: Timestamp,
    ) -> Result<Timestamp, SignatureRefusal> {
        let until = |key: &PublicKey| judge_key(*key, content, signatures, now);
        self.others
            .iter()
            .try_fold(until(&self.first)?, |soonest, key| Ok(soonest.min(until(key)?)))
    }
}

/// The time until which the signature of `key` is valid.
fn judge_key<T: Signable>(
    key: PublicKey,
    content: &T,
    signatures: &[Signature],
    now: Timestamp,
) -> Result<Timestamp, SignatureRefusal> {
    let by_key = || signatures.iter().filter(|signature| signature.key() == key);
    let good = by_key().filter(|signature| signature.fits(content));
    let Some(expires) = good.map(Signature::expires).max() else {
        let none = by_key().next().is_none();
        return Err(if none {
            SignatureRefusal::Missing { key }
        } else {
            SignatureRefusal::Invalid { key }
        });
    };
    let until = Timestamp::from_unix_ms(expires.get().saturating_mul(1000));
    if now < until { Ok(until) } else { Err(SignatureRefusal::Expired { key, expired: expires }) }
}

/// Operator and countersigner have the same key.
///
/// ```
/// # use bandana_client::{SameKey, Signers};
/// # use bandana_shared::signing::SigningKey;
/// let key = SigningKey::from_secret(&[1; 32]).public_key();
/// let error: SameKey = Signers::operator_and_countersigner(key, key).unwrap_err();
/// assert!(error.to_string().contains(&key.to_string()), "the message names the key");
/// ```
#[derive(Clone, Copy, Error, PartialEq, Eq)]
#[error("operator and countersigner must have two keys, held by two parties; both are {0}")]
pub struct SameKey(pub PublicKey);

bandana_shared::debug_says!(SameKey);

/// The reason why a specification does not count as signed.
///
/// ```
#[doc = include_str!("example.txt")]
/// use bandana_client::{SignatureRefusal, Signers};
/// use bandana_shared::{identity::UnixSeconds, signing::SigningKey};
///
/// # let operator = SigningKey::from_secret(&[1; 32]);
/// let (key, specification) = (operator.public_key(), specification()?);
/// let judge = |signatures: &_| Signers::key(key).judge(&specification, signatures, now());
/// assert_eq!(judge(&vec![]), Err(SignatureRefusal::Missing { key }));
/// // The signature expired in 1970.
/// let expired = UnixSeconds::new(1);
/// let signatures = vec![operator.sign(&specification, expired)];
/// assert_eq!(judge(&signatures), Err(SignatureRefusal::Expired { key, expired }));
/// # Ok::<(), Failure>(())
/// ```
#[derive(Clone, Copy, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum SignatureRefusal {
    /// There is no signature by a key that the app pins.
    #[error("the specification is not signed by the key {key}, which the app pins")]
    Missing {
        /// The key.
        key: PublicKey,
    },
    /// The key's alleged signature is forged, or signs another specification.
    #[error("the signature by the key {key}, which the app pins, does not fit the specification")]
    Invalid {
        /// The key.
        key: PublicKey,
    },
    /// The key's signature has expired.
    #[error("the signature by the key {key}, which the app pins, expired at {expired}")]
    Expired {
        /// The key.
        key: PublicKey,
        /// The time of the expiry.
        expired: UnixSeconds,
    },
}

bandana_shared::debug_says!(SignatureRefusal);

#[cfg(test)]
mod tests {
    use super::*;
    use bandana_shared::curve::Mechanism;
    use bandana_shared::epsilon::Epsilon;
    use bandana_shared::identity::ExperimentId;
    use bandana_shared::rewards::Rewards;
    use bandana_shared::signing::SigningKey;
    use bandana_shared::specification::{Arm, ReleaseTiming, Specification};

    fn specification() -> Specification {
        Specification::first(
            ExperimentId::new("colours").unwrap(),
            Epsilon::new(1.0).unwrap(),
            Rewards::binary(),
            Mechanism::Linear,
            vec![Arm::new("red").unwrap(), Arm::new("green").unwrap()],
            ReleaseTiming::IMMEDIATE,
        )
        .unwrap()
    }

    fn holder(number: u8) -> SigningKey {
        SigningKey::from_secret(&[number; 32])
    }

    /// A signature of the specification above that ends with the given second.
    fn good(number: u8, expires: u64) -> Signature {
        holder(number).sign(&specification(), UnixSeconds::new(expires))
    }

    /// A signature of the next revision.
    fn of_another(number: u8) -> Signature {
        let next = specification().with_arm(Arm::new("blue").unwrap()).unwrap();
        holder(number).sign(&next, UnixSeconds::new(1000))
    }

    fn ms(milliseconds: u64) -> Timestamp {
        Timestamp::from_unix_ms(milliseconds)
    }

    #[test]
    fn one_key_is_enough_where_one_is_pinned() {
        let key = holder(1).public_key();
        let judge = |signatures: &[Signature], now| {
            Signers::key(key).judge(&specification(), signatures, ms(now))
        };
        let expired =
            |expired| SignatureRefusal::Expired { key, expired: UnixSeconds::new(expired) };
        assert_eq!(judge(&[], 0), Err(SignatureRefusal::Missing { key }));
        assert_eq!(judge(&[good(2, 1000)], 0), Err(SignatureRefusal::Missing { key }));
        assert_eq!(judge(&[of_another(1)], 0), Err(SignatureRefusal::Invalid { key }));
        // Another's signature under the pinned key's name.
        let forged = Signature::new(key, UnixSeconds::new(1000), *good(2, 1000).as_bytes());
        assert_eq!(judge(&[forged], 0), Err(SignatureRefusal::Invalid { key }));

        assert_eq!(judge(&[good(1, 1000)], 999_999), Ok(ms(1_000_000)));
        assert_eq!(judge(&[good(1, 1000)], 1_000_000), Err(expired(1000)));
        assert_eq!(judge(&[good(1, u64::MAX)], 0), Ok(ms(u64::MAX)));
    }

    #[test]
    fn the_best_of_several_signatures_counts_in_any_order() {
        let signers = Signers::key(holder(1).public_key());
        let mut signatures =
            [good(1, 500), of_another(1), good(2, 900), good(1, 700), good(1, 600)];
        let expired = SignatureRefusal::Expired {
            key: holder(1).public_key(),
            expired: UnixSeconds::new(700),
        };
        for _ in 0..signatures.len() {
            signatures.rotate_left(1);
            let judge = |now| signers.judge(&specification(), &signatures, ms(now));
            assert_eq!(judge(550_000), Ok(ms(700_000)));
            assert_eq!(judge(700_000), Err(expired));
        }
    }

    #[test]
    fn neither_of_two_can_sign_alone() {
        let (operator, countersigner) = (holder(1).public_key(), holder(2).public_key());
        let signers = Signers::operator_and_countersigner(operator, countersigner).unwrap();
        let judge =
            |signatures: &[Signature], now| signers.judge(&specification(), signatures, ms(now));
        let missing = |key| Err(SignatureRefusal::Missing { key });
        let both = [good(3, 50), good(1, 100), good(2, 80)];
        assert_eq!(judge(&both, 0), Ok(ms(80_000)), "until the first of the two expires");
        assert_eq!(judge(&[good(1, 80), good(2, 100)], 0), Ok(ms(80_000)));
        assert_eq!(judge(&both[..2], 0), missing(countersigner));
        assert_eq!(judge(&both[2..], 0), missing(operator));
        assert_eq!(judge(&[good(1, 100), good(1, 200)], 0), missing(countersigner));
        let invalid = Err(SignatureRefusal::Invalid { key: countersigner });
        assert_eq!(judge(&[good(1, 100), of_another(2)], 0), invalid);
        let expired =
            Err(SignatureRefusal::Expired { key: countersigner, expired: UnixSeconds::new(80) });
        assert_eq!(judge(&both, 80_000), expired);

        assert_eq!(Signers::operator_and_countersigner(operator, operator), Err(SameKey(operator)));
    }
}
