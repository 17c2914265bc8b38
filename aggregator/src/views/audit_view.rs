//! Entries of the audit log, as JSON and as a table.

use bandana_shared::identity::UnixSeconds;
use bandana_shared::wire::v1::{AuditAction, AuditEntry};
use serde::Serialize;

use super::table::{Side, Table, visible};

/// Stable JSON form of audit entries.
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
        AuditAction::WithdrawDataSet => "withdraw-data-set",
        AuditAction::Archive => "archive",
        AuditAction::Delete => "delete",
        AuditAction::Unarchive => "unarchive",
        AuditAction::SetEnrolment => "set-enrolment",
        AuditAction::SetRecord => "set-record",
        AuditAction::Unspecified => "unknown",
    }
}

impl AuditView {
    pub(crate) fn new(entries: Vec<AuditEntry>) -> Self {
        Self { entries: entries.into_iter().map(Into::into).collect() }
    }

    pub(crate) fn describe(&self, columns: Option<usize>) -> String {
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
