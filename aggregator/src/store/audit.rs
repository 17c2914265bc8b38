//! The audit log: who changed which experiment, and who registered which data set.

use bandana_shared::identity::{ExperimentId, UnixSeconds};

/// What was done to an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditAction {
    /// It was created.
    Create,
    /// A draft was given to devices.
    Start,
    /// Uploads are refused for now.
    Pause,
    /// Uploads are taken again.
    Resume,
    /// Uploads are refused for good.
    Stop,
    /// An arm was appended.
    AddArm,
    /// An arm was retired.
    RetireArm,
    /// A revision was signed.
    AddSignature,
    /// A data set was registered.
    RegisterDataSet,
    /// A data set was not registered.
    RefuseDataSet,
    /// Lists leave it out from then on.
    Archive,
    /// It is gone, but for its entries.
    Delete,
    /// Lists show it again.
    Unarchive,
}

impl AuditAction {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Create,
        Self::Start,
        Self::Pause,
        Self::Resume,
        Self::Stop,
        Self::AddArm,
        Self::RetireArm,
        Self::AddSignature,
        Self::RegisterDataSet,
        Self::RefuseDataSet,
        Self::Archive,
        Self::Delete,
        Self::Unarchive,
    ];

    /// Its name in the store, in messages and for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Start => "start",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Stop => "stop",
            Self::AddArm => "add-arm",
            Self::RetireArm => "retire-arm",
            Self::AddSignature => "add-signature",
            Self::RegisterDataSet => "register-data-set",
            Self::RefuseDataSet => "refuse-data-set",
            Self::Archive => "archive",
            Self::Delete => "delete",
            Self::Unarchive => "unarchive",
        }
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name() == name)
    }
}

/// A change of an experiment. It is stored in one transaction with the change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// When.
    pub at: UnixSeconds,
    /// Who: the name of a token, or what there is of a certificate.
    pub caller: String,
    /// What was done.
    pub action: AuditAction,
    /// To which experiment, or data set.
    pub experiment: ExperimentId,
    /// What exactly, for people.
    pub detail: String,
}

/// An entry with its place in the order of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRecord {
    /// Greater than those of all earlier entries.
    pub number: u64,
    /// The entry.
    pub entry: AuditEntry,
}

/// Which entries are wanted.
#[derive(Clone, Debug)]
pub struct AuditQuery {
    /// Changes of this experiment. None: of all.
    pub experiment: Option<ExperimentId>,
    /// Most entries.
    pub limit: u32,
    /// Entries before this number. None: from the newest on.
    pub before: Option<u64>,
}
