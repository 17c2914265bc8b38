//! The client's driver against servers that answer, hang or give wrong answers, and in a process
//! that is killed.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use bandana_client::grpc::{AppKey, Transport};
use bandana_client::{Bandana, Clock, FetchTask, Timestamp};
use bandana_shared::identity::ExperimentId;
use bandana_shared::upload::Upload;
use bandana_shared::wire::v1::{UploadRequest, UploadStatus};
use bandana_tests::driven_app::{Hands, START, app, recorder, serve, uploads_answered};
use bandana_tests::fake_server::{Answer, Recorder};
use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{HandshakeKind, ServerConfig};
use tonic::Code;

/// Timeout of every step.
const PATIENCE: Duration = Duration::from_mins(1);

/// Fetches the policy, with a start and a shutdown.
fn introduce(url: &str, directory: &Path, clock: &Arc<Hands>) -> anyhow::Result<()> {
    let bandana = app(Transport::to(url)?, directory, clock)?.start()?;
    bandana.experiment("driven")?;
    anyhow::ensure!(bandana.shutdown(PATIENCE), "the driver does not end");
    Ok(())
}

/// Names and bytes of all recorded uploads.
fn distinct(recorder: &Recorder) -> anyhow::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut distinct = BTreeMap::new();
    for upload in recorder.uploads() {
        let message = UploadRequest::decode(upload.bytes.clone())?;
        Upload::try_from(&message)?;
        let before = distinct.insert(message.upload_id.to_vec(), upload.bytes.to_vec());
        anyhow::ensure!(before.is_none_or(|b| b == upload.bytes), "a retry has other bytes");
    }
    Ok(distinct)
}

#[test]
fn a_blocking_host_sends_every_report_once_over_answers_that_get_lost() -> anyhow::Result<()> {
    let (recorder, clock, directory) = (recorder()?, Hands::new(), tempfile::tempdir()?);
    introduce(&recorder.url(), directory.path(), &clock)?;
    let bandana = app(Transport::to(&recorder.url())?, directory.path(), &clock)?.start()?;
    for _ in 0..20 {
        bandana.experiment("driven")?.draw().reward(1.0);
    }
    recorder.plan([
        Answer::Error(Code::Unavailable, None),
        Answer::Error(Code::ResourceExhausted, Some(Duration::from_secs(5))),
        Answer::Error(Code::Internal, None),
        Answer::Status(UploadStatus::Paused, "paused"),
        Answer::Status(UploadStatus::UnknownArm, "this one is dropped"),
    ]);
    clock.forward(100);
    assert!(bandana.shutdown(PATIENCE));
    assert_eq!(bandana.status().waiting_reports, 20, "all wait when the server has failed once");
    drop(bandana);
    // Each error ends an exchange, and so does a pause of the only experiment.
    for waiting in [20, 20, 20, 0] {
        clock.forward(10_000);
        introduce(&recorder.url(), directory.path(), &clock)?;
        let bandana = app(Transport::to(&recorder.url())?, directory.path(), &clock)?.start()?;
        assert!(bandana.shutdown(PATIENCE));
        let status = bandana.status();
        assert!(status.waiting_reports <= waiting, "{status:?}");
        assert_eq!(status.open_assignments, 0);
    }
    assert_eq!(distinct(&recorder)?.len(), 20);
    assert_eq!(recorder.uploads().len(), 24, "four were sent twice");
    Ok(())
}

/// A clock that notifies the driver with a delay, so that the disk is faster.
#[derive(Debug)]
struct LateHands(Arc<Hands>);

impl Clock for LateHands {
    fn now(&self) -> Timestamp {
        if std::thread::current().name() == Some("bandana") {
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_millis(5) {
                std::thread::yield_now();
            }
        }
        self.0.now()
    }
}

#[test]
fn the_end_waits_for_what_is_written_while_it_begins() -> anyhow::Result<()> {
    let (recorder, clock, directory) = (recorder()?, Hands::new(), tempfile::tempdir()?);
    introduce(&recorder.url(), directory.path(), &clock)?;
    for round in 0..200 {
        let builder = app(Transport::to(&recorder.url())?, directory.path(), &clock)?;
        let bandana = builder.clock(Arc::new(LateHands(Arc::clone(&clock)))).start()?;
        bandana.experiment("driven")?.draw().reward(1.0);
        clock.forward(100);
        assert!(bandana.shutdown(PATIENCE));
        let status = bandana.status();
        assert_eq!(status.statistics.uploads_accepted, 1, "in round {round}: {status:?}");
    }
    Ok(())
}

