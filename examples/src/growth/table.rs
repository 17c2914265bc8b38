//! The costs of sizes as a table.

use std::fmt::Write as _;

use super::Cost;

/// The costs as a table in Markdown.
pub fn table(costs: &[Cost]) -> String {
    let mut text = "| experiments | arms | days | ids | devices | replicas | an experiment is made, ms | start, ms | memory of one, MiB | idle, % of a core | \
         uploads/s | server, us an upload | database, us an upload | MB on disk for a million | \
         `experiment list`, ms | dashboard's list, ms |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for cost in costs {
        let size = cost.size;
        let database =
            cost.database_us_per_upload.map_or_else(String::new, |us| format!("{us:.0}"));
        // Writing to a string does not fail.
        writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {:.1} | {:.0} | {:.0} | {:.1} | {:.0} | {:.0} | {database} | {:.0} | {:.0} | {:.0} |",
            size.experiments,
            size.arms,
            size.days,
            size.ids,
            size.devices,
            size.replicas,
            cost.creation_ms,
            cost.start_ms,
            cost.resident_mib,
            cost.idle_share * 100.0,
            cost.uploads_per_second,
            cost.server_us_per_upload,
            cost.bytes_per_million / 1e6,
            cost.list_ms,
            cost.dashboard_ms,
        )
        .ok();
    }
    text
}
