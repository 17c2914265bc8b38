//! Attackers with network access to a server.

use std::sync::Arc;
use std::time::Duration;

use bandana_shared::identity::Day;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::{
    self, CreateExperimentRequest, DiscloseRequest, DisclosureStatus, disclose_request,
};
use prost::Message as _;
use rand::RngExt as _;
use rand::seq::IndexedRandom as _;
use rand_chacha::ChaCha8Rng;
use tokio::sync::watch;

use super::figures::{Figures, Group};
use super::server::Running;
use crate::attacks::{begin_requests, take_no_answers};
use crate::harness::{three_arms, upload};
use crate::raw_http2::{
    END_HEADERS, END_STREAM, Kind, PREFACE, RawConnection, claiming, frame, headers,
};

/// Time limit of an attack.
const PATIENCE: Duration = Duration::from_secs(10);

/// A field whose length exceeds the message.
const UNDECODABLE: [u8; 3] = [0x0a, 0x7f, 0x00];

/// Methods that need no authorisation.
const METHODS: [&str; 8] = [
    "/bandana.v1.Device/SubmitUpload",
    "/bandana.v1.Device/SubmitUploads",
    "/bandana.v1.Device/GetExperiment",
    "/bandana.v1.Trusted/Disclose",
    "/bandana.v1.Trusted/Recommend",
    "/bandana.v1.Operator/CreateExperiment",
    "/bandana.v1.Curator/Ask",
    "/grpc.health.v1.Health/Check",
];

/// An attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attack {
    AnswersNotTaken,
    BrokenBodies,
    Undecodable,
    Garbage,
    Silence,
    TwoHosts,
    RapidResets,
    ChangedUploads,
    NewIds,
    WrongRewards,
    Flood,
    Viewers,
    Places,
    Overlaps,
}

const ATTACKS: [Attack; 14] = [
    Attack::AnswersNotTaken,
    Attack::BrokenBodies,
    Attack::Undecodable,
    Attack::Garbage,
    Attack::Silence,
    Attack::TwoHosts,
    Attack::RapidResets,
    Attack::ChangedUploads,
    Attack::NewIds,
    Attack::WrongRewards,
    Attack::Flood,
    Attack::Viewers,
    Attack::Places,
    Attack::Overlaps,
];

impl Attack {
    fn name(self) -> &'static str {
        match self {
            Self::AnswersNotTaken => "answers not taken",
            Self::BrokenBodies => "requests broken off",
            Self::Undecodable => "undecodable messages",
            Self::Garbage => "garbage",
            Self::Silence => "silent connections",
            Self::TwoHosts => "two hosts in a request, or none",
            Self::RapidResets => "rapid resets",
            Self::ChangedUploads => "uploads with bytes changed",
            Self::NewIds => "uploads with new ids",
            Self::WrongRewards => "rewards out of range",
            Self::Flood => "floods of connections",
            Self::Viewers => "exports and days not read",
            Self::Places => "places held",
            Self::Overlaps => "overlapping layers at once",
        }
    }
}

/// An attacker.
#[derive(Clone, Debug)]
pub(super) struct Attacker {
    /// The servers.
    pub(super) servers: Vec<watch::Receiver<Option<Running>>>,
    /// The generator of all choices.
    pub(super) random: ChaCha8Rng,
    /// The counts of attacks.
    pub(super) figures: Arc<Figures>,
    /// The attackers' experiment, to which no one else reports.
    pub(super) experiment: Specification,
    /// A TLS ClientHello.
    pub(super) hello: Vec<u8>,
    /// The day of uploads.
    pub(super) day: Day,
}

