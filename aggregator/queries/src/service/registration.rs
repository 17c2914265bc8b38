//! Registration of data sets: every attempt is audited, and refusals reveal little.

use bandana_edge::auth::Caller;
use bandana_edge::explain::explain;
use bandana_shared::identity::ExperimentId;
use bandana_shared::wire::v1::partition_selection::Price;
use bandana_shared::wire::v1::{DataSet, PartitionSelection, RegisterDataSetRequest};
use bandana_store::{
    AuditAction, AuditEntry, CuratorChange, CuratorRefusal, DataSetRecord, Debit, StoreError,
    StoreRefusal, amount,
};
use tonic::Status;

use super::{
    CuratorService, QueryPermit, decline, internal, shortened, uncached, unreadable, wire,
};
use crate::changes::ChangeError;

impl CuratorService {
    pub(super) async fn register(
        &self,
        caller: &Caller,
        request: RegisterDataSetRequest,
    ) -> Result<DataSet, Status> {
        let attempt = attempt(&request);
        let entry = AuditEntry {
            at: self.now(),
            caller: caller.to_string(),
            action: AuditAction::RefuseDataSet,
            experiment: audited_name(&request.name)?,
            detail: String::new(),
        };
        let place = match self.bind_earlier(caller).await {
            Ok(()) => self.0.questions.take(caller).await,
            Err(refusal) => Err(refusal),
        };
        // Goes on without its caller: what was begun is recorded, and a large file is not read for nothing.
        let service = self.clone();
        let attempt = async move {
            let outcome = match place {
                Ok(place) => service.registered(place, request, entry.clone()).await,
                Err(refusal) => Err(refusal),
            };
            match outcome {
                Ok(record) => Ok(wire::data_set(record)),
                Err(refusal) => Err(service.refused(refusal, &attempt, entry).await?),
            }
        };
        let attempt = tokio::spawn(tracing::Instrument::in_current_span(attempt)).await;
        attempt.map_err(|error| internal("the data set could not be registered", error))?
    }

    /// Records a refused attempt, before its refusal is answered.
    async fn refused(
        &self,
        refusal: Status,
        attempt: &str,
        entry: AuditEntry,
    ) -> Result<Status, Status> {
        let words = shortened(refusal.message());
        let detail = format!("{attempt}: {words}");
        let (caller, data_set) = (entry.caller.clone(), entry.experiment.clone());
        tracing::info!(caller, %data_set, refusal = words, "data set refused");
        self.commit(CuratorChange::Refuse(AuditEntry { detail, ..entry })).await?;
        Ok(refusal)
    }

    async fn registered(
        &self,
        place: QueryPermit,
        request: RegisterDataSetRequest,
        entry: AuditEntry,
    ) -> Result<DataSetRecord, Status> {
        let columns = request.columns.join(" ");
        let at = entry.at;
        let (record, cost) =
            self.work(place, move |inner| wire::register(request, at, inner)).await?;
        let measure = match record.measure {
            bandana_mechanisms::queries::price::Measure::Pure => "epsilon",
            bandana_mechanisms::queries::price::Measure::Concentrated => "rho",
        };
        let mut detail = format!(
            "{measure} {}, file {:?}, {} rows, columns {columns}",
            amount(record.budget),
            record.file,
            record.rows
        );
        let debit = cost.map(|(price, purpose)| {
            detail = format!("{detail}, {purpose}");
            let (data_set, caller) = (record.name.clone(), entry.caller.clone());
            Debit { data_set, at, caller, purpose, price, caller_most: None }
        });
        let spent = debit.as_ref().map_or(0, |debit| debit.price);
        let entry = AuditEntry { action: AuditAction::RegisterDataSet, detail, ..entry };
        self.commit(CuratorChange::Register(Box::new(record.clone()), debit, entry)).await?;
        Ok(DataSetRecord { spent, ..record })
    }

    /// Adds content fingerprints to data sets that an earlier version registered, which had none,
    /// oldest first, so that none of them gets a second budget. Files that are gone can't be read; a
    /// new file with the very bytes of one is still refused.
    async fn bind_earlier(&self, caller: &Caller) -> Result<(), Status> {
        let place = self.0.lists.take(caller).await?;
        let earlier = self
            .work(place, |inner| {
                let mut records = inner.reader.data_sets(None).map_err(unreadable)?;
                records.retain(|record| record.content.is_none());
                records.sort_by_key(|record| record.at);
                Ok(records)
            })
            .await?;
        for record in earlier {
            let data_set = record.name.clone();
            let place = self.0.questions.take(caller).await?;
            let codes = self.work(place, move |inner| {
                let key = inner.reader.fingerprint_key().map_err(unreadable)?;
                inner.data_sets_cache.codes(&record, &key).map_err(|error| uncached(&error))
            });
            let Ok((fingerprint, content)) = codes.await else {
                tracing::warn!(%data_set, "the file of a data set is not there any more");
                continue;
            };
            let change = CuratorChange::Bind { data_set, fingerprint, content };
            match self.0.changes.apply(change).await {
                Err(ChangeError::Store(StoreError::Refused(StoreRefusal::Curator(refusal))))
                    if matches!(*refusal, CuratorRefusal::ContentRegistered(_)) =>
                {
                    tracing::warn!(refusal = explain(&*refusal), "two data sets of one content");
                }
                outcome => outcome.map_err(|error| decline(&error))?,
            }
        }
        Ok(())
    }
}

/// A description of an attempted registration.
fn attempt(request: &RegisterDataSetRequest) -> String {
    let RegisterDataSetRequest { name, file, columns, find, .. } = request;
    let columns = shortened(&columns.join(" "));
    let mut text = format!("name {:?}, file {:?}", shortened(name), shortened(file));
    if let Some(PartitionSelection { columns, price, delta }) = find {
        let price = match price {
            Some(Price::Epsilon(epsilon)) => format!("epsilon {epsilon}"),
            Some(Price::Rho(rho)) => format!("rho {rho}"),
            None => "no price".to_owned(),
        };
        let searched = shortened(&columns.join(" "));
        text = format!("{text}, to find names of {searched:?} for {price} at delta {delta:e}");
    }
    format!("{text}, columns {columns:?}")
}

/// The name of a data set for the audit log.
fn audited_name(name: &str) -> Result<ExperimentId, Status> {
    ExperimentId::new(name)
        .or_else(|_| ExperimentId::new("unnamed"))
        .map_err(|error| internal("a name can't be noted", error))
}
