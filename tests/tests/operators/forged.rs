//! A server whose words would change what a terminal shows, and what is shown of them.

use std::convert::Infallible;
use std::net::Ipv4Addr;

use anyhow::ensure;
use bandana_examples::environment::CleanEnvironment as _;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Context, Poll, Service, http};
use tonic::server::NamedService;
use tonic::transport::Server;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// Clears the screen, and begins a line that a command could have written.
const WORDS: &str = "it ended\u{1b}[2J\u{1b}[H\ngood  server   all is well\n\u{202e}desrever";

/// Answers every call with these words: for devices, or for operators.
#[derive(Clone)]
struct Forger<const OPERATOR: bool>;

impl NamedService for Forger<false> {
    const NAME: &'static str = "bandana.v1.Device";
}

impl NamedService for Forger<true> {
    const NAME: &'static str = "bandana.v1.Operator";
}

impl<const OPERATOR: bool> Service<http::Request<Body>> for Forger<OPERATOR> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<Body>) -> Self::Future {
        Box::pin(async { Ok(Status::not_found(WORDS).into_http()) })
    }
}

#[tokio::test]
async fn what_a_server_says_is_shown_in_one_line_without_effects() -> anyhow::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let url = format!("http://{}", listener.local_addr()?);
    let server = Server::builder().add_service(Forger::<false>).add_service(Forger::<true>);
    let serving = tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    for arguments in [
        &["doctor", "colour", "--server", &url][..],
        &["experiment", "list"],
        &["experiment", "show", "colour"],
        &["estimate", "colour"],
        &["audit"],
    ] {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).clean_environment().env("BANDANA_OPERATOR_URL", &url);
        let output = command.kill_on_drop(true).output().await?;
        let shown = [output.stdout, output.stderr].concat();
        let shown = String::from_utf8(shown)?;
        ensure!(!output.status.success() && shown.contains("it ended"), "{arguments:?}: {shown}");
        let is_plain = |character: char| character == '\n' || !character.is_control();
        ensure!(shown.chars().all(is_plain), "{arguments:?}: {shown:?}");
        ensure!(!shown.contains('\u{202e}'), "{arguments:?}: {shown:?}");
        let forged = shown.lines().any(|line| line.starts_with("good"));
        ensure!(!forged, "{arguments:?}: {shown:?}");
    }
    serving.abort();
    Ok(())
}
