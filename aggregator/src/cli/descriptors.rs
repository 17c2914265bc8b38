//! As many descriptors as connections need.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors of everything but connections: the store, the log, the listeners.
const OTHERS: u64 = 64;

/// Asks the operating system for enough descriptors for `connections` of each of the
/// two services, and warns if there can't be so many.
pub(super) fn allow(connections: usize) {
    let needed = OTHERS + 2 * u64::try_from(connections).unwrap_or(u64::MAX / 4);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // None: there is no limit.
    if current.is_none_or(|current| current >= needed) {
        return;
    }
    let possible = maximum.map_or(needed, |maximum| maximum.min(needed));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(possible), maximum });
    if raised.is_err() || possible < needed {
        tracing::warn!(
            needed,
            possible,
            "not enough descriptors for all connections; raise the limit of open files (ulimit -n, \
             LimitNOFILE), or lower limits.connections"
        );
    }
}
