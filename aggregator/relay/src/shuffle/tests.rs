//! The time at which a report came stays hidden from the aggregator.

use std::pin::{Pin, pin};
use std::time::Duration;

use bandana_edge::clock::ManualClock;
use bandana_shared::identity::{CellIndex, Day, Digest, UploadId};
use bandana_shared::shuffling::{BatchSize, Envelope, ShuffledReport};
use futures_util::FutureExt as _;
use tokio::net::TcpListener;

use super::origins::Origin;
use super::*;
use bandana_edge::operator_client::{Connection, TlsSource, TokenSource};

/// A part of it drawn at random is below a minute with a probability of 2e-7.
const YEARS: RandomDelay = RandomDelay(Duration::from_hours(10 * 365 * 24));

/// An aggregator that nobody has called yet.
async fn aggregator() -> (TcpListener, BatchesClient, Arc<dyn Clock>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let connection = Connection::new(&url, TokenSource::default(), TlsSource::default());
    let client = connection.and_then(|connection| connection.batches()).expect("a client");
    (listener, client, Arc::new(ManualClock::at_day(Day::new(20_000))))
}

/// Lets delivery go on. The writer answers in order: once it has answered here, it has answered what
/// delivery asked before.
async fn go_on(mut delivery: Pin<&mut impl Future<Output = ()>>, writer: &ReportWriter) {
    for _ in 0..100 {
        assert!(delivery.as_mut().now_or_never().is_none(), "it has ended");
        writer.waiting_batches().await.expect("an answer");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_first_report_makes_the_aggregator_hear_of_it_later() {
    let (listener, client, clock) = aggregator().await;
    let experiments = Experiments::new(client, YEARS, clock);
    let mut found = pin!(experiments.find(Digest::new([1; 16])));
    for _ in 0..100 {
        assert!(found.as_mut().now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    assert!(listener.accept().now_or_never().is_none(), "it was asked at once");
}

#[tokio::test]
async fn a_batch_is_handed_on_later_than_its_last_report_came() {
    let (listener, client, clock) = aggregator().await;
    let folder = tempfile::tempdir().expect("a folder");
    let limits = ShuffleLimits { replay_window_days: 7, reports_max: 100, share_per_address: 1.0 };
    let started =
        ReportWriter::start(Presence::Optional, folder.path(), limits, Arc::clone(&clock));
    let (writer, _ended) = started.expect("a store");
    let experiments = Experiments::new(client.clone(), YEARS, Arc::clone(&clock));
    let delivery = Delivery::new((writer.clone(), experiments), client, YEARS, clock, 7);
    let mut delivery = pin!(delivery.run());
    go_on(delivery.as_mut(), &writer).await;
    for number in 1..=2 {
        let envelope = Envelope {
            id: UploadId::new([number; 16]),
            day: Day::new(20_000),
            digest: Digest::new([1; 16]),
            cell: CellIndex::new(0).expect("a cell"),
            batch: BatchSize::new(2).expect("a batch"),
            keys: [8; 16],
            report: [number; ShuffledReport::SEALED_BYTES],
        };
        writer.keep(envelope, Origin([number; 8])).await.expect("an answer");
    }
    assert_eq!(writer.batches().await.expect("an answer").len(), 1);
    go_on(delivery.as_mut(), &writer).await;
    assert!(listener.accept().now_or_never().is_none(), "it was called at once");
}
