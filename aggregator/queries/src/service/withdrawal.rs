//! Withdrawal of data sets: what is left of a budget is taken, and nothing is answered any more.

use bandana_edge::auth::Caller;
use bandana_shared::identity::ExperimentId;
use bandana_shared::wire::v1::DataSet;
use bandana_store::{
    AuditAction, AuditEntry, CuratorChange, CuratorName, CuratorRefusal, DataSetRecord, Debit,
    StoreError, StoreRefusal,
};
use tonic::Status;

use super::{ATTEMPTS, CuratorService, Inner, decline, internal, unreadable, wire};
use crate::changes::ChangeError;

/// The purpose of the last debit of a data set that was withdrawn. No question has it.
const WITHDRAWN: &str = "withdrawn";

impl CuratorService {
    /// Takes all that is left of a budget, for good, in one change with an entry in the audit log.
    pub(super) async fn withdraw(
        &self,
        caller: &Caller,
        data_set: CuratorName,
    ) -> Result<DataSet, Status> {
        let experiment = ExperimentId::new(data_set.as_str())
            .map_err(|error| internal("a name can't be noted", error))?;
        for _ in 0..ATTEMPTS {
            let (at, of, place) = (self.now(), data_set.clone(), self.0.lists.take(caller).await?);
            let (record, withdrawn) = self
                .work(place, move |inner| {
                    let record = inner.record(&of)?;
                    let withdrawn = inner.is_withdrawn(&record).map_err(unreadable)?;
                    Ok((record, withdrawn))
                })
                .await?;
            let told = |spent| wire::data_set(DataSetRecord { spent, ..record.clone() });
            if withdrawn {
                return Ok(DataSet { withdrawn, ..told(record.spent) });
            }
            let price = record.budget.saturating_sub(record.spent);
            let (named, purpose) = (caller.to_string(), WITHDRAWN.to_owned());
            let debit = Debit {
                data_set: data_set.clone(),
                at,
                caller: named.clone(),
                purpose,
                price,
                caller_most: None,
            };
            let entry = AuditEntry {
                at,
                caller: named,
                action: AuditAction::WithdrawDataSet,
                experiment: experiment.clone(),
                detail: format!("file {:?}", record.file),
            };
            match self.0.changes.apply(CuratorChange::Withdraw(debit, entry)).await {
                Ok(()) => {
                    tracing::info!(%caller, %data_set, "data set withdrawn");
                    return Ok(DataSet { withdrawn: true, ..told(record.budget) });
                }
                // Another question was paid for meanwhile.
                Err(error) if is_exhausted(&error) => {}
                Err(error) => return Err(decline(&error)),
            }
        }
        Err(Status::unavailable("the data set answers questions all the time; withdraw it later"))
    }
}

fn is_exhausted(error: &ChangeError) -> bool {
    let ChangeError::Store(StoreError::Refused(StoreRefusal::Curator(refusal))) = error else {
        return false;
    };
    matches!(**refusal, CuratorRefusal::Exhausted { .. })
}

impl Inner {
    /// Whether a data set was withdrawn.
    pub(super) fn is_withdrawn(&self, record: &DataSetRecord) -> Result<bool, StoreError> {
        if record.spent < record.budget {
            return Ok(false);
        }
        let last = self.reader.debits((&record.name, None), None, 1)?;
        Ok(last.first().is_some_and(|last| last.debit.purpose == WITHDRAWN))
    }

    /// Refuses what is about a data set that was withdrawn.
    pub(super) fn check_in_use(&self, record: &DataSetRecord) -> Result<(), Status> {
        if !self.is_withdrawn(record).map_err(unreadable)? {
            return Ok(());
        }
        let name = &record.name;
        Err(Status::failed_precondition(format!(
            "the data set {name} was withdrawn, and nothing is answered about it any more"
        )))
    }
}
