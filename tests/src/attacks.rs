//! Attacks on a server over HTTP/2, for tests and for the program `attack`.

use anyhow::{Context as _, ensure};
use bandana_shared::wire::v1::GetExperimentRequest;
use prost::Message;
use tokio::task::JoinSet;

use crate::raw_http2::{
    END_HEADERS, END_STREAM, Kind, PREFACE, RawConnection, claiming, frame, headers,
};

/// The setting of HTTP/2 for the window of new streams (RFC 9113, section 6.5.2).
const INITIAL_WINDOW_SIZE: u16 = 4;

/// Number of connections opened concurrently.
const AT_ONCE: usize = 32;

/// Calls whose answers are not read.
#[derive(Debug, Default)]
pub struct Untaken {
    /// The connections, still open.
    pub connections: Vec<RawConnection>,
    /// Number of answers waiting to be read.
    pub waiting: u64,
    /// Number of calls answered with an error at once.
    pub refused: u64,
    /// Number of connections that the server refused or closed.
    pub closed: u64,
}

/// Requests `experiment`, `calls` times on each of `connections` connections, with a flow-control
/// window of 0 for the answers. Returns when every call has the head of its answer.
///
/// # Errors
/// When the server stays silent.
pub async fn take_no_answers(
    address: &str,
    experiment: &str,
    connections: usize,
    calls: u32,
) -> anyhow::Result<Untaken> {
    let words = questions(experiment, calls);
    let mut untaken = Untaken::default();
    let mut opening = JoinSet::new();
    let mut left = connections;
    while left > 0 || !opening.is_empty() {
        while left > 0 && opening.len() < AT_ONCE {
            let (address, words) = (address.to_owned(), words.clone());
            opening.spawn(async move { ask(&address, &words, calls).await });
            left -= 1;
        }
        match opening.join_next().await.context("nothing is opened")?? {
            Ok((connection, waiting)) => {
                untaken.connections.push(connection);
                untaken.waiting += waiting;
                untaken.refused += u64::from(calls) - waiting;
            }
            Err(_) => untaken.closed += 1,
        }
    }
    Ok(untaken)
}

/// The bytes of a connection whose requests can't be answered, for lack of window.
fn questions(experiment: &str, calls: u32) -> Vec<u8> {
    let question = GetExperimentRequest { experiment_id: experiment.to_owned() };
    let question = question.encode_to_vec();
    let message = claiming(u32::try_from(question.len()).unwrap_or(u32::MAX), 0, &question);
    let block = headers("/bandana.v1.Device/GetExperiment", &[]);
    let no_window = [&INITIAL_WINDOW_SIZE.to_be_bytes()[..], &[0; 4]].concat();
    let mut words = [PREFACE, &frame(Kind::Settings, 0, 0, &no_window)].concat();
    for call in 0..calls {
        let stream = 2 * call + 1;
        words.extend(frame(Kind::Headers, END_HEADERS, stream, &block));
        words.extend(frame(Kind::Data, END_STREAM, stream, &message));
    }
    words
}

/// Calls a method with this message on one connection, with a flow-control window of 0 for the
/// answer.
///
/// # Errors
/// When the server is unreachable.
pub async fn take_nothing(
    address: &str,
    path: &str,
    message: &impl Message,
) -> anyhow::Result<RawConnection> {
    let message = message.encode_to_vec();
    let message = claiming(u32::try_from(message.len()).unwrap_or(u32::MAX), 0, &message);
    send_and_take_nothing(address, path, &message, END_STREAM).await
}

/// Calls a method with these bytes and flags, and never takes a byte of the answer.
///
/// # Errors
/// When the server is unreachable.
pub async fn send_and_take_nothing(
    address: &str,
    path: &str,
    bytes: &[u8],
    flags: u8,
) -> anyhow::Result<RawConnection> {
    let no_window = [&INITIAL_WINDOW_SIZE.to_be_bytes()[..], &[0; 4]].concat();
    let mut words = [PREFACE, &frame(Kind::Settings, 0, 0, &no_window)].concat();
    words.extend(frame(Kind::Headers, END_HEADERS, 1, &headers(path, &[])));
    words.extend(frame(Kind::Data, flags, 1, bytes));
    let mut connection = RawConnection::silent(address).await?;
    connection.write(&words).await?;
    Ok(connection)
}

/// Opens this number of incomplete calls of a method. Dropping the connection aborts them.
///
/// # Errors
/// When the server does not read it.
pub async fn begin_requests(
    address: &str,
    path: &str,
    calls: u32,
) -> anyhow::Result<RawConnection> {
    let block = headers(path, &[]);
    let mut words = [PREFACE, &frame(Kind::Settings, 0, 0, &[])].concat();
    for call in 0..calls {
        let stream = 2 * call + 1;
        words.extend(frame(Kind::Headers, END_HEADERS, stream, &block));
        words.extend(frame(Kind::Data, 0, stream, &claiming(100, 0, &[])));
    }
    words.extend(frame(Kind::Ping, 0, 0, &[0; 8]));
    let mut connection = RawConnection::silent(address).await?;
    connection.write(&words).await?;
    while connection.next_frame().await?.0 != Kind::Ping as u8 {}
    Ok(connection)
}

/// Returns the connection and the number of calls with waiting answers.
async fn ask(address: &str, words: &[u8], calls: u32) -> anyhow::Result<(RawConnection, u64)> {
    let mut connection = RawConnection::silent(address).await?;
    connection.write(words).await?;
    let (mut heads, mut waiting) = (0, 0);
    while heads < calls {
        let (kind, flags) = connection.next_frame().await?;
        if kind == Kind::Headers as u8 {
            heads += 1;
            waiting += u64::from(flags & END_STREAM == 0);
        }
        ensure!(kind != Kind::Data as u8, "an answer came without a window");
    }
    Ok((connection, waiting))
}
