//! Views: the proof that a log contains a value, and the check that a device makes.

use std::time::Duration;

use thiserror::Error;

use super::epoch::{Subject, epoch_entry, experiment_value, specification_hash};
use super::key::{Checkpoint, Cosignature, NoteKey, Role};
use super::tree::{Hash, leaf_hash, root_with_last};
use crate::identity::{StoreId, UnixSeconds};
use crate::policy::Policy;
use crate::specification::Specification;

/// Largest number of witnesses that an app pins, and of cosignatures that a device reads.
pub const WITNESSES_MAX: usize = 8;

/// The proof that a value is in the last epoch of a log, with the signatures of log and witnesses.
/// It is the same for all devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The number of epochs in the log. The value is in the last one.
    pub size: u64,
    /// The sibling hashes on the path from the epoch to the log's root, in this order.
    pub path: Vec<Hash>,
    /// The time of the epoch, by the server's clock.
    pub time: UnixSeconds,
    /// The sibling hashes on the path from the value to its epoch's root, in this order.
    pub siblings: Vec<Hash>,
    /// The log's signature of its checkpoint.
    pub log_signature: [u8; 64],
    /// The cosignatures of the checkpoint.
    pub cosignatures: Vec<Cosignature>,
}

/// The log that an app believes, and the witnesses who must have seen it.
///
/// ```
/// use std::time::Duration;
/// use bandana_shared::transparency::{Witnessed, WitnessedError};
///
/// let log = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW".parse()?;
/// assert_eq!(Witnessed::new(log, Vec::new(), 1), Err(WitnessedError::Quorum { witnesses: 0, quorum: 1 }));
/// # Ok::<(), bandana_shared::transparency::NoteKeyError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Witnessed {
    log: NoteKey,
    witnesses: Vec<NoteKey>,
    quorum: usize,
    freshness: Duration,
}

impl Witnessed {
    /// The default largest age of a cosignature, one hour. A device's clock may be off by as much.
    pub const FRESHNESS: Duration = Duration::from_hours(1);

    /// The largest age for experiments whose installations keep their arms, or whose reports are
    /// shuffled: ten minutes. Later messages of such a device may tell which view it took.
    pub const FRESHNESS_OF_KEPT: Duration = Duration::from_mins(10);

    /// Believes this log if `quorum` of these witnesses have seen it. The quorum is more than half
    /// of them. To show two different logs, a server needs `2 quorum - witnesses` witnesses that
    /// lie. Of three, that is one for a quorum of 2, and all for a quorum of 3.
    ///
    /// # Errors
    /// [`WitnessedError`] for a key in the wrong place, for a witness that occurs twice, for more
    /// than [`WITNESSES_MAX`] witnesses, and for a quorum that is not more than half of the
    /// witnesses or exceeds their number.
    pub fn new(
        log: NoteKey,
        witnesses: Vec<NoteKey>,
        quorum: usize,
    ) -> Result<Self, WitnessedError> {
        if log.role() != Role::Log {
            return Err(WitnessedError::Log);
        }
        if witnesses.iter().any(|key| key.role() != Role::Witness) {
            return Err(WitnessedError::Witness);
        }
        let twice =
            witnesses.iter().enumerate().find(|(place, key)| witnesses[..*place].contains(key));
        if let Some((_, key)) = twice {
            return Err(WitnessedError::Twice { name: key.name().to_owned() });
        }
        let is_most = 2 * quorum.min(WITNESSES_MAX) > witnesses.len();
        if !is_most || quorum > witnesses.len() || witnesses.len() > WITNESSES_MAX {
            return Err(WitnessedError::Quorum { witnesses: witnesses.len(), quorum });
        }
        Ok(Self { log, witnesses, quorum, freshness: Self::FRESHNESS })
    }