/// A clock that panics once in the thread that writes.
#[derive(Debug)]
struct PanicsOnce(Arc<Hands>, AtomicU64);

impl Clock for PanicsOnce {
    fn now(&self) -> Timestamp {
        if std::thread::current().name() == Some("bandana-disk") {
            assert!(self.1.fetch_add(1, Ordering::SeqCst) != 2, "a clock of the app's");
        }
        self.0.now()
    }
}

#[tokio::test]
async fn a_writer_that_is_gone_holds_nothing_up() -> anyhow::Result<()> {
    let (recorder, clock, directory) = (recorder()?, Hands::new(), tempfile::tempdir()?);
    let url = recorder.url();
    let start = |clock: Arc<dyn Clock>| -> anyhow::Result<Bandana> {
        let hands = Hands::new();
        Ok(app(Transport::to(&url)?, directory.path(), &hands)?.clock(clock).start()?)
    };
    let panics = PanicsOnce(Arc::clone(&clock), AtomicU64::new(0));
    let bandana = start(Arc::new(panics))?;
    let experiment = bandana.experiment("driven")?;
    experiment.wait_until_ready(PATIENCE)?;
    for number in 1..=5 {
        experiment.draw().reward(1.0);
        clock.forward(100);
        bandana.wake();
        uploads_answered(&bandana, number)?;
    }
    assert!(matches!(bandana.status().reporting, bandana_client::Reporting::On));
    bandana.opt_out()?;
    assert!(bandana.shutdown(PATIENCE));
    assert!(matches!(bandana.status().reporting, bandana_client::Reporting::OptedOut));
    drop((experiment, bandana));
    let bandana = start(Arc::<Hands>::clone(&clock))?;
    assert!(matches!(bandana.status().reporting, bandana_client::Reporting::OptedOut));
    bandana.opt_in()?;
    assert!(bandana.shutdown(PATIENCE));
    assert!(matches!(bandana.status().reporting, bandana_client::Reporting::ShutDown));
    Ok(())
}

#[test]
fn a_key_that_is_refused_costs_no_report() -> anyhow::Result<()> {
    let (recorder, clock, directory) = (recorder()?, Hands::new(), tempfile::tempdir()?);
    introduce(&recorder.url(), directory.path(), &clock)?;
    let start = || -> anyhow::Result<Bandana> {
        let builder = app(Transport::to(&recorder.url())?, directory.path(), &clock)?;
        Ok(builder.app_key(AppKey::new("bndk_this-app")?).start()?)
    };
    let bandana = start()?;
    for _ in 0..5 {
        bandana.experiment("driven")?.draw().reward(1.0);
    }
    recorder.plan([Answer::Error(Code::Unauthenticated, None)]);
    clock.forward(100);
    assert!(bandana.shutdown(PATIENCE));
    let status = bandana.status();
    // The other calls would be refused too.
    assert_eq!((status.waiting_reports, status.statistics.uploads_postponed), (5, 1));
    drop(bandana);
    // The server accepts the key again.
    clock.forward(10_000);
    let bandana = start()?;
    bandana.experiment("driven")?;
    assert!(bandana.shutdown(PATIENCE));
    assert_eq!(bandana.status().waiting_reports, 0);
    assert_eq!((recorder.uploads().len(), distinct(&recorder)?.len()), (6, 5));
    for upload in recorder.uploads() {
        let shown: Vec<_> = upload.metadata.get_all("bandana-app-key").iter().collect();
        assert_eq!(shown, ["bndk_this-app"]);
    }
    Ok(())
}

