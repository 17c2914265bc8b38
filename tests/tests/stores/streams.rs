//! Streams of uploads, as gateways send them, to a real server on each store.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, ensure};
use bandana_examples::aggregator_process::AggregatorProcess;
use bandana_shared::identity::Day;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_shared::wire::v1::operator_client::OperatorClient;
use bandana_shared::wire::v1::{GetExperimentRequest, UploadRequest, UploadStatus as S};
use bandana_tests::harness::{self, submit_one, three_arms, upload};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

use super::Case;
use super::places::Place;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

pub(crate) const ALL: &[(&str, Case)] = &[
    ("a_stream_answers_each_upload_and_counts_each_name_once", answers),
    ("who_breaks_a_stream_off_harms_nobody_and_may_send_all_again", broken_off),
    ("a_crash_with_a_stream_open_loses_and_doubles_nothing", crash),
    ("a_stream_whose_answers_are_not_taken_is_read_no_further", not_taken),
];

fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(work)
}

/// A server on a store, and its experiment.
struct Served {
    process: AggregatorProcess,
    device: DeviceClient<Channel>,
    operator: OperatorClient<Channel>,
    experiment: Specification,
    day: Day,
}

impl Served {
    /// Starts a server, and creates the experiment unless it exists.
    async fn start(place: &Place) -> anyhow::Result<Self> {
        let process = match place {
            Place::Embedded(folder) => {
                AggregatorProcess::start(PROGRAM.as_ref(), folder.path()).await?
            }
            Place::Postgres(url) => AggregatorProcess::start_replica(PROGRAM.as_ref(), url).await?,
        };
        let mut device = DeviceClient::connect(process.device_url.clone()).await?;
        let mut operator = OperatorClient::connect(process.operator_url.clone()).await?;
        let question = GetExperimentRequest { experiment_id: "streams".to_owned() };
        if device.get_experiment(question.clone()).await.is_err() {
            harness::create(&mut operator, three_arms("streams")).await?;
        }
        let answer = device.get_experiment(question).await?.into_inner();
        let message = answer.experiment.context("no specification")?;
        let (experiment, day) = (Specification::try_from(&message)?, Day::new(answer.server_day));
        Ok(Self { process, device, operator, experiment, day })
    }

    fn upload(&self, number: u128) -> anyhow::Result<UploadRequest> {
        upload(number, &self.experiment, self.day, &[(0, true)])
    }

    /// Sends an upload, and returns its status.
    async fn told(&mut self, number: u128) -> anyhow::Result<S> {
        submit_one(&mut self.device, &self.experiment, self.day, number).await
    }

    /// The number of counted reports.
    async fn counted(&mut self) -> anyhow::Result<u64> {
        // Replicas learn of their own commits through a request.
        let name = bandana_shared::wire::v1::ExperimentName { experiment_id: "streams".to_owned() };
        self.operator.refresh_policy(name).await?;
        let tallies = harness::tallies(&mut self.operator, &self.experiment).await?;
        Ok(tallies.iter().map(|(reports, _)| reports).sum())
    }
}

/// The number and the status of the next answer.
async fn next(
    answers: &mut Streaming<bandana_shared::wire::v1::UploadResponse>,
) -> anyhow::Result<(u128, S)> {
    let answer = answers.message().await?.context("the stream ended")?;
    Ok((u128::from_be_bytes(answer.upload_id[..].try_into()?), answer.status()))
}

fn answers(place: &Place) -> anyhow::Result<()> {
    block_on(async {
        let mut served = Served::start(place).await?;
        let mut requests = Vec::new();
        let mut expected = Vec::new();
        for number in 0..200_u128 {
            let mut request = served.upload(number)?;
            // An invalid upload does not affect its neighbours.
            let status = match number % 10 {
                3 => {
                    request = served.upload(number - 1)?;
                    S::Duplicate
                }
                5 => {
                    request.digest = vec![9; 16].into();
                    S::UnknownSpecification
                }
                7 => {
                    request =
                        upload(number, &served.experiment, served.day.forward(9), &[(0, true)])?;
                    S::FutureDay
                }
                8 => {
                    request = upload(number, &served.experiment, served.day, &[(3, true)])?;
                    S::UnknownArm
                }
                _ => S::Accepted,
            };
            expected.push((u128::from_be_bytes(request.upload_id[..].try_into()?), status));
            requests.push(request);
        }
        // Two streams with the same uploads at the same time: each name counts in one of them.
        let mut streams = Vec::new();
        for _ in 0..2 {
            let mut device = DeviceClient::connect(served.process.device_url.clone()).await?;
            let requests = requests.clone();
            streams.push(tokio::spawn(async move {
                let mut answers =
                    device.submit_uploads(tokio_stream::iter(requests)).await?.into_inner();
                let mut told = Vec::new();
                while let Some(answer) = answers.message().await? {
                    let number = u128::from_be_bytes(answer.upload_id[..].try_into()?);
                    told.push((number, answer.status()));
                }
                anyhow::Ok(told)
            }));
        }
        let mut accepted = BTreeSet::new();
        for stream in streams {
            let told = stream.await??;
            ensure!(told.len() == expected.len(), "{} answers", told.len());
            for ((number, status), expected) in told.into_iter().zip(&expected) {
                let is_first = status == S::Accepted && accepted.insert(number);
                let is_repeated = status == S::Duplicate && expected.1 == S::Accepted;
                let fits = is_first || is_repeated || status == expected.1;
                ensure!(number == expected.0 && fits, "{number}: {status:?}, not {expected:?}");
                ensure!(status != S::Accepted || is_first, "{number} counted twice");
            }
        }
        ensure!(accepted.len() == 120, "{} accepted", accepted.len());
        ensure!(served.counted().await? == 120);
        served.process.stop().await
    })
}

