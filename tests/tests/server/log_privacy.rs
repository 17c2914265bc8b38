//! Secrets of the log and of answers. The log never contains a caller's address, key, token or
//! report, even with all logging of the server and its libraries enabled. No answer reveals files,
//! the database or the code.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::{Context as _, ensure};
use bandana_examples::environment::CleanEnvironment as _;
use bandana_shared::identity::Day;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::device_client::DeviceClient;
use bandana_shared::wire::v1::operator_client::OperatorClient;
use bandana_shared::wire::v1::{
    AddArmRequest, CreateExperimentRequest, ExperimentName, GetExperimentRequest, Learner,
    ListExperimentsRequest, RetireArmRequest, SelectArmRequest, UploadRequest,
};
use bandana_tests::authority::Authority;
use bandana_tests::harness::{three_arms, upload};
use bandana_tests::raw_http2::{END_HEADERS, Kind, PREFACE, claiming, frame, headers};
use bandana_tests::watched_server::WatchedServer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::process::Command;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Request, Status};

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

/// The callers' address, which is used for nothing else: all of 127.0.0.0/8 is this host.
const CALLER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 83, 97, 101));

/// Words that reveal internals.
const INSIDE: [&str; 16] = [
    "sqlite",
    "SELECT",
    "INSERT",
    "UPDATE ",
    "table",
    "column",
    "database",
    "upload_group",
    ".rs",
    "src/",
    "/tmp",
    "/home",
    "/root",
    "/var",
    "panicked",
    "thread '",
];

/// The name of an upload, easy to find in hexadecimal, decimal or as bytes.
const UPLOAD: u128 = 0x5ca1_ab1e_5ca1_ab1e_5ca1_ab1e_5ca1_ab1e;

async fn secret(folder: &Path, command: &str) -> anyhow::Result<String> {
    let file = folder.join(command);
    let mut program = Command::new(PROGRAM);
    program.args([command, "new", "--name", "anna", "--file"]).arg(file).clean_environment();
    if command == "token" {
        program.args(["--role", "administrator"]);
    }
    let output = program.output().await?;
    ensure!(output.status.success(), "{output:?}");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn with<T>(message: T, name: &'static str, value: &str) -> anyhow::Result<Request<T>> {
    let mut request = Request::new(message);
    request.metadata_mut().insert(name, value.parse()?);
    Ok(request)
}

/// All responses to callers.
#[derive(Default)]
struct Answers(Vec<String>);

impl Answers {
    fn hear<T: std::fmt::Debug>(&mut self, answer: Result<tonic::Response<T>, Status>) {
        self.0.push(match answer {
            Ok(answer) => format!("{answer:?}"),
            Err(status) => format!("{:?} {:?}", status.message(), status.metadata()),
        });
    }

    fn check(&self, data_dir: &Path) -> anyhow::Result<()> {
        let data_dir = data_dir.display().to_string();
        for answer in &self.0 {
            let found = INSIDE
                .iter()
                .copied()
                .chain([&*data_dir])
                .find(|part| answer.to_lowercase().contains(&part.to_lowercase()));
            ensure!(found.is_none(), "{found:?} is in the answer {answer}");
        }
        Ok(())
    }
}

async fn clear(address: &str) -> anyhow::Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?;
    Ok(endpoint.local_address(Some(CALLER)).connect().await?)
}

async fn secure(address: &str, authority: &Authority) -> anyhow::Result<Channel> {
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&authority.pem));
    let endpoint = Endpoint::from_shared(format!("https://{address}"))?.tls_config(tls)?;
    Ok(endpoint.local_address(Some(CALLER)).connect().await?)
}

/// Sends these bytes, and reads until the peer closes the connection or has sent enough.
async fn say(address: &str, bytes: &[u8]) -> anyhow::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(CALLER, 0))?;
    let mut stream = socket.connect(address.parse()?).await?;
    stream.write_all(bytes).await.ok();
    stream.shutdown().await.ok();
    stream.read_to_end(&mut Vec::new()).await.ok();
    Ok(())
}