    /// Accepts cosignatures up to this age, or as far ahead of the device's clock. Values are
    /// clamped to 10 minutes to 7 days.
    ///
    /// # Privacy
    /// Within this time, a server chooses which view a device sees, of those that all devices could
    /// have seen. If views are a minute apart, there are 60 in an hour. [`Self::FRESHNESS_OF_KEPT`]
    /// stays as it is.
    #[must_use]
    pub fn fresh_for(self, freshness: Duration) -> Self {
        Self {
            freshness: freshness.clamp(Duration::from_mins(10), Duration::from_hours(7 * 24)),
            ..self
        }
    }

    /// The same log, whose cosignatures are at most [`Self::FRESHNESS_OF_KEPT`] old.
    #[must_use]
    pub fn for_kept(&self) -> Self {
        Self { freshness: self.freshness.min(Self::FRESHNESS_OF_KEPT), ..self.clone() }
    }

    /// The log.
    pub fn log(&self) -> &NoteKey {
        &self.log
    }

    /// [`Self::check`] for a server's answer about an experiment. If later messages of the device
    /// may tell which view it took, [`Self::FRESHNESS_OF_KEPT`] is the largest age.
    ///
    /// # Errors
    /// [`ViewError`] with the first reason against it.
    pub fn check_experiment(
        &self,
        view: Option<&View>,
        (specification, policy, store): (&Specification, &Policy, StoreId),
        known: u64,
        now: UnixSeconds,
    ) -> Result<u64, ViewError> {
        let value = experiment_value(&specification_hash(specification), policy, store);
        let subject = Subject::Experiment(specification.experiment_id().clone()).key();
        let is_told = specification.may_tell_policy();
        let pinned = if is_told { &self.for_kept() } else { self };
        pinned.check(view, (&subject, &value), known, now)
    }

    /// Checks that the last epoch of the log has this value for this subject, and that enough
    /// witnesses have seen it. Returns the number of epochs.
    ///
    /// `known` is the number of epochs that the device has seen before. It refuses a log with
    /// fewer.
    ///
    /// # Errors
    /// [`ViewError`] with the first reason against it.
    pub fn check(
        &self,
        view: Option<&View>,
        (subject, value): (&Hash, &Hash),
        known: u64,
        now: UnixSeconds,
    ) -> Result<u64, ViewError> {
        let view = view.ok_or(ViewError::Missing)?;
        let entry = epoch_entry(view.time, subject, value, &view.siblings);
        let leaf = entry.ok_or(ViewError::Form).map(|entry| leaf_hash(&entry))?;
        let root = root_with_last(leaf, view.size, &view.path).ok_or(ViewError::Form)?;
        let origin = self.log.name().to_owned();
        let text = Checkpoint { origin, size: view.size, root }.text();
        if !self.log.has_signed(&text, &view.log_signature) {
            return Err(ViewError::Other);
        }
        let cosignatures = view.cosignatures.get(..WITNESSES_MAX).unwrap_or(&view.cosignatures);
        let is_fresh =
            |one: &&Cosignature| one.time.get().abs_diff(now.get()) <= self.freshness.as_secs();
        let fresh: Vec<&Cosignature> = cosignatures.iter().filter(is_fresh).collect();
        let has_seen =
            |witness: &&NoteKey| fresh.iter().any(|one| witness.has_cosigned(&text, one));
        let seen = self.witnesses.iter().filter(has_seen).count();
        if seen < self.quorum {
            return Err(ViewError::Quorum { seen, quorum: self.quorum });
        }
        if view.size < known {
            return Err(ViewError::Earlier { size: view.size, known });
        }
        Ok(view.size)
    }
}

/// Keys that can't be pinned together.
#[derive(Clone, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum WitnessedError {
    /// The key of the log is that of a witness.
    #[error(
        "the key of the log is one for cosignatures, which a witness makes; give the log's own key"
    )]
    Log,
    /// The key of a witness is that of a log.
    #[error(
        "the key of a witness is one for a log's own signatures; give what `bandana witness` printed"
    )]
    Witness,
    /// A witness is named twice.
    #[error("the witness {name} is named twice; name each once")]
    Twice {
        /// Its name.
        name: String,
    },
    /// The quorum can't be met, or too many witnesses are named.
    #[error(
        "{quorum} of {witnesses} witnesses can't be asked for: name 1 to {WITNESSES_MAX}, and more \
         than half of them as the quorum"
    )]
    Quorum {
        /// The number of witnesses.
        witnesses: usize,
        /// The number of witnesses that must have seen the log.
        quorum: usize,
    },
}

