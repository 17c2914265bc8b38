//! Calls of one kind, with a number of them under way, or at a rate.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_shared::wire::v1::{SelectArmRequest, UploadRequest, UploadResponse, UploadStatus};
use futures_util::stream;
use hyper::Uri;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::connect::Connect;
use crate::load::{Latencies, Make};

/// Time by which a timer of the runtime may be late.
const GRAIN: Duration = Duration::from_millis(1);

/// A connection, and the call that is made on it again and again.
#[derive(Clone)]
pub(in crate::load) struct Caller {
    call: Call,
    numbers: Arc<AtomicU64>,
}

#[derive(Clone)]
enum Call {
    Health(HealthClient<Channel>),
    SelectArm(DeviceClient<Channel>, SelectArmRequest),
    Upload(DeviceClient<Channel>, Arc<Make>),
    Stream(mpsc::Sender<UploadRequest>, Arc<Mutex<Waiting>>, Arc<Make>),
    Connect(Connect, Arc<Make>),
}

/// Who waits for the answers of a stream, in their order.
type Waiting = VecDeque<oneshot::Sender<UploadResponse>>;

impl Caller {
    fn new(call: Call) -> Self {
        Self { call, numbers: Arc::default() }
    }

    pub(super) fn health(channel: Channel) -> Self {
        Self::new(Call::Health(HealthClient::new(channel)))
    }

    pub(super) fn select_arm(channel: Channel, experiment_id: String) -> Self {
        let request = SelectArmRequest { experiment_id, ..Default::default() };
        Self::new(Call::SelectArm(DeviceClient::new(channel), request))
    }

    pub(in crate::load) fn upload(device: DeviceClient<Channel>, make: Box<Make>) -> Self {
        Self::new(Call::Upload(device, make.into()))
    }

    pub(super) fn connect(url: &Uri, make: Box<Make>) -> anyhow::Result<Self> {
        Ok(Self::new(Call::Connect(Connect::to(url)?, make.into())))
    }

    /// Opens a stream, on which answers come in the order of the uploads.
    pub(super) async fn stream(channel: Channel, make: Box<Make>) -> anyhow::Result<Self> {
        let (sender, receiver) = mpsc::channel(1024);
        let requests = stream::unfold(receiver, async |mut receiver| {
            let upload = receiver.recv().await?;
            Some((upload, receiver))
        });
        let answers = DeviceClient::new(channel).submit_uploads(requests).await?;
        let mut answers = answers.into_inner();
        let waiting = Arc::<Mutex<Waiting>>::default();
        let waits = Arc::clone(&waiting);
        tokio::spawn(async move {
            while let Ok(Some(answer)) = answers.message().await {
                let first = lock(&waits).pop_front();
                first.and_then(|waiter| waiter.send(answer).err());
            }
            // Whoever still waits learns that the stream is over.
            lock(&waits).clear();
        });
        Ok(Self::new(Call::Stream(sender, waiting, make.into())))
    }

    async fn call(&mut self) -> anyhow::Result<()> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let answer = match &mut self.call {
            Call::Health(health) => {
                health.check(HealthCheckRequest::default()).await?;
                return Ok(());
            }
            Call::SelectArm(device, request) => {
                device.select_arm(request.clone()).await?;
                return Ok(());
            }
            Call::Connect(connect, make) => return connect.upload(make(number)?).await,
            Call::Upload(device, make) => device.submit_upload(make(number)?).await?.into_inner(),
            Call::Stream(sender, waiting, make) => {
                let upload = make(number)?;
                let place = sender.reserve().await.context("the stream is over")?;
                let (told, answer) = oneshot::channel();
                {
                    // In the order of those who wait.
                    let mut waiting = lock(waiting);
                    waiting.push_back(told);
                    place.send(upload);
                }
                answer.await.context("the stream has ended")?
            }
        };
        ensure!(answer.status() == UploadStatus::Accepted, "{answer:?}");
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls that were answered, and how long each took.
#[derive(Clone, Debug)]
pub struct Measured {
    pub(super) calls: u64,
    pub(super) time: Duration,
    pub(super) processor_time: Duration,
    pub(super) latencies: Latencies,
}

impl Measured {
    fn new(latencies: Latencies, time: Duration) -> Self {
        Self { calls: latencies.len(), time, processor_time: Duration::ZERO, latencies }
    }