fn broken_off(place: &Place) -> anyhow::Result<()> {
    block_on(async {
        const SENT: u128 = 300;
        let mut served = Served::start(place).await?;
        let mut told = BTreeSet::new();
        for taken in [0_u128, 1, 50] {
            let requests: Vec<_> =
                (0..SENT).map(|n| served.upload(taken << 64 | n)).collect::<Result<_, _>>()?;
            // A separate connection: another call on it would change the effect of its abort.
            let mut gateway = DeviceClient::connect(served.process.device_url.clone()).await?;
            let endless = tokio_stream::StreamExt::chain(
                tokio_stream::iter(requests),
                tokio_stream::pending(),
            );
            let mut answers = gateway.submit_uploads(endless).await?.into_inner();
            for _ in 0..taken {
                let (number, status) = next(&mut answers).await?;
                ensure!(status == S::Accepted, "{status:?}");
                told.insert(number);
            }
            drop((answers, gateway));
            // A concurrent call is answered.
            ensure!(served.told(taken << 64 | 1 << 63).await? == S::Accepted);
        }
        for number in told {
            ensure!(served.told(number).await? == S::Duplicate, "{number} was forgotten");
        }
        for _ in 0..2 {
            for number in [0_u128, 1, 50].iter().flat_map(|t| (0..SENT).map(move |n| t << 64 | n)) {
                let status = served.told(number).await?;
                ensure!(matches!(status, S::Accepted | S::Duplicate), "{number}: {status:?}");
            }
        }
        let all = 3 * (u64::try_from(SENT)? + 1);
        let counted = served.counted().await?;
        ensure!(counted == all, "{counted}, not {all}");
        served.process.stop().await
    })
}

fn crash(place: &Place) -> anyhow::Result<()> {
    block_on(async {
        let served = Served::start(place).await?;
        let (sender, requests) = mpsc::unbounded_channel();
        let mut gateway = served.device.clone();
        let mut answers =
            gateway.submit_uploads(UnboundedReceiverStream::new(requests)).await?.into_inner();
        let mut told = BTreeSet::new();
        let mut sent = 0_u128;
        while told.len() < 300 {
            for _ in 0..3 {
                sender.send(served.upload(sent)?)?;
                sent += 1;
            }
            let (number, status) = next(&mut answers).await?;
            ensure!(status == S::Accepted, "{status:?}");
            told.insert(number);
        }
        // Killed while two thirds of the uploads are in flight.
        served.process.kill().await?;
        while let Ok((number, status)) = next(&mut answers).await {
            ensure!(status == S::Accepted, "{status:?}");
            told.insert(number);
        }
        let mut served = Served::start(place).await?;
        for number in 0..sent {
            let status = served.told(number).await?;
            let is_new = status == S::Accepted && !told.contains(&number);
            ensure!(is_new || status == S::Duplicate, "{number}: {status:?}");
        }
        let counted = served.counted().await?;
        ensure!(u128::from(counted) == sent, "{counted}, not {sent}");
        served.process.stop().await
    })
}

fn not_taken(place: &Place) -> anyhow::Result<()> {
    block_on(async {
        const UPLOADS: usize = 6_000;
        let mut served = Served::start(place).await?;
        // A caller with a small window for answers.
        let channel = Endpoint::from_shared(served.process.device_url.clone())?
            .initial_stream_window_size(1024)
            .connect()
            .await?;
        let requests: Vec<_> =
            (0..UPLOADS as u128).map(|number| served.upload(number)).collect::<Result<_, _>>()?;
        let pulled = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&pulled);
        let requests = requests.into_iter().inspect(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
        });
        let mut answers = DeviceClient::new(channel)
            .submit_uploads(tokio_stream::iter(requests))
            .await?
            .into_inner();
        // Other callers are served meanwhile.
        for number in 0..200 {
            ensure!(served.told(1 << 100 | number).await? == S::Accepted);
        }
        let read = pulled.load(Ordering::Relaxed);
        ensure!(read < UPLOADS / 2, "{read} uploads were read, and not one of their answers");
        for number in 0..UPLOADS as u128 {
            let told = next(&mut answers).await?;
            ensure!(told == (number, S::Accepted), "{told:?} and not {number}");
        }
        ensure!(answers.message().await?.is_none());
        ensure!(served.counted().await? == UPLOADS as u64 + 200);
        served.process.stop().await
    })
}