crate::debug_says!(WitnessedError);

/// The reason why a device does not use a server's answer.
#[derive(Clone, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ViewError {
    /// The answer has no view of a log.
    #[error(
        "the server keeps no public log, and this app takes only what one says; see docs/transparency.md"
    )]
    Missing,
    /// The view has too many or too few hashes.
    #[error("the proof that the public log says this is malformed")]
    Form,
    /// The log that the app pins did not sign this value.
    #[error(
        "the log that this app pins does not say this; the server shows another log, or made this \
         for one device"
    )]
    Other,
    /// Too few witnesses have seen the log lately.
    #[error(
        "{seen} of the witnesses that this app pins have lately seen what the log says here, and \
         {quorum} must have; also check the clock"
    )]
    Quorum {
        /// The number of witnesses that have.
        seen: usize,
        /// The number of witnesses that must have.
        quorum: usize,
    },
    /// The device has seen a later state of the log.
    #[error(
        "the log has {size} epochs here, and {known} were seen before: this is an earlier state of it"
    )]
    Earlier {
        /// The number of its epochs now.
        size: u64,
        /// The number of its epochs that the device has seen before.
        known: u64,
    },
}

crate::debug_says!(ViewError);

#[cfg(all(test, feature = "signing"))]
#[expect(clippy::unwrap_used, reason = "keys of the tests")]
mod tests {
    use super::*;
    use crate::signing::SigningKey;
    use crate::transparency::{Epoch, Frontier, NoteSigner};

    const NOW: UnixSeconds = UnixSeconds::new(1_800_000_000);
    const SUBJECT: Hash = [5; 32];
    const VALUE: Hash = [6; 32];

    fn signer(name: &str, role: Role, secret: u8) -> NoteSigner {
        NoteSigner::new(name, role, SigningKey::from_secret(&[secret; 32])).unwrap()
    }

    fn witness(number: u8) -> NoteSigner {
        signer(&format!("witness.example/{number}"), Role::Witness, number)
    }

    fn log() -> NoteSigner {
        signer("bandana.example/log", Role::Log, 100)
    }

    /// The view after this number of epochs, as these witnesses have seen it.
    fn view(size: u64, value: Hash, witnesses: &[u8], time: UnixSeconds) -> View {
        let mut tree = Frontier::default();
        (1..size).for_each(|leaf| tree.push([u8::try_from(leaf).unwrap_or(0); 32]));
        let path = tree.path();
        let epoch = Epoch::new(time, [(SUBJECT, value), ([200; 32], [1; 32])]);
        tree.push(leaf_hash(&epoch.entry()));
        let text =
            Checkpoint { origin: log().public().name().to_owned(), size, root: tree.root() }.text();
        let cosignatures =
            witnesses.iter().map(|number| witness(*number).cosign(&text, time)).collect();
        View {
            size,
            path,
            time,
            siblings: epoch.siblings(&SUBJECT),
            log_signature: log().sign(&text),
            cosignatures,
        }
    }

    /// Two of three, or one of one.
    fn pinned(quorum: usize) -> Witnessed {
        let number = if quorum == 1 { 1 } else { 3 };
        let witnesses = (1..=number).map(|number| witness(number).public().clone()).collect();
        Witnessed::new(log().public().clone(), witnesses, quorum).unwrap()
    }

