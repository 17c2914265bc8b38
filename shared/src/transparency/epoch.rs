//! Epochs: the values that a log states at one time, one for each subject.
//!
//! The values are in a binary tree over the binary digits of the subjects' keys. A tree has one
//! place for each key. So a root fixes one value for each subject, and can't state two.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use super::tree::{Hash, leaf_hash, node_hash};
use crate::gateway::GatewayKeys;
use crate::identity::{ExperimentId, StoreId, UnixSeconds};
use crate::policy::Policy;
use crate::specification::Specification;

/// Largest number of sibling hashes on the path to a value. Two keys share as many leading digits
/// with a probability of 2^-64.
pub const SIBLINGS_MAX: usize = 64;

/// The place of a value that nobody has.
const NOTHING: Hash = [0; 32];

/// A subject of a log's statements.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// An experiment: its specification and policy.
    Experiment(ExperimentId),
    /// The keys of the gateway.
    GatewayKeys,
}

impl Subject {
    /// The key of the subject's place in the tree.
    pub fn key(&self) -> Hash {
        let hash = Sha256::new_with_prefix(b"bandana.v1.log-subject\0");
        match self {
            Self::Experiment(id) => hash.chain_update([0]).chain_update(id.as_str()),
            Self::GatewayKeys => hash.chain_update([1]),
        }
        .finalize()
        .into()
    }
}

/// The hash of a specification.
pub fn specification_hash(specification: &Specification) -> Hash {
    Sha256::digest(specification.canonical_bytes()).into()
}

/// The value for an experiment: a hash of everything that a device keeps and a server can choose.
///
/// `specification` is its [`specification_hash`].
pub fn experiment_value(specification: &Hash, policy: &Policy, store: StoreId) -> Hash {
    let mut hash = Sha256::new_with_prefix(b"bandana.v1.log-experiment\0")
        .chain_update(specification)
        .chain_update(store.as_bytes())
        .chain_update(policy.version.to_be_bytes())
        .chain_update(policy.time_to_live_seconds.to_be_bytes());
    for weight in policy.weights.iter() {
        hash.update(weight.to_be_bytes());
    }
    hash.finalize().into()
}

/// The value for the keys of a gateway.
pub fn gateway_value(keys: &GatewayKeys) -> Hash {
    let hash = Sha256::new_with_prefix(b"bandana.v1.log-gateway\0");
    hash.chain_update(keys.configurations()).finalize().into()
}

/// The values of all subjects at one time.
///
/// ```
/// use bandana_shared::identity::{ExperimentId, UnixSeconds};
/// use bandana_shared::transparency::{Epoch, Subject, epoch_entry};
///
/// let subject = |name| Ok::<_, bandana_shared::identity::IdentityError>(Subject::Experiment(ExperimentId::new(name)?));
/// let time = UnixSeconds::new(1_800_000_000);
/// let values = [(subject("colour")?.key(), [1; 32]), (subject("size")?.key(), [2; 32])];
/// let epoch = Epoch::new(time, values);
///
/// let key = subject("size")?.key();
/// let siblings = epoch.siblings(&key);
/// assert_eq!(epoch_entry(time, &key, &[2; 32], &siblings), Some(epoch.entry()));
/// assert_ne!(epoch_entry(time, &key, &[3; 32], &siblings), Some(epoch.entry()));
/// # Ok::<(), bandana_shared::identity::IdentityError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Epoch {
    time: UnixSeconds,
    /// By the keys of the subjects.
    values: BTreeMap<Hash, Hash>,
}

impl Epoch {
    /// An epoch at this time with these values. Each comes after the key of its subject.
    pub fn new(time: UnixSeconds, values: impl IntoIterator<Item = (Hash, Hash)>) -> Self {
        Self { time, values: values.into_iter().collect() }
    }

    /// The entry of this epoch in the log. Its [`leaf_hash`] is the leaf.
    pub fn entry(&self) -> Hash {
        let all: Vec<Place<'_>> = self.values.iter().collect();
        entry(self.time, &root(&all, 0))
    }

