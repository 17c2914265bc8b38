//! The hosts of a database URL: a primary and its standbys, of which one can be written to.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio_postgres::config::Host;
use tokio_postgres::{Client, Config, Error, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

/// The time after which the next host is tried too. A host that hangs or is cut off says nothing, and
/// must not use up the time for the others.
const NEXT_HOST: Duration = Duration::from_millis(250);

/// The hosts of a database URL, each with its configuration.
#[derive(Debug)]
pub(super) struct Hosts {
    configs: Vec<Config>,
    /// The host that connections use, which was the last to let one in.
    place: AtomicUsize,
}

impl Hosts {
    pub(super) fn new(config: &Config) -> Self {
        Self { configs: split(config), place: AtomicUsize::new(0) }
    }

    /// The host that connections use.
    pub(super) fn place(&self) -> usize {
        self.place.load(Ordering::Relaxed)
    }

    /// Makes the next connection try this host last. It may be a former primary that answers, but whose
    /// commits wait for a standby that has taken over.
    pub(super) fn leave(&self) {
        let next = (self.place() + 1) % self.configs.len();
        self.place.store(next, Ordering::Relaxed);
    }

    /// Connects to the first host that lets it write, and returns its place.
    pub(super) async fn connect(
        &self,
        tls: Option<&MakeRustlsConnect>,
    ) -> Result<(Client, usize), Error> {
        let (first, count) = (self.place(), self.configs.len());
        let at = |place: usize| async move { (place, connect(&self.configs[place], tls).await) };
        let mut asked = FuturesUnordered::from_iter([at(first)]);
        let mut others = (1..count).map(|step| (first + step) % count).peekable();
        loop {
            let answer = if others.peek().is_none() {
                asked.next().await
            } else {
                tokio::time::timeout(NEXT_HOST, asked.next()).await.unwrap_or(None)
            };
            let failure = match answer {
                Some((place, Ok(client))) => {
                    self.place.store(place, Ordering::Relaxed);
                    return Ok((client, place));
                }
                Some((_, Err(error))) => Some(error),
                None => None,
            };
            match (others.next(), failure) {
                (Some(place), _) => asked.push(at(place)),
                (None, Some(error)) if asked.is_empty() => return Err(error),
                _ => {}
            }
        }
    }
}

async fn connect(config: &Config, tls: Option<&MakeRustlsConnect>) -> Result<Client, Error> {
    if let Some(tls) = tls {
        let (client, connection) = config.connect(tls.clone()).await?;
        drop(tokio::spawn(connection));
        Ok(client)
    } else {
        let (client, connection) = config.connect(NoTls).await?;
        drop(tokio::spawn(connection));
        Ok(client)
    }
}

/// A configuration for each host. One whose numbers of hosts, addresses and ports do not fit stays as it
/// is: connecting tells why.
fn split(config: &Config) -> Vec<Config> {
    let (hosts, addresses, ports) =
        (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
    let count = hosts.len().max(addresses.len());
    let fits = |length: usize| length == 0 || length == count;
    let ports_fit = ports.len() == 1 || fits(ports.len());
    if count < 2 || !fits(hosts.len()) || !fits(addresses.len()) || !ports_fit {
        return vec![config.clone()];
    }
    let of_host = |place: usize| {
        let mut one = without_hosts(config);
        match hosts.get(place) {
            Some(Host::Tcp(name)) => one.host(name),
            Some(Host::Unix(folder)) => one.host_path(folder),
            None => &mut one,
        };
        if let Some(address) = addresses.get(place) {
            one.hostaddr(*address);
        }
        if let Some(port) = ports.get(place).or(ports.first()) {
            one.port(*port);
        }
        one
    };
    (0..count).map(of_host).collect()
}

/// A copy, but for hosts, their addresses and their ports.
fn without_hosts(config: &Config) -> Config {
    let mut copy = Config::new();
    if let Some(user) = config.get_user() {
        copy.user(user);
    }
    if let Some(password) = config.get_password() {
        copy.password(password);
    }
    if let Some(name) = config.get_dbname() {
        copy.dbname(name);
    }
    if let Some(options) = config.get_options() {
        copy.options(options);
    }
    if let Some(name) = config.get_application_name() {
        copy.application_name(name);
    }
    if let Some(timeout) = config.get_connect_timeout() {
        copy.connect_timeout(*timeout);
    }
    if let Some(timeout) = config.get_tcp_user_timeout() {
        copy.tcp_user_timeout(*timeout);
    }
    if let Some(interval) = config.get_keepalives_interval() {
        copy.keepalives_interval(interval);
    }
    if let Some(retries) = config.get_keepalives_retries() {
        copy.keepalives_retries(retries);
    }
    copy.keepalives(config.get_keepalives()).keepalives_idle(config.get_keepalives_idle());
    copy.ssl_mode(config.get_ssl_mode()).ssl_negotiation(config.get_ssl_negotiation());
    copy.channel_binding(config.get_channel_binding());
    copy.target_session_attrs(config.get_target_session_attrs());
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configs(text: &str) -> Vec<Config> {
        split(&text.parse().unwrap())
    }

    #[test]
    fn each_host_has_a_configuration_of_its_own() {
        let options = "dbname=x&user=u&password=p&application_name=a&options=-cjit%3Doff\
            &connect_timeout=3&tcp_user_timeout=4&keepalives=0&keepalives_idle=5&keepalives_interval=6\
            &keepalives_retries=7&sslmode=require&channel_binding=require\
            &target_session_attrs=read-write";
        for (several, each) in [
            ("postgres://a,b:6/", ["postgres://a:5432/", "postgres://b:6/"]),
            ("postgres://a:6,b:7/", ["postgres://a:6/", "postgres://b:7/"]),
        ] {
            let expected = each.map(|url| format!("{url}?{options}").parse::<Config>().unwrap());
            assert_eq!(configs(&format!("{several}?{options}")), expected, "{several}");
        }
        let expected = ["host=/one port=5", "host=b port=5"].map(|text| text.parse().unwrap());
        assert_eq!(configs("host=/one,b port=5"), expected);
        let expected = ["hostaddr=10.0.0.1", "hostaddr=10.0.0.2"].map(|text| text.parse().unwrap());
        assert_eq!(configs("hostaddr=10.0.0.1,10.0.0.2"), expected);
    }

    #[test]
    fn what_does_not_fit_stays_as_it_is() {
        for text in ["host=a", "host=a,b,c port=5,6", "host=a,b hostaddr=10.0.0.1"] {
            assert_eq!(configs(text), [text.parse().unwrap()], "{text}");
        }
    }
}
