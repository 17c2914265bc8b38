//! `bandana audit`.

use bandana_shared::identity::{ExperimentId, UnixSeconds};
use bandana_shared::wire::v1::{AuditAction, AuditEntry, ListAuditEntriesRequest};
use clap::Args;
use serde::Serialize;

use super::connection::{Connection, block_on, experiment_id};
use super::failure::Failure;
use super::table::{Side, Table, terminal_columns, visible};
use super::{say, say_json};

const FIELDS: &str = "\
Fields with --json: entries, the newest first, each with number (greater than those of all earlier \
entries), at_unix_seconds, caller (name of the token, or the SHA-256 of the certificate), action \
(create, start, pause, resume, stop, add-arm, retire-arm, add-signature, archive, unarchive or delete; \
register-data-set or refuse-data-set), experiment_id (or the data set), detail (for people). \
Fields may be added; none changes its meaning.";

/// Show who has changed which experiment, the newest change first.
///
/// Every change is in the store together with its entry, and entries are never changed.
#[derive(Debug, Args)]
#[command(after_long_help = FIELDS)]
pub(super) struct Audit {
    /// Changes of this experiment only.
    #[arg(value_name = "ID", value_parser = experiment_id)]
    experiment: Option<ExperimentId>,
    /// Most entries to show, 1 to 1000.
    #[arg(long, value_name = "NUMBER", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Entries before this number only, to go on from there.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    before: Option<u64>,
    #[command(flatten)]
    connection: Connection,
    /// Print a JSON object for programs.
    #[arg(long)]
    json: bool,
}

/// The stable form of entries.
#[derive(Debug, Serialize)]
pub(crate) struct AuditView {
    entries: Vec<EntryView>,
}

#[derive(Debug, Serialize)]
struct EntryView {
    number: u64,
    at_unix_seconds: u64,
    caller: String,
    action: &'static str,
    experiment_id: String,
    detail: String,
}

impl From<AuditEntry> for EntryView {
    fn from(entry: AuditEntry) -> Self {
        Self {
            number: entry.number,
            at_unix_seconds: entry.unix_seconds,
            action: action(entry.action()),
            caller: entry.caller,
            experiment_id: entry.experiment_id,
            detail: entry.detail,
        }
    }
}

fn action(action: AuditAction) -> &'static str {
    match action {
        AuditAction::Create => "create",
        AuditAction::Start => "start",
        AuditAction::Pause => "pause",
        AuditAction::Resume => "resume",
        AuditAction::Stop => "stop",
        AuditAction::AddArm => "add-arm",
        AuditAction::RetireArm => "retire-arm",
        AuditAction::AddSignature => "add-signature",
        AuditAction::RegisterDataSet => "register-data-set",
        AuditAction::RefuseDataSet => "refuse-data-set",
        AuditAction::Archive => "archive",
        AuditAction::Delete => "delete",
        AuditAction::Unarchive => "unarchive",
        AuditAction::Unspecified => "unknown",
    }
}

impl AuditView {
    pub(crate) fn new(entries: Vec<AuditEntry>) -> Self {
        Self { entries: entries.into_iter().map(Into::into).collect() }
    }

    fn describe(&self, columns: Option<usize>) -> String {
        let mut table = Table::new([
            ("number", Side::Right),
            ("when", Side::Left),
            ("who", Side::Left),
            ("what", Side::Left),
            ("experiment", Side::Left),
            ("exactly", Side::Left),
        ]);
        for entry in &self.entries {
            table.push([
                entry.number.to_string(),
                UnixSeconds::new(entry.at_unix_seconds).to_string(),
                visible(&entry.caller),
                entry.action.to_owned(),
                visible(&entry.experiment_id),
                visible(&entry.detail),
            ]);
        }
        table.render(columns)
    }
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
