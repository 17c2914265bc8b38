//! The transport's way to a relay that shuffles: what it sends, over which connection, and what
//! becomes of the answers.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bandana_client::grpc::{AppKey, Transport, run_until};
use bandana_client::{
    Bandana, Budget, Clock as _, Consent, ShuffledTask, Signers, SystemClock, Task, UploadOutcome,
};
use bandana_shared::gateway::GatewayKeys;
use bandana_shared::identity::UnixSeconds;
use bandana_shared::shuffling::Envelope;
use bandana_shared::signing::SigningKey;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1;
use bandana_shared::wire::v1::device_server::{Device, DeviceServer};
use bandana_shared::wire::v1::gateway_server::{Gateway, GatewayServer};
use bandana_shared::wire::v1::shuffler_server::{Shuffler, ShufflerServer};
use bandana_shared::wire::v1::{
    GetExperimentRequest, GetExperimentResponse, GetGatewayKeysRequest, SelectArmRequest,
    SelectArmResponse, SpecificationSignature, SubmitShuffledRequest, UploadRequest,
    UploadResponse, UploadStatus,
};
use tonic::codegen::tokio_stream::Empty;
use tonic::transport::{Server, server::TcpIncoming};
use tonic::{Request, Response, Status, Streaming};

use super::shuffled::{aggregator, believing, relay, shuffled, shuffled_task, terms};
use super::{Failure, STORE, acceptance, at, id};

type Answer = Result<UploadResponse, Status>;

/// Calls that arrived, and how they are answered.
#[derive(Default)]
struct Calls {
    /// The answer about every shuffled report; `None`: it is accepted.
    answer: Option<Answer>,
    /// Sealed envelopes, each with the other end of its connection.
    sealed: Vec<(Option<SocketAddr>, Vec<u8>)>,
    /// Names of metadata that came with them.
    metadata: BTreeSet<String>,
    asked_for_keys: u32,
    /// Calls of the device service.
    direct_uploads: u32,
}

/// A relay, and at the same address an aggregator that it can be taken for.
#[derive(Clone)]
struct Fake {
    calls: Arc<Mutex<Calls>>,
    keys: GatewayKeys,
    signature: Vec<SpecificationSignature>,
    specification: Arc<Specification>,
}

impl Fake {
    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[tonic::async_trait]
impl Gateway for Fake {
    async fn get_gateway_keys(
        &self,
        _: Request<GetGatewayKeysRequest>,
    ) -> Result<Response<v1::GatewayKeys>, Status> {
        self.calls().asked_for_keys += 1;
        let key_configurations = self.keys.configurations().to_vec().into();
        let signatures = self.signature.clone();
        Ok(Response::new(v1::GatewayKeys { key_configurations, signatures, view: None }))
    }
}

#[tonic::async_trait]
impl Shuffler for Fake {
    async fn submit_shuffled(
        &self,
        request: Request<SubmitShuffledRequest>,
    ) -> Result<Response<UploadResponse>, Status> {
        let mut calls = self.calls();
        let names = request.metadata().keys();
        let names = names.map(|name| format!("{name:?}"));
        calls.metadata.extend(names);
        calls.sealed.push((request.remote_addr(), request.into_inner().envelope.to_vec()));
        let accepted =
            || Ok(UploadResponse { status: UploadStatus::Accepted.into(), ..Default::default() });
        calls.answer.clone().unwrap_or_else(accepted).map(Response::new)
    }
}

#[tonic::async_trait]
impl Device for Fake {
    type SubmitUploadsStream = Empty<Result<UploadResponse, Status>>;

    async fn get_experiment(
        &self,
        _: Request<GetExperimentRequest>,
    ) -> Result<Response<GetExperimentResponse>, Status> {
        let arms = self.specification.arms().len();
        let mut weights = vec![0; arms];
        weights[0] = 1 << 32;
        Ok(Response::new(GetExperimentResponse {
            experiment: Some((&*self.specification).into()),
            policy: Some(v1::Policy { version: 1, weights, time_to_live_seconds: 60 }),
            server_day: SystemClock.now().day().get(),
            store_id: STORE.as_bytes().to_vec().into(),
            view: None,
        }))
    }

    async fn select_arm(
        &self,
        _: Request<SelectArmRequest>,
    ) -> Result<Response<SelectArmResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn submit_upload(
        &self,
        _: Request<UploadRequest>,
    ) -> Result<Response<UploadResponse>, Status> {
        self.calls().direct_uploads += 1;
        Err(Status::unimplemented(""))
    }

