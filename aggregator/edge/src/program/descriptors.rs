//! The limit on file descriptors, raised to the number that connections need.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors reserved for the store, the log and the listeners.
const OTHERS: u64 = 64;

/// Raises the limit on descriptors to allow `connections` to each of the two services, and warns if
/// that fails.
pub fn allow_connections(connections: usize) {
    let needed = OTHERS + 2 * u64::try_from(connections).unwrap_or(u64::MAX / 4);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // None: no limit.
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
