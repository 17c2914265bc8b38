//! Traces, as received by an OpenTelemetry collector.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};

use anyhow::Context as _;
use bandana_shared::identity::Day;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_shared::wire::v1::operator_client::OperatorClient;
use bandana_shared::wire::v1::{
    CreateExperimentRequest, GetExperimentRequest, Learner, ListExperimentsRequest,
};
use bandana_tests::harness::{three_arms, upload};
use bandana_tests::watched_server::WatchedServer;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// An address that occurs only as the peer of the server's connections.
const PEER: Ipv4Addr = Ipv4Addr::new(127, 0, 83, 31);

struct Collector(UnboundedSender<ExportTraceServiceRequest>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.0.send(request.into_inner()).map_err(|_| Status::cancelled("nobody listens"))?;
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

async fn channel(address: &str) -> anyhow::Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?;
    Ok(endpoint.local_address(Some(IpAddr::V4(PEER))).connect().await?)
}

/// A request that belongs to a trace with the id `1111...`.
fn traced<T>(message: T) -> anyhow::Result<Request<T>> {
    let mut request = Request::new(message);
    let parent = format!("00-{}-{}-01", "11".repeat(16), "22".repeat(8));
    request.metadata_mut().insert("traceparent", parent.parse()?);
    Ok(request)
}

#[tokio::test]
async fn calls_and_commits_are_traced_without_addresses() -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let endpoint = format!("http://{}", listener.local_addr()?);
    let (sender, mut exported) = unbounded_channel();
    let collector = Server::builder().add_service(TraceServiceServer::new(Collector(sender)));
    let collecting = tokio::spawn(collector.serve_with_incoming(TcpListenerStream::new(listener)));

    let folder = tempfile::tempdir()?;
    let arguments = ["--otlp-endpoint", &endpoint];
    let server = WatchedServer::start(PROGRAM, folder.path(), &arguments).await?;
    let mut operator = OperatorClient::new(channel(&server.operator).await?);
    let create = CreateExperimentRequest {
        specification: Some(three_arms("traced")),
        learner: Learner::LdpTs.into(),
        ..Default::default()
    };
    let created = operator.create_experiment(create).await?.into_inner();
    let specification = Specification::try_from(&created.specification.context("an experiment")?)?;
    operator.list_experiments(traced(ListExperimentsRequest::default())?).await?;
    let mut device = DeviceClient::new(channel(&server.device).await?);
    let question = GetExperimentRequest { experiment_id: "traced".to_owned() };
    let day = device.get_experiment(traced(question)?).await?.into_inner().server_day;
    device.submit_upload(upload(1, &specification, Day::new(day), &[(0, true)])?).await?;
    drop((operator, device));
    // Shutdown sends the remaining traces.
    server.stop().await?;
    collecting.abort();

    let mut spans: Vec<Span> = Vec::new();
    let mut said = String::new();
    while let Some(request) = exported.recv().await {
        write!(said, "{request:?}")?;
        let scopes = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
        spans.extend(scopes.flat_map(|scope| scope.spans));
    }
    let named = |name: &str| {
        let found = spans.iter().find(|span| span.name == name);
        found.with_context(|| format!("{name} is not in {spans:#?}"))
    };
    let listed = named("bandana.v1.Operator/ListExperiments")?;
    assert_eq!((&*listed.trace_id, &*listed.parent_span_id), (&[0x11; 16][..], &[0x22; 8][..]));
    let asked = named("bandana.v1.Device/GetExperiment")?;
    assert!(asked.trace_id != [0x11; 16] && asked.parent_span_id.is_empty(), "{asked:?}");
    named("bandana.v1.Device/SubmitUpload")?;
    named("commit")?;
    assert!(!said.contains(&PEER.to_string()), "{said}");
    Ok(())
}
