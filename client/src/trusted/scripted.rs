//! A scripted server for devices, which records the disclosures that it receives.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bandana_shared::wire::v1::trusted_server::{Trusted, TrustedServer};
use bandana_shared::wire::v1::trusted_specification::Algorithm;
use bandana_shared::wire::v1::{
    DiscloseRequest, DiscloseResponse, DisclosureStatus, GetTrustedExperimentResponse, LazyRelease,
    RecommendRequest, RecommendResponse, TrustedExperimentName, TrustedSpecification,
};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use super::Disclosures;
use crate::grpc::Transport;
use crate::time::{Clock as _, SystemClock};

/// The server's response to a disclosure.
#[derive(Debug)]
pub(super) enum Answer {
    Verdict(DisclosureStatus),
    /// A verdict of a newer server.
    Number(i32),
    Error(Status),
    /// No answer, ever.
    Silence,
    /// The connection ends.
    HangUp,
    /// The user withdraws these disclosures, and then this one counts.
    Withdraw(Disclosures),
}

#[derive(Debug)]
pub(super) struct Script {
    pub(super) answers: VecDeque<Answer>,
    pub(super) heard: Vec<DiscloseRequest>,
    /// Experiments that the server does not know.
    pub(super) unknown: BTreeSet<String>,
    pub(super) rho: f64,
    /// Days by which the server's clock is ahead of the device's.
    pub(super) ahead: i32,
}

/// Clones are the same server.
#[derive(Clone, Debug)]
pub(super) struct Scripted(Arc<Mutex<Script>>);

impl Scripted {
    /// Starts the server in the current runtime, with which it ends.
    pub(super) fn start() -> Result<(Self, Transport), Box<dyn std::error::Error>> {
        let (answers, heard, unknown) = (VecDeque::new(), Vec::new(), BTreeSet::new());
        let script = Script { answers, heard, unknown, rho: 0.1, ahead: 0 };
        let scripted = Self(Arc::new(Mutex::new(script)));
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse()?)?;
        let transport = Transport::to(&format!("http://{}", incoming.local_addr()?))?;
        let service = TrustedServer::new(scripted.clone());
        tokio::spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
        Ok((scripted, transport))
    }

    pub(super) fn script(&self) -> MutexGuard<'_, Script> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn day(&self) -> u32 {
        SystemClock.now().day().get().saturating_add_signed(self.script().ahead)
    }
}

#[tonic::async_trait]
impl Trusted for Scripted {
    async fn get_trusted_experiment(
        &self,
        request: Request<TrustedExperimentName>,
    ) -> Result<Response<GetTrustedExperimentResponse>, Status> {
        let experiment_id = request.into_inner().experiment_id;
        if self.script().unknown.contains(&experiment_id) {
            return Err(Status::not_found("no such trusted experiment"));
        }
        let specification = TrustedSpecification {
            experiment_id,
            rewards_are_disclosed: true,
            rho: self.script().rho,
            algorithm: Some(Algorithm::LazyRelease(LazyRelease { arms: 2 })),
        };
        let (specification, server_day) = (Some(specification), self.day());
        Ok(Response::new(GetTrustedExperimentResponse { specification, server_day }))
    }

    async fn recommend(
        &self,
        _: Request<RecommendRequest>,
    ) -> Result<Response<RecommendResponse>, Status> {
        Ok(Response::new(RecommendResponse { arm: 1, server_day: self.day() }))
    }

    async fn disclose(
        &self,
        request: Request<DiscloseRequest>,
    ) -> Result<Response<DiscloseResponse>, Status> {
        let answer = {
            let mut script = self.script();
            script.heard.push(request.into_inner());
            script.answers.pop_front()
        };
        let status = match answer.unwrap_or(Answer::Verdict(DisclosureStatus::Counted)) {
            Answer::Verdict(status) => status.into(),
            Answer::Number(number) => number,
            Answer::Error(status) => return Err(status),
            Answer::Withdraw(disclosures) => {
                let withdrawn = disclosures.withdraw();
                withdrawn.map_err(|error| Status::internal(error.to_string()))?;
                DisclosureStatus::Counted.into()
            }
            Answer::Silence => std::future::pending().await,
            // Ends the connection's task without output on standard error.
            Answer::HangUp => std::panic::resume_unwind(Box::new("hung up")),
        };
        let (message, server_day) = ("as the script says".to_owned(), self.day());
        Ok(Response::new(DiscloseResponse { status, message, server_day }))
    }
}
