//! The service next to a writer that ends.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use bandana_edge::clock::SystemClock;
use bandana_edge::status::GOING_DOWN;
use bandana_shared::wire::v1::{ask_request, register_data_set_request};
use bandana_store::{EmbeddedSettings, EmbeddedStore, Store as _};

use super::*;
use crate::changes::ChangeError;

/// A writer that can end between a change and its acknowledgement.
#[derive(Debug)]
struct TestWriter {
    store: Mutex<EmbeddedStore>,
    has_ended: AtomicBool,
}

#[tonic::async_trait]
impl Changes for TestWriter {
    async fn apply(&self, change: CuratorChange) -> Result<(), ChangeError> {
        self.store.lock().unwrap().apply_query_change(&change)?;
        if self.has_ended.load(Ordering::SeqCst) { Err(ChangeError::Ended) } else { Ok(()) }
    }
}

fn service(folder: &Path) -> (CuratorService, Arc<TestWriter>) {
    let settings = EmbeddedSettings { replay_window_days: 7, ids_max: 10 };
    let store = EmbeddedStore::open(&folder.join("store"), settings).unwrap();
    let writer = Arc::new(TestWriter { store: Mutex::new(store), has_ended: false.into() });
    let reader = StoreReader::new(&folder.join("store"));
    let settings = DataSetSettings { directory: Some(folder.to_owned()), analyst_percent: 100 };
    let changes = Arc::clone(&writer);
    (CuratorService::new(changes, reader, Arc::new(SystemClock::new()), settings), writer)
}

fn question() -> Request<AskRequest> {
    let counts = v1::Counts { predicates: vec!["age=20".to_owned()] };
    Request::new(AskRequest {
        data_set: "people".to_owned(),
        price: Some(ask_request::Price::Epsilon(0.25)),
        question: Some(ask_request::Question::Counts(counts)),
        question_id: vec![7; 16].into(),
        ..AskRequest::default()
    })
}

#[tokio::test]
async fn an_answer_whose_debit_is_not_acknowledged_is_paid_for_once_and_told_later() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("people.csv"), "age\n20\n30\n20\n").unwrap();
    let (service, writer) = service(folder.path());
    let registration = RegisterDataSetRequest {
        name: "people".to_owned(),
        file: "people.csv".to_owned(),
        columns: vec!["age:18..99".to_owned()],
        budget: Some(register_data_set_request::Budget::Epsilon(1.0)),
        find: None,
    };
    service.register_data_set(Request::new(registration)).await.unwrap();

    writer.has_ended.store(true, Ordering::SeqCst);
    let refused = service.ask(question()).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (tonic::Code::Unavailable, GOING_DOWN));

    writer.has_ended.store(false, Ordering::SeqCst);
    let answer = service.ask(question()).await.unwrap().into_inner();
    assert!(answer.kept, "{answer:?}");
    let again = service.ask(question()).await.unwrap().into_inner();
    assert_eq!(answer, again);
    let list = Request::new(ListDataSetsRequest::default());
    let listed = service.list_data_sets(list).await.unwrap().into_inner();
    assert_eq!(listed.data_sets[0].spent_nanos, 250_000_000);
}