#[tokio::test]
async fn an_async_host_runs_the_driver_until_it_shuts_down() -> anyhow::Result<()> {
    let (recorder, clock, directory) = (recorder()?, Hands::new(), tempfile::tempdir()?);
    let url = recorder.url();
    let builder = app(Transport::to(&url)?, directory.path(), &clock)?;
    let (bandana, driver) = builder.driver();
    bandana.experiment("driven")?;
    let work = tokio::spawn(driver.run());
    bandana.begin_shutdown(PATIENCE);
    tokio::time::timeout(PATIENCE, work).await??;

    let (bandana, driver) = {
        drop(bandana);
        app(Transport::to(&url)?, directory.path(), &clock)?.driver()
    };
    let work = tokio::spawn(driver.run());
    bandana.experiment("driven")?.draw().reward(1.0);
    clock.forward(100);
    bandana.wake();
    tokio::time::timeout(PATIENCE, recorder.arrived(1)).await?;
    // Dropping the last handle ends the work.
    drop(bandana);
    tokio::time::timeout(PATIENCE, work).await??;
    assert_eq!(distinct(&recorder)?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn a_server_that_hangs_does_not_hold_up_the_end() -> anyhow::Result<()> {
    let (recorder, clock, directory) = (recorder()?, Hands::new(), tempfile::tempdir()?);
    introduce(&recorder.url(), directory.path(), &clock)?;
    recorder.plan([Answer::Hang]);
    let bandana = app(Transport::to(&recorder.url())?, directory.path(), &clock)?.start()?;
    bandana.experiment("driven")?.draw().reward(1.0);
    clock.forward(100);
    bandana.wake();
    tokio::time::timeout(PATIENCE, recorder.arrived(1)).await?;
    bandana.begin_shutdown(Duration::ZERO);
    assert!(bandana.shutdown(PATIENCE));
    assert_eq!(bandana.status().waiting_reports, 1);
    drop(bandana);
    // The next start sends the same report again.
    clock.forward(100_000);
    introduce(&recorder.url(), directory.path(), &clock)?;
    assert_eq!((recorder.uploads().len(), distinct(&recorder)?.len()), (2, 1));
    Ok(())
}

#[tokio::test]
async fn a_call_that_was_given_up_is_followed_by_a_new_connection() -> anyhow::Result<()> {
    let recorder = recorder()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let mut transport = Transport::to(&format!("http://{}", listener.local_addr()?))?;
    let question = FetchTask::new(ExperimentId::new("driven")?);
    // The network changes: the connection is open, but silent.
    let silent = tokio::select! {
        answer = transport.fetch(&question) => anyhow::bail!("an answer from nobody: {answer:?}"),
        connection = listener.accept() => connection?.0,
    };
    let url = recorder.url();
    let server = url.strip_prefix("http://").context("not in the clear")?.to_owned();
    let forwarding = tokio::spawn(async move {
        let (mut device, _) = listener.accept().await?;
        let mut server = TcpStream::connect(server).await?;
        copy_bidirectional(&mut device, &mut server).await
    });
    let answer = tokio::time::timeout(PATIENCE, transport.fetch(&question)).await??;
    assert_eq!(answer.specification.experiment_id().as_str(), "driven");
    drop((silent, transport));
    forwarding.abort();
    Ok(())
}

/// Connections through a proxy: how many there were, and how many are open.
type Connections = tokio::sync::watch::Receiver<(u32, u32)>;

/// Forwards connections to a server.
async fn proxy(to: &str) -> anyhow::Result<(String, Connections)> {
    let server = to.strip_prefix("http://").context("not in the clear")?.to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let (tell, connections) = tokio::sync::watch::channel((0, 0));
    let tell = Arc::new(tell);
    tokio::spawn(async move {
        while let Ok((mut device, _)) = listener.accept().await {
            let (tell, server) = (Arc::clone(&tell), server.clone());
            tell.send_modify(|(all, open)| (*all, *open) = (*all + 1, *open + 1));
            tokio::spawn(async move {
                if let Ok(mut server) = TcpStream::connect(server).await {
                    copy_bidirectional(&mut device, &mut server).await.ok();
                }
                tell.send_modify(|(_, open)| *open -= 1);
            });
        }
    });
    Ok((url, connections))
}

#[tokio::test]
async fn an_upload_has_a_connection_of_its_own_which_ends_with_it() -> anyhow::Result<()> {
    let (recorder, clock, directory) = (recorder()?, Hands::new(), tempfile::tempdir()?);
    let (url, mut connections) = proxy(&recorder.url()).await?;
    let (bandana, driver) = app(Transport::to(&url)?, directory.path(), &clock)?.driver();
    let experiment = bandana.experiment("driven")?;
    let work = tokio::spawn(driver.run());
    for exchange in 1..=3 {
        // One for each fetch, and for each of the three uploads after the first fetch.
        let all_closed = (exchange + 3 * (exchange - 1), 0);
        let closed = connections.wait_for(|connections| *connections == all_closed);
        tokio::time::timeout(PATIENCE, closed).await.context("one stays open, or is shared")??;
        let uploads = usize::try_from(exchange - 1)? * 3;
        assert_eq!(recorder.uploads().len(), uploads);
        if exchange < 3 {
            // In two hours the server's day is asked for before the reports are sent.
            for _ in 0..3 {
                experiment.draw().reward(1.0);
            }
            clock.forward(7200);
            bandana.wake();
            tokio::time::timeout(PATIENCE, recorder.arrived(uploads + 3)).await?;
        }
    }
    drop((experiment, bandana));
    tokio::time::timeout(PATIENCE, work).await??;
    assert_eq!(connections.borrow().0, 9);
    Ok(())
}

#[tokio::test]
async fn a_changed_network_has_the_call_under_way_made_over_a_new_connection() -> anyhow::Result<()>
{
    let (recorder, clock, directory) = (recorder()?, Hands::new(), tempfile::tempdir()?);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let (bandana, driver) = app(Transport::to(&url)?, directory.path(), &clock)?.driver();
    bandana.experiment("driven")?;
    let work = tokio::spawn(driver.run());
    // Open, and silent.
    let silent = tokio::time::timeout(PATIENCE, listener.accept()).await??.0;
    bandana.wake();
    let (mut device, _) = tokio::time::timeout(PATIENCE, listener.accept()).await??;
    assert_eq!(bandana.status().statistics.fetches_failed, 0, "the server was not to blame");
    let url = recorder.url();
    let mut server = TcpStream::connect(url.strip_prefix("http://").context("TLS")?).await?;
    copy_bidirectional(&mut device, &mut server).await.ok();
    assert_eq!(recorder.questions().len(), 1);
    drop((silent, bandana));
    tokio::time::timeout(PATIENCE, work).await??;
    Ok(())
}

#[test]
fn tls_is_trusted_by_the_given_roots_only() -> anyhow::Result<()> {
    let recorder = Recorder::start_with_tls(Timestamp::from_unix_ms(START * 1000).day())?;
    serve(&recorder, "driven")?;
    let (clock, directory) = (Hands::new(), tempfile::tempdir()?);
    let roots = recorder.certificate().context("a server without certificate")?;
    let asked = |transport: Transport| -> anyhow::Result<bool> {
        let bandana = app(transport, directory.path(), &clock)?.start()?;
        bandana.experiment("driven")?;
        anyhow::ensure!(bandana.shutdown(PATIENCE), "the driver does not end");
        Ok(bandana.experiment("driven")?.draw().assignment().is_some())
    };
    assert!(!asked(Transport::to(&recorder.url())?)?, "the system does not know this root");
    assert!(asked(Transport::with_roots(&recorder.url(), roots.as_bytes())?)?);
    assert!(Transport::with_roots("http://127.0.0.1:1", roots.as_bytes()).is_err());
    assert!(Transport::to("ftp://127.0.0.1:1").is_err());
    Ok(())
}

#[tokio::test]
async fn a_clone_of_a_transport_does_not_share_the_connection_of_an_upload() -> anyhow::Result<()> {
    let (recorder, clock, directory) = (recorder()?, Hands::new(), tempfile::tempdir()?);
    let (url, mut connections) = proxy(&recorder.url()).await?;
    let transport = Transport::to(&url)?;
    let mut other = transport.clone();
    let (bandana, driver) = app(transport, directory.path(), &clock)?.driver();
    let experiment = bandana.experiment("driven")?;
    let work = tokio::spawn(driver.run());
    let closed = connections.wait_for(|connections| *connections == (1, 0));
    tokio::time::timeout(PATIENCE, closed).await??;
    recorder.plan([Answer::Hang]);
    experiment.draw().reward(1.0);
    clock.forward(100);
    bandana.wake();
    tokio::time::timeout(PATIENCE, recorder.arrived(1)).await?;
    let before = connections.borrow().0;
    other.fetch(&FetchTask::new(ExperimentId::new("driven")?)).await?;
    assert_eq!(connections.borrow().0, before + 1, "the fetch went with the upload");
    drop((experiment, bandana));
    tokio::time::timeout(PATIENCE, work).await??;
    Ok(())
}

#[tokio::test]
async fn no_connection_resumes_the_session_of_another() -> anyhow::Result<()> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der());
    let key = key.map_err(|error| anyhow::anyhow!("{error}"))?;
    let mut server = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)?;
    server.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(server));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("https://localhost:{}", listener.local_addr()?.port());
    let mut transport = Transport::with_roots(&url, made.cert.pem().as_bytes())?;
    let question = FetchTask::new(ExperimentId::new("driven")?);
    for _ in 0..3 {
        let heard = async {
            let mut device = acceptor.accept(listener.accept().await?.0).await?;
            // With the first bytes of the device, which has the tickets of the session by now.
            let (mut first, mut written) = ([0; 24], [0; 9]);
            device.read_exact(&mut first).await?;
            // An empty frame of settings, and the end.
            written[3] = 4;
            device.write_all(&written).await?;
            device.shutdown().await?;
            anyhow::Ok(device.get_ref().1.handshake_kind())
        };
        let (answer, kind) = tokio::join!(transport.fetch(&question), heard);
        assert!(answer.is_err());
        assert_eq!(kind?, Some(HandshakeKind::Full));
    }
    Ok(())
}