/// Operators' calls, valid and invalid.
async fn operate(
    operator: &mut OperatorClient<Channel>,
    token: &str,
    answers: &mut Answers,
) -> anyhow::Result<Specification> {
    let bearer = format!("Bearer {token}");
    answers.hear(operator.list_experiments(ListExperimentsRequest::default()).await);
    let wrong = with(ListExperimentsRequest::default(), "authorization", "Bearer wrong")?;
    answers.hear(operator.list_experiments(wrong).await);
    let create = || CreateExperimentRequest {
        specification: Some(three_arms("discreet")),
        learner: Learner::LdpTs.into(),
        ..Default::default()
    };
    let created = operator.create_experiment(with(create(), "authorization", &bearer)?).await?;
    let experiment = created.into_inner().specification.context("no specification")?;
    answers.hear(operator.create_experiment(with(create(), "authorization", &bearer)?).await);
    let empty = CreateExperimentRequest::default();
    answers.hear(operator.create_experiment(with(empty, "authorization", &bearer)?).await);
    for name in ["", "unknown", "'; DELETE --", "discreet"] {
        let experiment_id = name.to_owned();
        let name = || ExperimentName { experiment_id: experiment_id.clone() };
        let arm = AddArmRequest { experiment_id: experiment_id.clone(), ..Default::default() };
        answers.hear(operator.add_arm(with(arm, "authorization", &bearer)?).await);
        let arm = RetireArmRequest { experiment_id: experiment_id.clone(), arm: 77 };
        answers.hear(operator.retire_arm(with(arm, "authorization", &bearer)?).await);
        answers.hear(operator.pause_experiment(with(name(), "authorization", &bearer)?).await);
        answers.hear(operator.resume_experiment(with(name(), "authorization", &bearer)?).await);
    }
    Ok(Specification::try_from(&experiment)?)
}

/// Devices' calls, valid and invalid.
async fn report(
    device: &mut DeviceClient<Channel>,
    key: &str,
    experiment: &Specification,
    answers: &mut Answers,
) -> anyhow::Result<Day> {
    let question = || GetExperimentRequest { experiment_id: "discreet".to_owned() };
    answers.hear(device.get_experiment(question()).await);
    let answer = device.get_experiment(with(question(), "bandana-app-key", key)?).await?;
    let day = Day::new(answer.into_inner().server_day);
    for name in ["", "unknown", "../../etc/passwd"] {
        let arm = SelectArmRequest { experiment_id: name.to_owned(), ..Default::default() };
        answers.hear(device.select_arm(with(arm, "bandana-app-key", key)?).await);
    }
    let good = upload(UPLOAD, experiment, day, &[(0, true)])?;
    let past = upload(UPLOAD + 1, experiment, Day::new(1), &[(0, true)])?;
    let unknown = UploadRequest { digest: vec![7; 16].into(), ..good.clone() };
    for request in [good.clone(), good, past, unknown, UploadRequest::default()] {
        answers.hear(device.submit_upload(with(request, "bandana-app-key", key)?).await);
    }
    Ok(day)
}

/// The bytes of hostile callers.
fn hostile() -> Vec<Vec<u8>> {
    let begin = [PREFACE, &frame(Kind::Settings, 0, 0, &[])].concat();
    let block = headers("/bandana.v1.Device/SubmitUpload", &[("authorization", "Bearer x")]);
    let call = frame(Kind::Headers, END_HEADERS, 1, &block);
    let reset = frame(Kind::ResetStream, 0, 1, &[0, 0, 0, 8]);
    vec![
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".to_vec(),
        vec![0xff; 5000],
        [&*begin, &[0xff; 5000]].concat(),
        [&*begin, &call, &frame(Kind::Data, 1, 1, &claiming(u32::MAX, 0, &[1]))].concat(),
        [&*begin, &call, &reset].concat(),
        [&*begin, &frame(Kind::Headers, 5, 1, &[0xff; 100])].concat(),
    ]
}