    async fn submit_uploads(
        &self,
        _: Request<Streaming<UploadRequest>>,
    ) -> Result<Response<Self::SubmitUploadsStream>, Status> {
        self.calls().direct_uploads += 1;
        Err(Status::unimplemented(""))
    }
}

fn operator() -> SigningKey {
    SigningKey::from_secret(&[1; 32])
}

/// Runs a test beside a relay to a gateway with these keys, which the operator has signed.
fn with_relay(
    keys: GatewayKeys,
    test: impl AsyncFnOnce(Fake, Transport) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let expires = UnixSeconds::new(SystemClock.now().unix_ms() / 1000).after_days(30);
        let signature = vec![(&operator().sign(&keys, expires)).into()];
        let (calls, specification) = (Arc::default(), Arc::new(shuffled(1.0)?));
        let fake = Fake { calls, keys, signature, specification };
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse()?)?;
        let transport = Transport::to(&format!("http://{}", incoming.local_addr()?))?;
        let server = Server::builder()
            .add_service(GatewayServer::new(fake.clone()))
            .add_service(ShufflerServer::new(fake.clone()))
            .add_service(DeviceServer::new(fake.clone()))
            .serve_with_incoming(incoming);
        tokio::spawn(server);
        test(fake, transport).await
    })
}

fn some_task() -> Result<ShuffledTask, Failure> {
    let mut client = believing(&shuffled(1.0)?, Budget::UNLIMITED)?;
    client.draw(&id()?, at(0))?;
    shuffled_task(client.next_task(at(1))?)
}

fn signed(transport: Transport) -> Transport {
    transport.through_relay(Signers::key(operator().public_key()))
}

#[test]
fn each_report_has_a_connection_of_its_own_and_nothing_goes_with_it() -> Result<(), Failure> {
    with_relay(aggregator()?.1, async |fake, transport| {
        let key = AppKey::new("bndk_AbM1pBHC0jRT1SXPrVgFzWAM5dqMKJkdPDo3ueZ8oA0")?;
        let mut transport = signed(transport).with_app_key(key);
        let task = some_task()?;
        for _ in 0..3 {
            assert_eq!(transport.upload_shuffled(&task).await, UploadOutcome::Accepted);
        }
        let calls = fake.calls();
        let (relay, aggregator) = (relay()?, aggregator()?);
        for (_, sealed) in &calls.sealed {
            let envelope = relay.open(sealed).as_deref().and_then(Envelope::from_bytes);
            let envelope = envelope.ok_or("it can't be opened")?;
            assert_eq!(envelope.id, task.id());
            assert!(aggregator.open(&envelope.report).is_some());
        }
        let ends: BTreeSet<_> = calls.sealed.iter().map(|(end, _)| *end).collect();
        let different: BTreeSet<_> = calls.sealed.iter().map(|(_, sealed)| sealed).collect();
        assert_eq!((ends.len(), different.len()), (3, 3));
        assert!(
            !calls.metadata.iter().any(|name| name.contains("app-key")),
            "{:?}",
            calls.metadata
        );
        assert_eq!((calls.asked_for_keys, calls.direct_uploads), (1, 0));
        Ok(())
    })
}

#[test]
fn what_the_relay_says_is_about_the_report_and_a_slip_of_its_operator_drops_none()
-> Result<(), Failure> {
    with_relay(aggregator()?.1, async |fake, transport| {
        let mut transport = signed(transport);
        let task = some_task()?;
        let said = |status: UploadStatus| {
            let store_id = STORE.as_bytes().to_vec().into();
            Ok(UploadResponse { status: status.into(), store_id, ..Default::default() })
        };
        let refused = UploadOutcome::Refused { message: String::new() };
        let hour = UploadOutcome::Retry { retry_after: Some(Duration::from_hours(1)) };
        let unanswered = UploadOutcome::Unanswered { retry_after: None };
        let mut busy = Status::resource_exhausted("");
        busy.metadata_mut().insert("grpc-retry-pushback-ms", 700.into());
        let pause = Some(Duration::from_millis(700));
        let unknown =
            UploadOutcome::UnknownSpecification { store: Some(STORE), message: String::new() };
        let minute = UploadOutcome::Retry { retry_after: Some(Duration::from_mins(1)) };
        for (answer, expected) in [
            (said(UploadStatus::Accepted), UploadOutcome::Accepted),
            (said(UploadStatus::Duplicate), UploadOutcome::Duplicate),
            (said(UploadStatus::Paused), minute),
            (said(UploadStatus::Stopped), refused.clone()),
            (said(UploadStatus::Expired), refused),
            (said(UploadStatus::UnknownSpecification), unknown),
            // Another key than the app believes, or a relay that does not shuffle.
            (Err(Status::invalid_argument("")), hour.clone()),
            (Err(Status::unimplemented("")), hour),
            (Err(Status::unavailable("")), unanswered.clone()),
            (Err(Status::unauthenticated("")), unanswered),
            // It is full: other calls are not for its store.
            (Err(busy), UploadOutcome::Retry { retry_after: pause }),
        ] {
            fake.calls().answer = Some(answer);
            assert_eq!(transport.upload_shuffled(&task).await, expected);
        }
        Ok(())
    })
}

#[test]
fn keys_that_the_relay_refuses_are_asked_for_again() -> Result<(), Failure> {
    with_relay(aggregator()?.1, async |fake, transport| {
        let mut transport = signed(transport);
        let task = some_task()?;
        fake.calls().answer = Some(Err(Status::invalid_argument("")));
        transport.upload_shuffled(&task).await;
        fake.calls().answer = None;
        assert_eq!(transport.upload_shuffled(&task).await, UploadOutcome::Accepted);
        assert_eq!(fake.calls().asked_for_keys, 2);
        Ok(())
    })
}

