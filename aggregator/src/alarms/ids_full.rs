//! All room for upload ids is taken: every upload is told to come again.
//!
//! It rings while as many ids are remembered as may be, so it can't ring for nothing. It ends when
//! the replay window moves on and the ids of its oldest day are forgotten.

use super::{Alarm, AlarmName};

/// The alarm of a store that remembers so many ids and may remember so many. With a maximum of 0
/// ids are not in memory.
pub(crate) fn alarm(ids: u64, ids_max: u64) -> Option<Alarm> {
    (ids_max > 0 && ids >= ids_max).then(|| Alarm {
        name: AlarmName::IdsFull,
        message: format!(
            "the server remembers {ids} upload ids and may remember {ids_max}: it takes no further \
             upload until the replay window moves on; raise `store.ids_max`, and look at who \
             uploads"
        ),
        age: None,
        threshold: ids_max as f64,
        seen: ids as f64,
    })
}