/// A process. Dropping it kills the process.
struct App(Child);

impl App {
    fn start(directory: &Path, url: &str, second: u64, end: bool) -> anyhow::Result<Self> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_aggregator-under-test"));
        command.arg0("killed-app");
        command.arg(directory).arg(url).arg(second.to_string()).stdout(Stdio::piped());
        if end {
            command.arg("end");
        }
        Ok(Self(command.spawn()?))
    }

    /// Two numbers from each printed line.
    fn lines(&mut self) -> anyhow::Result<impl Iterator<Item = anyhow::Result<(u64, u64)>>> {
        let output = self.0.stdout.take().context("no output")?;
        Ok(BufReader::new(output).lines().map(|line| {
            let line = line?;
            let (one, other) = line.split_once(' ').context("not two numbers")?;
            Ok((one.parse()?, other.parse()?))
        }))
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn killed_again_and_again_no_assignment_is_reported_twice_or_unpaid() -> anyhow::Result<()> {
    let recorder = Recorder::start(Timestamp::from_unix_ms(START * 1000).day())?;
    serve(&recorder, "killed")?;
    let directory = tempfile::tempdir()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut second, mut given) = (START, 0);
    let kills = std::env::var("BANDANA_KILLS").map_or(Ok(25), |kills| kills.parse())?;
    for round in 0..kills {
        let mut app = App::start(directory.path(), &recorder.url(), second, false)?;
        // The pipe of its output stays open, so that the process is killed rather than ends by
        // itself.
        let mut lines = app.lines()?;
        // Killed after a different number of assignments in each round.
        for line in lines.by_ref().take(1 + round * 7 % 40) {
            second = line?.0 + 1;
            given += 1;
        }
        if round % 5 == 4 {
            // Even with a slow disk some uploads have left.
            let more = recorder.arrived(recorder.uploads().len() + 1);
            runtime.block_on(async { tokio::time::timeout(PATIENCE, more).await })?;
        }
    }
    // Later than the time at which any app blocked on its output.
    let mut last = App::start(directory.path(), &recorder.url(), START + 50_000, true)?;
    let (spent, left) = last.lines()?.next().context("the app says nothing")??;
    assert_eq!(left, 0, "all is sent");
    let reported = distinct(&recorder)?.len() as u64;
    assert!(reported * 1_000_000_000 <= spent, "{reported} reports, {spent} nano-nats");
    // A kill loses at most unwritten state, and the test may have missed the last lines of each
    // round.
    assert!(reported > 0 && given > 100, "{reported} reports of {given} assignments and more");
    Ok(())
}

#[tokio::test]
async fn an_opt_out_gives_up_the_call_under_way() -> anyhow::Result<()> {
    let (recorder, clock, directory) = (recorder()?, Hands::new(), tempfile::tempdir()?);
    introduce(&recorder.url(), directory.path(), &clock)?;
    recorder.plan([Answer::Hang]);
    let bandana = app(Transport::to(&recorder.url())?, directory.path(), &clock)?.start()?;
    for _ in 0..3 {
        bandana.experiment("driven")?.draw().reward(1.0);
    }
    clock.forward(100);
    bandana.wake();
    tokio::time::timeout(PATIENCE, recorder.arrived(1)).await?;
    bandana.opt_out()?;
    // Returns at once despite the long timeout: there is nothing to wait for.
    assert!(bandana.shutdown(Duration::MAX));
    assert_eq!(bandana.status().waiting_reports, 0);
    drop(bandana);
    clock.forward(100_000);
    introduce(&recorder.url(), directory.path(), &clock)?;
    assert_eq!(recorder.uploads().len(), 1, "the one that was on its way");
    Ok(())
}