#[test]
fn nothing_is_sealed_for_keys_that_are_not_the_aggregators() -> Result<(), Failure> {
    let unanswered = UploadOutcome::Unanswered { retry_after: None };
    let task = some_task()?;
    // Somebody else has signed them.
    with_relay(aggregator()?.1, async |fake, transport| {
        let other = SigningKey::from_secret(&[2; 32]).public_key();
        let mut transport = transport.through_relay(Signers::key(other));
        assert_eq!(transport.upload_shuffled(&task).await, unanswered);
        let calls = fake.calls();
        assert_eq!((calls.sealed.len(), calls.asked_for_keys), (0, 1));
        Ok(())
    })?;
    // The relay names its own, and the app wants no signature.
    with_relay(relay()?.1, async |fake, transport| {
        let mut transport = transport.through_relay_unsigned();
        let hour = UploadOutcome::Retry { retry_after: Some(Duration::from_hours(1)) };
        assert_eq!(transport.upload_shuffled(&task).await, hour);
        let calls = fake.calls();
        assert_eq!((calls.sealed.len(), calls.asked_for_keys), (0, 1));
        Ok(())
    })
}

#[test]
fn a_transport_to_the_aggregator_itself_sends_no_shuffled_report() -> Result<(), Failure> {
    with_relay(aggregator()?.1, async |fake, mut transport| {
        assert_eq!(transport.upload_shuffled(&some_task()?).await, UploadOutcome::NoRelay);
        let calls = fake.calls();
        assert_eq!((calls.sealed.len(), calls.asked_for_keys, calls.direct_uploads), (0, 0, 0));
        Ok(())
    })
}

#[test]
fn tasks_are_carried_out_until_none_is_left() -> Result<(), Failure> {
    with_relay(aggregator()?.1, async |fake, transport| {
        let mut transport = signed(transport);
        let mut client = believing(&shuffled(1.0)?, Budget::UNLIMITED)?;
        for _ in 0..5 {
            client.draw(&id()?, at(0))?;
        }
        let client = Mutex::new(client);
        let clock = || at(1);
        run_until(&client, &mut transport, &clock, at(20)).await?;
        assert_eq!(fake.calls().sealed.len(), 5);
        let client = client.into_inner()?;
        assert_eq!((client.waiting_reports(), client.statistics().uploads_accepted), (0, 5));
        Ok(())
    })
}

/// The driver of an app that believes a relay, and whose transport leads to the aggregator.
#[test]
fn the_status_tells_of_reports_that_the_transport_can_not_send() -> Result<(), Failure> {
    with_relay(aggregator()?.1, async |fake, transport| {
        let acceptance = acceptance(&shuffled(1.0)?).shuffled(terms(100.0)?);
        let (bandana, driver) = Bandana::builder()
            .transport(transport)
            .in_memory()
            .accept(acceptance)
            .budget(Budget::UNLIMITED)
            .consent(Consent::Given)
            .driver();
        let experiment = bandana.experiment(id()?.as_str())?;
        let work = tokio::spawn(driver.run());
        let until = async |is_so: &dyn Fn() -> bool| {
            let is_so = async {
                while !is_so() {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(Duration::from_mins(1), is_so).await
        };
        until(&|| experiment.choose().assignment().is_some()).await?;
        bandana.wake();
        until(&|| bandana.status().reports_without_relay > 0).await?;
        let status = bandana.status();
        assert_eq!(status.reports_without_relay, status.waiting_reports);
        let sealed = fake.calls().sealed.len();
        let direct = fake.calls().direct_uploads;
        assert_eq!((sealed, direct), (0, 0));
        bandana.begin_shutdown(Duration::ZERO);
        Ok(work.await?)
    })
}

#[test]
fn a_host_seals_what_it_sends() -> Result<(), Failure> {
    let acceptance = acceptance(&shuffled(1.0)?).shuffled(terms(100.0)?);
    let (bandana, mut tasks) = Bandana::builder()
        .host_transport()
        .in_memory()
        .accept(acceptance)
        .budget(Budget::UNLIMITED)
        .consent(Consent::Given)
        .build();
    let experiment = bandana.experiment(id()?.as_str())?;
    let mut sent = 0;
    for _ in 0..4 {
        match tasks.next_task()? {
            Task::Fetch(task) => {
                let day = SystemClock.now().day();
                let answer = super::answer(shuffled(1.0)?, 10)?;
                tasks.on_fetched(&task, bandana_client::Fetched { day, ..answer })?;
                drop(experiment.choose());
            }
            Task::Shuffled(task) => {
                let request = task.seal(&aggregator()?.1)?;
                assert_eq!(request.envelope.len(), Envelope::SEALED_BYTES);
                tasks.on_upload_result(task.id(), &UploadOutcome::Accepted)?;
                sent += 1;
            }
            Task::Wait(_) | Task::Done => break,
            Task::Upload(task) => return Err(format!("sent directly: {task:?}").into()),
        }
    }
    assert_eq!((sent, bandana.status().statistics.uploads_accepted), (1, 1));
    Ok(())
}