    #[test]
    fn what_log_and_witnesses_signed_is_taken_and_nothing_else() {
        let check =
            |view: &View, known| pinned(2).check(Some(view), (&SUBJECT, &VALUE), known, NOW);
        for size in [1, 2, 3, 8, 100] {
            let good = view(size, VALUE, &[1, 3], NOW);
            assert_eq!(check(&good, 0), Ok(size));
            assert_eq!(check(&good, size), Ok(size));
            assert_eq!(check(&good, size + 1), Err(ViewError::Earlier { size, known: size + 1 }));
            assert!(check(&View { size: size + 1, ..good.clone() }, 0).is_err());
            let time = UnixSeconds::new(NOW.get() + 1);
            assert_eq!(check(&View { time, ..good.clone() }, 0), Err(ViewError::Other));
            let mut forged = good.clone();
            forged.siblings[0][0] ^= 1;
            assert_eq!(check(&forged, 0), Err(ViewError::Other));
            let mut forged = good.clone();
            forged.log_signature[9] ^= 1;
            assert_eq!(check(&forged, 0), Err(ViewError::Other));
        }
        assert_eq!(check(&view(4, [7; 32], &[1, 2, 3], NOW), 0), Err(ViewError::Other));
        assert_eq!(pinned(1).check(None, (&SUBJECT, &VALUE), 0, NOW), Err(ViewError::Missing));
    }

    #[test]
    fn a_quorum_is_of_different_witnesses_who_have_seen_it_lately() {
        let check = |view: &View| pinned(2).check(Some(view), (&SUBJECT, &VALUE), 0, NOW);
        let too_few = |seen| Err(ViewError::Quorum { seen, quorum: 2 });
        assert_eq!(check(&view(4, VALUE, &[2], NOW)), too_few(1));
        assert_eq!(check(&view(4, VALUE, &[2, 2, 2], NOW)), too_few(1));
        assert_eq!(check(&view(4, VALUE, &[2, 9, 10], NOW)), too_few(1));
        let at = |seconds: i64| UnixSeconds::new(NOW.get().saturating_add_signed(seconds));
        for seconds in [-3600, 3600] {
            assert_eq!(check(&view(4, VALUE, &[1, 2], at(seconds))), Ok(4));
        }
        for seconds in [-3601, 3601] {
            assert_eq!(check(&view(4, VALUE, &[1, 2], at(seconds))), too_few(0));
        }
        // Where an arm is kept, it is ten minutes, whatever the app says.
        let kept = pinned(2).fresh_for(Duration::from_hours(48)).for_kept();
        let check_kept = |view: &View| kept.check(Some(view), (&SUBJECT, &VALUE), 0, NOW);
        for seconds in [-600, 600] {
            assert_eq!(check_kept(&view(4, VALUE, &[1, 2], at(seconds))), Ok(4));
        }
        for seconds in [-601, 601] {
            assert_eq!(check_kept(&view(4, VALUE, &[1, 2], at(seconds))), too_few(0));
        }
        // The time is signed.
        let mut older = view(4, VALUE, &[1, 2], at(-4000));
        older.cosignatures[0].time = NOW;
        assert_eq!(check(&older), too_few(0));
    }

    #[test]
    fn keys_of_logs_and_witnesses_do_not_stand_for_each_other() {
        let (log, witnesses) = (log(), vec![witness(1).public().clone()]);
        let of = |log: &NoteSigner, witnesses: &[NoteKey], quorum| {
            Witnessed::new(log.public().clone(), witnesses.to_vec(), quorum)
        };
        assert!(of(&log, &witnesses, 1).is_ok());
        assert_eq!(of(&witness(1), &witnesses, 1), Err(WitnessedError::Log));
        assert_eq!(of(&log, &[log.public().clone()], 1), Err(WitnessedError::Witness));
        let twice = [witnesses[0].clone(), witnesses[0].clone()];
        assert_eq!(
            of(&log, &twice, 1),
            Err(WitnessedError::Twice { name: "witness.example/1".to_owned() })
        );
        assert_eq!(
            of(&log, &witnesses, 2),
            Err(WitnessedError::Quorum { witnesses: 1, quorum: 2 })
        );
    }
}