    /// The sibling hashes on the path from a key's value to the epoch's root, in this order.
    pub fn siblings(&self, key: &Hash) -> Vec<Hash> {
        let mut all: Vec<Place<'_>> = self.values.iter().collect();
        let mut siblings = Vec::new();
        while all.len() > 1 && siblings.len() < 256 {
            let depth = siblings.len();
            let (left, right) = split(&all, depth);
            let (own, other) = if digit(key, depth) { (right, left) } else { (left, right) };
            siblings.push(root(other, depth + 1));
            all = own.to_vec();
        }
        siblings.reverse();
        siblings
    }
}

/// The log's entry for an epoch at this time in which this key has this value, or `None` for more
/// than [`SIBLINGS_MAX`] sibling hashes.
pub fn epoch_entry(time: UnixSeconds, key: &Hash, value: &Hash, siblings: &[Hash]) -> Option<Hash> {
    if siblings.len() > SIBLINGS_MAX {
        return None;
    }
    let mut root = leaf(key, value);
    for (above, sibling) in siblings.iter().enumerate() {
        let is_right = digit(key, siblings.len() - 1 - above);
        root = if is_right { node_hash(sibling, &root) } else { node_hash(&root, sibling) };
    }
    Some(entry(time, &root))
}

fn entry(time: UnixSeconds, root: &Hash) -> Hash {
    let hash = Sha256::new_with_prefix(b"bandana.v1.log-epoch\0");
    hash.chain_update(time.get().to_be_bytes()).chain_update(root).finalize().into()
}

/// A value with its key. What stands alone below a node takes the node's place.
fn leaf(key: &Hash, value: &Hash) -> Hash {
    leaf_hash(&[*key, *value].concat())
}

/// The key and the value of a subject.
type Place<'h> = (&'h Hash, &'h Hash);

/// The root over these values, whose keys have their first `depth` digits in common.
fn root(values: &[Place<'_>], depth: usize) -> Hash {
    match values {
        [] => NOTHING,
        [(key, value)] => leaf(key, value),
        _ => {
            let (left, right) = split(values, depth);
            node_hash(&root(left, depth + 1), &root(right, depth + 1))
        }
    }
}

fn split<'v, 'h>(values: &'v [Place<'h>], depth: usize) -> (&'v [Place<'h>], &'v [Place<'h>]) {
    values.split_at(values.partition_point(|(key, _)| !digit(key, depth)))
}

/// A binary digit of a key, the most significant one first.
fn digit(key: &Hash, place: usize) -> bool {
    key.get(place / 8).is_some_and(|byte| byte >> (7 - place % 8) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(count: u32) -> Vec<(Hash, Hash)> {
        let hash = |number: u32, kind: u8| {
            Sha256::new_with_prefix([kind]).chain_update(number.to_be_bytes()).finalize().into()
        };
        (0..count).map(|number| (hash(number, 0), hash(number, 1))).collect()
    }

    #[test]
    fn each_key_has_its_value_and_no_other() {
        let time = UnixSeconds::new(7);
        for count in [1, 2, 3, 10, 100] {
            let values = values(count);
            let epoch = Epoch::new(time, values.clone());
            for (key, value) in &values {
                let siblings = epoch.siblings(key);
                assert_eq!(epoch_entry(time, key, value, &siblings), Some(epoch.entry()));
                assert_ne!(
                    epoch_entry(UnixSeconds::new(8), key, value, &siblings),
                    Some(epoch.entry())
                );
                assert_ne!(epoch_entry(time, key, &[0; 32], &siblings), Some(epoch.entry()));
                for (other, _) in values.iter().filter(|(other, _)| other != key) {
                    assert_ne!(epoch_entry(time, other, value, &siblings), Some(epoch.entry()));
                }
            }
        }
    }

    #[test]
    fn keys_with_many_digits_in_common_are_told_apart() {
        let near = |last| [[7_u8; 31].as_slice(), &[last]].concat().try_into().unwrap_or([0; 32]);
        let values: Vec<(Hash, Hash)> = vec![(near(0), [1; 32]), (near(1), [2; 32])];
        let epoch = Epoch::new(UnixSeconds::new(7), values);
        // Nobody finds such names; a device would refuse them.
        assert_eq!(epoch.siblings(&near(1)).len(), 256);
        assert_eq!(
            epoch_entry(UnixSeconds::new(7), &near(1), &[2; 32], &epoch.siblings(&near(1))),
            None
        );
    }
}
