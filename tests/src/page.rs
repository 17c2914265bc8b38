//! HTTP/1.1 requests to a server's pages.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Timeout of a request.
const PATIENCE: Duration = Duration::from_mins(1);

/// A response.
#[derive(Debug)]
pub struct Page {
    /// The HTTP status.
    pub status: u16,
    /// Headers, with names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: String,
}

/// Fetches a page with these further headers.
///
/// # Errors
/// When the server does not answer as HTTP/1.1 says.
pub async fn get(address: &str, path: &str, headers: &[(&str, &str)]) -> anyhow::Result<Page> {
    get_on(TcpStream::connect(address).await?, address, path, headers).await
}

/// Makes a request with a body, whose length is among the headers.
///
/// # Errors
/// When the server does not answer as HTTP/1.1 says.
pub async fn send(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> anyhow::Result<Page> {
    let stream = TcpStream::connect(address).await?;
    exchange(stream, address, &format!("{method} {path}"), headers, body).await
}

/// Posts bytes, and returns the answer with its bytes.
///
/// # Errors
/// When the server does not answer as HTTP/1.1 says.
pub async fn post(
    address: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> anyhow::Result<(Page, Vec<u8>)> {
    let length = body.len().to_string();
    let headers = [headers, &[("content-length", &*length)]].concat();
    let stream = TcpStream::connect(address).await?;
    exchange_bytes(stream, address, &format!("POST {path}"), &headers, body).await
}

/// Fetches a page on an open connection.
///
/// # Errors
/// When the server does not answer as HTTP/1.1 says.
pub async fn get_on(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    host: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> anyhow::Result<Page> {
    exchange(stream, host, &format!("GET {path}"), headers, "").await
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    host: &str,
    what: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> anyhow::Result<Page> {
    let (page, body) = exchange_bytes(stream, host, what, headers, body.as_bytes()).await?;
    Ok(Page { body: String::from_utf8(body)?, ..page })
}

async fn exchange_bytes(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    host: &str,
    what: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> anyhow::Result<(Page, Vec<u8>)> {
    let host = headers.iter().find(|(name, _)| *name == "host").map_or(host, |(_, host)| host);
    let others = headers.iter().filter(|(name, _)| *name != "host");
    let others: Vec<_> = others.map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let others = others.concat();
    let head = format!("{what} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{others}\r\n");
    let answer = async {
        stream.write_all(&[head.as_bytes(), body].concat()).await?;
        let mut answer = Vec::new();
        while !is_whole(&answer) && stream.read_buf(&mut answer).await? > 0 {}
        anyhow::Ok(answer)
    };
    let answer = tokio::time::timeout(PATIENCE, answer).await??;
    parse(&answer)
}

/// Whether a response with a stated length is complete. Not all servers close connections.
fn is_whole(answer: &[u8]) -> bool {
    let Some(end) = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length = length.and_then(|length| length.trim().parse::<usize>().ok());
    length.is_some_and(|length| answer.len() >= end + 4 + length)
}

/// The head of an answer, and the bytes of its body.
fn parse(answer: &[u8]) -> anyhow::Result<(Page, Vec<u8>)> {
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").context("no head")?;
    let (head, body) = (str::from_utf8(&answer[..end])?, answer[end + 4..].to_vec());
    let mut lines = head.lines();
    let status =
        lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")).context("not HTTP")?;
    let headers = lines.filter_map(|line| line.split_once(": "));
    let mut page = Page {
        status: status.split(' ').next().unwrap_or_default().parse()?,
        headers: headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect(),
        body: String::new(),
    };
    let is_chunked = page.headers.remove("transfer-encoding").is_some_and(|how| how == "chunked");
    Ok((page, if is_chunked { joined(&body)? } else { body }))
}

/// A body that was sent in chunks (RFC 9112, section 7.1).
fn joined(mut chunks: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = chunks.windows(2).position(|bytes| bytes == b"\r\n");
        let end = end.context("the answer was broken off")?;
        let length = usize::from_str_radix(str::from_utf8(&chunks[..end])?, 16)?;
        let chunk = chunks.get(end + 2..end + 2 + length).context("the answer was broken off")?;
        if chunk.is_empty() {
            return Ok(body);
        }
        body.extend(chunk);
        chunks = chunks.get(end + 4 + length..).context("the answer was broken off")?;
    }
}

/// Metrics by their names with labels.
#[derive(Debug)]
pub struct Samples(BTreeMap<String, String>);

impl Samples {
    /// Parses the text of a page.
    ///
    /// # Errors
    /// When it is not in the format of OpenMetrics.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        anyhow::ensure!(text.ends_with("\n# EOF\n"), "without an end: {text}");
        let sample = |line: &str| {
            let (name, value) = line.rsplit_once(' ').context("a line without a value")?;
            Ok((name.to_owned(), value.to_owned()))
        };
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Ok(Self(lines.map(sample).collect::<anyhow::Result<_>>()?))
    }

    /// The value of a metric.
    ///
    /// # Errors
    /// When there is none.
    pub fn get(&self, name: &str) -> anyhow::Result<f64> {
        let value = self.0.get(name).with_context(|| format!("there is no {name} in {self:#?}"));
        Ok(value?.parse()?)
    }

    /// The value of a metric that is an integer.
    ///
    /// # Errors
    /// When there is none.
    pub fn count(&self, name: &str) -> anyhow::Result<u64> {
        let value = self.0.get(name).with_context(|| format!("there is no {name} in {self:#?}"));
        Ok(value?.trim_end_matches(".0").parse()?)
    }

    /// The sum of all metrics with this prefix, which must be integers.
    ///
    /// # Errors
    /// When one of them is not.
    pub fn sum(&self, prefix: &str) -> anyhow::Result<u64> {
        let names = self.0.keys().filter(|name| name.starts_with(prefix));
        names.map(|name| self.count(name)).sum()
    }
}
