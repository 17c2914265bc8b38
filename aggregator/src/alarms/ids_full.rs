//! Full ids: there is no room for further upload ids, and every upload is told to come again.
//!
//! The alarm rings while the number of remembered ids is at its maximum, so it is never false. It
//! ends when the replay window moves on and the ids of its oldest day are dropped.

use super::{Alarm, AlarmName};

/// The alarm of a store with this number of remembered ids and this maximum. A maximum of 0 stands
/// for a store without ids in memory.
pub(crate) fn alarm(ids: u64, ids_max: u64) -> Option<Alarm> {
    (ids_max > 0 && ids >= ids_max).then(|| Alarm {
        name: AlarmName::IdsFull,
        message: format!(
            "the server remembers {ids} upload ids and may remember {ids_max}. It takes no further \
             upload until the replay window moves on. Raise `store.ids_max`, and look at who \
             uploads"
        ),
        age: None,
        threshold: ids_max as f64,
        seen: ids as f64,
    })
}
