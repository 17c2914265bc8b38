//! `bandana audit`.

use bandana_shared::identity::ExperimentId;
use bandana_shared::wire::v1::ListAuditEntriesRequest;
use clap::Args;

use super::connection::{Connection, block_on, experiment_id};
use super::{say, say_json};
use crate::views::audit_view::AuditView;
use crate::views::failure::Failure;
use crate::views::table::terminal_columns;

const FIELDS: &str = "\
Fields with --json:
  entries: the newest first
    number: greater than those of all earlier entries
    at_unix_seconds
    caller: name of the token, or the SHA-256 of the certificate
    action: create, start, pause, resume, stop, add-arm, retire-arm, set-enrolment, set-record,
      add-signature, archive, unarchive or delete; register-data-set, refuse-data-set or
      withdraw-data-set
    experiment_id: or the data set
    detail: for people
Later versions may add fields. No field changes its meaning.";

/// Show who changed which experiment, newest change first.
///
/// The store writes each change together with its entry. An entry never changes.
#[derive(Debug, Args)]
#[command(after_long_help = FIELDS)]
pub(super) struct Audit {
    /// Show the changes of this experiment only.
    #[arg(value_name = "ID", value_parser = experiment_id)]
    experiment: Option<ExperimentId>,
    /// How many entries to show at most, 1 to 1000.
    #[arg(long, value_name = "NUMBER", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Show entries with a smaller number only. To go on, give the last number that you saw.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    before: Option<u64>,
    #[command(flatten)]
    connection: Connection,
    /// Print a JSON object for programs.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(audit: &Audit) -> anyhow::Result<()> {
    let mut request = ListAuditEntriesRequest {
        experiment_id: audit.experiment.as_ref().map(ToString::to_string).unwrap_or_default(),
        limit: audit.limit,
        before: audit.before.unwrap_or(0),
    };
    let entries = block_on(async {
        let mut client = audit.connection.connect().await?;
        let mut entries = Vec::new();
        loop {
            let answer = client.list_audit_entries(request.clone()).await.map_err(Failure::from)?;
            let answer = answer.into_inner();
            request.before = answer.next_before;
            request.limit = request
                .limit
                .saturating_sub(u32::try_from(answer.entries.len()).unwrap_or(u32::MAX));
            entries.extend(answer.entries);
            if request.before == 0 || request.limit == 0 {
                return anyhow::Ok(entries);
            }
        }
    })?;
    let view = AuditView::new(entries);
    if audit.json { say_json(&view) } else { say(&view.describe(terminal_columns())) }
}