impl Attacker {
    /// Attacks until dropped.
    pub(super) async fn attack(mut self) {
        loop {
            let attack = *ATTACKS.choose(&mut self.random).unwrap_or(&Attack::Garbage);
            let server = self.random.random_range(0..self.servers.len());
            let running = self.servers[server].borrow().clone();
            if let Some(running) = running {
                // The final checks show the effect; the server may be down by now.
                let attacking = self.once(attack, &running);
                let outcome = tokio::time::timeout(PATIENCE, attacking).await;
                let ended = match outcome {
                    Ok(Ok(())) => "",
                    Ok(Err(_)) | Err(_) => ", cut short",
                };
                self.figures.add(Group::Attack, format!("{}{ended}", attack.name()), 1);
            }
            let pause = Duration::from_millis(self.random.random_range(0..400));
            tokio::time::sleep(pause).await;
        }
    }

    async fn once(&mut self, attack: Attack, server: &Running) -> anyhow::Result<()> {
        let either = [&server.device, &server.operator];
        let anywhere = (*either.choose(&mut self.random).unwrap_or(&&server.device)).clone();
        match attack {
            Attack::AnswersNotTaken => self.take_none(server).await,
            Attack::BrokenBodies => {
                let path = METHODS[self.random.random_range(0..METHODS.len())];
                let calls = self.random.random_range(1..100);
                drop(begin_requests(&anywhere, path, calls).await?);
                Ok(())
            }
            Attack::Undecodable => self.undecodable(&anywhere).await,
            Attack::Garbage => self.garbage(&anywhere).await,
            Attack::Silence => self.silence(&anywhere).await,
            Attack::TwoHosts => self.hosts(&anywhere, server.trust.is_none()).await,
            Attack::RapidResets => self.resets(&server.device).await,
            Attack::ChangedUploads => self.changed(server).await,
            Attack::NewIds => self.new_ids(server).await,
            Attack::WrongRewards => self.wrong_rewards(server).await,
            Attack::Flood => {
                for _ in 0..self.random.random_range(1..200) {
                    drop(RawConnection::open(&anywhere).await?);
                }
                Ok(())
            }
            Attack::Viewers => self.view(&server.operator).await,
            Attack::Places => self.hold_places(&server.operator).await,
            Attack::Overlaps => self.overlap().await,
        }
    }

    async fn take_none(&mut self, server: &Running) -> anyhow::Result<()> {
        let connections = self.random.random_range(1..20);
        let calls = self.random.random_range(1..=128);
        let id = self.experiment.experiment_id().to_string();
        let untaken = take_no_answers(&server.device, &id, connections, calls).await?;
        let waiting = Duration::from_millis(self.random.random_range(0..3000));
        tokio::time::sleep(waiting).await;
        drop(untaken);
        Ok(())
    }