#[tokio::test]
async fn neither_log_nor_answers_tell_what_they_should_not() -> anyhow::Result<()> {
    let (folder, authority) = (tempfile::tempdir()?, Authority::new()?);
    authority.sign(folder.path(), "server")?;
    let (token, key) =
        (secret(folder.path(), "token").await?, secret(folder.path(), "app-key").await?);
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (certificate, tls_key) = (path("server.pem"), path("server.key"));
    let (tokens, keys, data_dir) = (path("token"), path("app-key"), folder.path().join("data"));
    let files = ["--operator-tokens-file", &tokens, "--app-keys-file", &keys];
    for tls in [false, true] {
        let mut arguments = files.to_vec();
        if tls {
            arguments.extend(["--tls-certificate", &certificate, "--tls-key", &tls_key]);
        }
        let data_dir = data_dir.join(tls.to_string());
        let mut answers = Answers::default();
        let mut command = Command::new(PROGRAM);
        command.clean_environment();
        let server = WatchedServer::launch(command, &data_dir, &arguments, "trace").await?;
        let mut operator = OperatorClient::new(clear(&server.operator).await?);
        let experiment = operate(&mut operator, &token, &mut answers).await?;
        let channel = if tls {
            secure(&server.device, &authority).await?
        } else {
            clear(&server.device).await?
        };
        let mut device = DeviceClient::new(channel);
        report(&mut device, &key, &experiment, &mut answers).await?;
        for bytes in hostile() {
            say(&server.device, &bytes).await?;
            say(&server.operator, &bytes).await?;
        }
        drop((device, operator));
        let log = server.stop().await?;
        answers.check(&data_dir)?;
        assert!(answers.0.len() > 20 && log.contains("DEBUG") && log.contains("caller=anna"));

        let name = UPLOAD.to_string();
        let hexadecimal = format!("{UPLOAD:x}");
        let bytes = format!("{:?}", UPLOAD.to_be_bytes());
        let bytes = bytes.trim_matches(['[', ']']);
        let escaped = UPLOAD.to_be_bytes().escape_ascii().to_string();
        let caller = CALLER.to_string();
        for secret in [&*caller, &token[5..], &key[5..], &name, &hexadecimal, bytes, &escaped] {
            let line = log.lines().find(|line| line.contains(secret));
            assert_eq!(line, None, "TLS: {tls}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_store_that_fails_is_not_explained_to_callers() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let server = WatchedServer::start(PROGRAM, folder.path(), &[]).await?;
    let mut operator = OperatorClient::new(clear(&server.operator).await?);
    let mut device = DeviceClient::new(clear(&server.device).await?);
    let request = CreateExperimentRequest {
        specification: Some(three_arms("failing")),
        learner: Learner::LdpTs.into(),
        ..Default::default()
    };
    let created = operator.create_experiment(request.clone()).await?.into_inner();
    let created = created.specification.context("no specification")?;
    let experiment = Specification::try_from(&created)?;
    let question = GetExperimentRequest { experiment_id: "failing".to_owned() };
    let day = Day::new(device.get_experiment(question).await?.into_inner().server_day);

    let store = rusqlite::Connection::open(folder.path().join("bandana.sqlite3"))?;
    store.pragma_update(None, "foreign_keys", false)?;
    let mut tables = store.prepare("SELECT name FROM sqlite_master WHERE type = 'table'")?;
    let tables: Vec<String> = tables.query_map((), |row| row.get(0))?.collect::<Result<_, _>>()?;
    for table in tables.iter().filter(|table| !table.starts_with("sqlite_")) {
        store.execute_batch(&format!("DROP TABLE \"{table}\""))?;
    }
    let mut answers = Answers::default();
    let uploaded = device.submit_upload(upload(1, &experiment, day, &[(0, true)])?).await;
    assert!(uploaded.is_err(), "{uploaded:?}");
    answers.hear(uploaded);
    answers.hear(operator.create_experiment(request).await);
    answers.check(folder.path())?;
    assert_eq!(answers.0.len(), 2);
    // The server has ended by itself, with an error for its operator.
    let ended = format!("{:#}", server.stop().await.unwrap_err());
    assert!(ended.contains("no such table"), "{ended}");
    Ok(())
}