    pub(super) fn with_processor_time(self, processor_time: Duration) -> Self {
        Self { processor_time, ..self }
    }

    /// Calls answered in a second.
    pub fn calls_per_second(&self) -> f64 {
        self.calls as f64 / self.time.as_secs_f64().max(1e-9)
    }

    /// Calls answered in a second of the server's processor time.
    pub fn calls_per_processor_second(&self) -> f64 {
        self.calls as f64 / self.processor_time.as_secs_f64().max(1e-9)
    }

    /// Calls that were answered.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// The longest latency, in milliseconds.
    pub fn longest_ms(&self) -> f64 {
        self.latencies.max() as f64 / 1e3
    }

    /// A quantile of the latencies, in milliseconds.
    pub fn quantile_ms(&self, share: f64) -> f64 {
        self.latencies.value_at_quantile(share) as f64 / 1e3
    }
}

/// Has so many calls under way for this time.
pub(in crate::load) async fn in_flight(
    callers: Vec<Caller>,
    count: usize,
    time: Duration,
) -> anyhow::Result<Measured> {
    let start = Instant::now();
    let end = start + time;
    let mut workers: JoinSet<anyhow::Result<Latencies>> = JoinSet::new();
    for mut caller in callers.iter().cycle().take(count).cloned() {
        workers.spawn(async move {
            let mut latencies = Latencies::new(3)?;
            loop {
                let begin = Instant::now();
                if begin >= end {
                    return Ok(latencies);
                }
                caller.call().await?;
                latencies.record(u64::try_from(begin.elapsed().as_micros())?)?;
            }
        });
    }
    let mut latencies = Latencies::new(3)?;
    while let Some(worker) = workers.join_next().await {
        latencies.add(worker??)?;
    }
    Ok(Measured::new(latencies, start.elapsed()))
}

/// Makes calls at a rate, whether or not others are answered. A latency counts from the time at which the
/// call was to be made, so one that had to wait for another is not left out.
///
/// It keeps its thread busy. In a runtime of one thread, where no call waits for another thread, it offers
/// the most.
pub(in crate::load) async fn at_rate(
    callers: Vec<Caller>,
    rate: f64,
    time: Duration,
) -> anyhow::Result<Measured> {
    ensure!(rate > 0.0 && rate.is_finite(), "a rate is a number above 0; got {rate}");
    let (told, mut answered) = mpsc::unbounded_channel::<anyhow::Result<u64>>();
    let mut latencies = Latencies::new(3)?;
    let start = Instant::now();
    for (number, caller) in callers.iter().cycle().enumerate() {
        let due = start + Duration::from_secs_f64(number as f64 / rate);
        if due >= start + time {
            break;
        }
        wait_until(due).await;
        let (mut caller, told) = (caller.clone(), told.clone());
        tokio::spawn(async move {
            let outcome = caller.call().await;
            let took = due.elapsed().as_micros();
            told.send(outcome.and_then(|()| Ok(u64::try_from(took)?))).ok();
        });
        while let Ok(took) = answered.try_recv() {
            latencies.record(took?)?;
        }
    }
    drop(told);
    while let Some(took) = answered.recv().await {
        latencies.record(took?)?;
    }
    Ok(Measured::new(latencies, start.elapsed()))
}

/// Waits until a time, which timers of the runtime meet to a millisecond only.
async fn wait_until(due: Instant) {
    let early = due.saturating_duration_since(Instant::now());
    if early > 2 * GRAIN {
        tokio::time::sleep(early.saturating_sub(GRAIN)).await;
    }
    while Instant::now() < due {
        tokio::task::yield_now().await;
    }
}