    async fn undecodable(&mut self, address: &str) -> anyhow::Result<()> {
        let mut connection = RawConnection::open(address).await?;
        for call in 0..self.random.random_range(1..50) {
            let path = METHODS[self.random.random_range(0..METHODS.len())];
            let stream = 2 * call + 1;
            let block = headers(path, &[]);
            connection.write(&frame(Kind::Headers, END_HEADERS, stream, &block)).await?;
            let message = claiming(3, 0, &UNDECODABLE);
            connection.write(&frame(Kind::Data, END_STREAM, stream, &message)).await?;
        }
        connection.write(&frame(Kind::Ping, 0, 0, &[0; 8])).await?;
        while connection.next_frame().await?.0 != Kind::Ping as u8 {}
        Ok(())
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.random.random()).collect()
    }

    async fn garbage(&mut self, address: &str) -> anyhow::Result<()> {
        let length = self.random.random_range(0..10_000);
        let bytes = self.bytes(length);
        let settings = frame(Kind::Settings, 0, 0, &[]);
        let words = match self.random.random_range(0..4) {
            0 => bytes,
            1 => [PREFACE, &settings, &bytes].concat(),
            2 => [PREFACE, &settings, &frame(Kind::Headers, 5, 1, &bytes)].concat(),
            _ => [b"GET /api/v1/experiments HTTP/1.1\r\nhost: x\r\n", &bytes[..]].concat(),
        };
        let mut connection = RawConnection::silent(address).await?;
        connection.write(&words).await?;
        connection.closed().await.map(drop)
    }

    /// Silent connections, or connections that send byte by byte.
    async fn silence(&mut self, address: &str) -> anyhow::Result<()> {
        let mut silent = Vec::new();
        for _ in 0..self.random.random_range(1..100) {
            silent.push(RawConnection::silent(address).await?);
        }
        if self.random.random_bool(0.5) {
            for connection in &mut silent {
                connection.write(&self.hello).await?;
            }
            tokio::time::sleep(Duration::from_millis(self.random.random_range(0..4000))).await;
            return Ok(());
        }
        for byte in PREFACE.iter().take(self.random.random_range(0..20)) {
            for connection in &mut silent {
                connection.write(&[*byte]).await?;
            }
            tokio::time::sleep(Duration::from_millis(self.random.random_range(0..300))).await;
        }
        Ok(())
    }

    /// Requests with two hosts or none. Behind TLS nobody hears them.
    async fn hosts(&mut self, address: &str, is_clear: bool) -> anyhow::Result<()> {
        let hosts = if self.random.random() { "host: a\r\nhost: b\r\n" } else { "" };
        let mut connection = RawConnection::silent(address).await?;
        let head = format!("GET /readyz HTTP/1.1\r\n{hosts}connection: close\r\n\r\n");
        connection.write(head.as_bytes()).await?;
        let said = connection.closed().await?;
        if is_clear && !said.is_empty() && !said.starts_with(b"HTTP/1.1 400") {
            let said = String::from_utf8_lossy(&said).into_owned();
            self.figures.wrong(format!("{hosts:?} was answered {said:?}"));
        }
        Ok(())
    }

    /// Asks for what grows with what was counted, and reads none of it.
    async fn view(&mut self, address: &str) -> anyhow::Result<()> {
        let id = self.experiment.experiment_id().to_string();
        let mut viewers = Vec::new();
        for _ in 0..self.random.random_range(1..12) {
            let what = *["over-time", "export?what=over-time&format=json", "export?what=tallies"]
                .choose(&mut self.random)
                .unwrap_or(&"tallies");
            let mut viewer = RawConnection::silent(address).await?;
            let head =
                format!("GET /api/experiments/{id}/{what} HTTP/1.1\r\nhost: {address}\r\n\r\n");
            viewer.write(head.as_bytes()).await?;
            viewers.push(viewer);
        }
        tokio::time::sleep(Duration::from_millis(self.random.random_range(0..3000))).await;
        Ok(())
    }

    /// Takes all places of a port and does nothing with them. A newcomer gets one nevertheless.
    async fn hold_places(&mut self, address: &str) -> anyhow::Result<()> {
        let mut held = Vec::new();
        for _ in 0..self.random.random_range(50..400) {
            held.push(match self.random.random_range(0..3) {
                0 => RawConnection::open(address).await?,
                1 => RawConnection::silent(address).await?,
                _ => {
                    let mut connection = RawConnection::silent(address).await?;
                    connection.write(b"GET / HTTP/1.1\r\n").await?;
                    connection
                }
            });
        }
        let page = crate::page::get(address, "/healthz", &[]).await;
        let told = if page.is_ok() { "newcomers let in" } else { "newcomers kept out" };
        self.figures.add(Group::Attack, told, 1);
        Ok(())
    }

    /// Has all servers create experiments at once that are to share no installation, and would.
    async fn overlap(&mut self) -> anyhow::Result<()> {
        let layer = format!("layer-{}", self.random.random_range(0..1_000_000));
        let mut creating = tokio::task::JoinSet::new();
        for (number, server) in self.servers.iter().enumerate() {
            let Some(running) = server.borrow().clone() else { continue };
            let mut way = running.way()?;
            let id = format!("{layer}-{number}");
            let part = v1::Layer {
                name: layer.clone(),
                from: 100_000 * u32::try_from(number)?,
                to: 900_000,
            };
            let specification = v1::Specification { layer: Some(part), ..three_arms(&id) };
            let request = CreateExperimentRequest {
                specification: Some(specification),
                learner: v1::Learner::LdpTs.into(),
                accept_nonlinear_estimand: true,
                ..Default::default()
            };
            creating.spawn(async move { way.operator.create_experiment(request).await.is_ok() });
        }
        let created = creating.join_all().await.into_iter().filter(|created| *created).count();
        if created > 1 {
            self.figures.wrong(format!("{created} experiments of {layer} were created at once"));
        }
        Ok(())
    }

    async fn resets(&mut self, address: &str) -> anyhow::Result<()> {
        let mut connection = RawConnection::open(address).await?;
        let block = headers(METHODS[0], &[]);
        for call in 0..self.random.random_range(1..5000) {
            let stream = 2 * call + 1;
            let opened = frame(Kind::Headers, END_HEADERS, stream, &block);
            let reset = frame(Kind::ResetStream, 0, stream, &8_u32.to_be_bytes());
            connection.write(&[opened, reset].concat()).await?;
        }
        Ok(())
    }

    fn stranger(&mut self) -> anyhow::Result<v1::UploadRequest> {
        let arm = self.random.random_range(0..self.experiment.arms().len());
        let number = self.random.random();
        upload(number, &self.experiment, self.day, &[(arm, self.random.random())])
    }

    /// Uploads with one or two changed bytes.
    async fn changed(&mut self, server: &Running) -> anyhow::Result<()> {
        let mut connection = RawConnection::open(&server.device).await?;
        let block = headers(METHODS[0], &[]);
        for call in 0..self.random.random_range(1..100) {
            let mut bytes = self.stranger()?.encode_to_vec();
            for _ in 0..self.random.random_range(1..4) {
                let place = self.random.random_range(0..bytes.len());
                bytes[place] = self.random.random();
            }
            let stream = 2 * call + 1;
            connection.write(&frame(Kind::Headers, END_HEADERS, stream, &block)).await?;
            let message = claiming(u32::try_from(bytes.len())?, 0, &bytes);
            connection.write(&frame(Kind::Data, END_STREAM, stream, &message)).await?;
        }
        connection.write(&frame(Kind::Ping, 0, 0, &[0; 8])).await?;
        while connection.next_frame().await?.0 != Kind::Ping as u8 {}
        Ok(())
    }

    /// Valid uploads over one stream, as many as possible.
    async fn new_ids(&mut self, server: &Running) -> anyhow::Result<()> {
        let mut way = server.way()?;
        let count = self.random.random_range(1..3000);
        let uploads: Vec<_> = (0..count).map(|_| self.stranger()).collect::<anyhow::Result<_>>()?;
        let answers = way.device.submit_uploads(tokio_stream::iter(uploads)).await?;
        let mut answers = answers.into_inner();
        while answers.message().await?.is_some() {
            self.figures.add(Group::Attack, "ids that attackers had stored", 1);
        }
        Ok(())
    }

    async fn wrong_rewards(&mut self, server: &Running) -> anyhow::Result<()> {
        let mut way = server.way()?;
        for _ in 0..10 {
            let reward = *[f64::NAN, f64::INFINITY, -1.0, 1.0 + f64::EPSILON, 1e300]
                .choose(&mut self.random)
                .unwrap_or(&f64::NAN);
            let request = DiscloseRequest {
                experiment_id: "disclosed".to_owned(),
                disclosure_id: self.bytes(16).into(),
                played: Some(disclose_request::Played::Arm(0)),
                reward,
                day: self.day.get(),
            };
            let answer = way.trusted.disclose(request).await?.into_inner();
            if answer.status() != DisclosureStatus::Malformed {
                self.figures.wrong(format!("a reward of {reward} was answered {answer:?}"));
            }
        }
        Ok(())
    }
}
