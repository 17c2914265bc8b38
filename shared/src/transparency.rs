//! A public log of what a server tells devices, and the check that it tells all of them the same.
//!
//! A server could give one device a policy, a specification or a key that nobody else gets, and
//! recognise the device by it. A device that pins a log takes only what the log says:
//!
//! 1. About once a minute the server writes an [`Epoch`]: one value for each experiment, which is a
//!    hash of its specification, policy and store, and one for the keys of the gateway.
//! 2. Epochs are the leaves of a Merkle tree (RFC 6962), whose root the log signs as a [`Checkpoint`]
//!    (C2SP tlog-checkpoint).
//! 3. Witnesses cosign it (C2SP tlog-cosignature) if it continues what they have seen before.
//! 4. With its answer a device gets a [`View`], which is the same for all. [`Witnessed`] checks it.
//!
//! So a server can tell two devices different things only in different epochs, and everybody can
//! see both in the log. `docs/transparency.md` says what a server can still do.

mod epoch;
mod key;
mod tree;
mod view;

pub use epoch::{
    Epoch, SIBLINGS_MAX, Subject, epoch_entry, experiment_value, gateway_value, specification_hash,
};
#[cfg(feature = "signing")]
pub use key::NoteSigner;
pub use key::{Checkpoint, Cosignature, Note, NoteKey, NoteKeyError, Role, read_hash, write_hash};
pub use tree::{Frontier, Hash, leaf_hash, node_hash, root_with_last};
pub use view::{View, ViewError, WITNESSES_MAX, Witnessed, WitnessedError};
