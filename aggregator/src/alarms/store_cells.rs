//! Store cells that can't be used: devices whose uploads belong to them are told to come again.
//!
//! The alarm rings while this replica gets no answer from a store cell's database, or a wrong one. So
//! it is never false, and it ends by itself.

use super::{Alarm, AlarmName};

/// The alarm of a store with this number of cells, of which some have problems, in words.
pub(crate) fn alarm(problems: &[String], cells: usize) -> Option<Alarm> {
    (!problems.is_empty()).then(|| Alarm {
        name: AlarmName::StoreCellDown,
        message: format!(
            "{}. Uploads that belong there wait on their devices, and their reports so far still \
             count; the other store cells go on. See to the database",
            problems.join("; ")
        ),
        age: None,
        threshold: 1.0 / cells.max(1) as f64,
        seen: problems.len() as f64 / cells.max(1) as f64,
    })
}
