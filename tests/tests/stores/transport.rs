//! The connection to a database: with TLS and a password.

use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;

use anyhow::{Context as _, ensure};
use bandana_store::{DatabaseError, PostgresSettings, PostgresStore, StoreError};
use bandana_tests::postgres::{Postgres, query};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

type Case = fn() -> anyhow::Result<()>;

pub(crate) const ALL: &[(&str, Case)] =
    &[("only_the_database_that_its_certificate_names_is_told_the_password", verified)];

fn certificate(folder: &Path, name: &str) -> anyhow::Result<()> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key)?;
    std::fs::write(folder.join(format!("{name}-ca.pem")), authority.pem())?;
    let (issuer, key) = (Issuer::new(params, key), KeyPair::generate()?);
    let signed = CertificateParams::new(vec!["localhost".to_owned()])?.signed_by(&key, &issuer)?;
    std::fs::write(folder.join(format!("{name}.pem")), signed.pem())?;
    Ok(std::fs::write(folder.join(format!("{name}.key")), key.serialize_pem())?)
}

/// A server behind TLS, on a port that was free a moment before.
fn start(certificates: &Path) -> anyhow::Result<(Postgres, u16)> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let options = format!("-c listen_addresses=127.0.0.1 -c port={port} -c ssl=on");
    let server = Postgres::start_with(&options, |data| {
        for (from, to) in [("server.pem", "server.crt"), ("server.key", "server.key")] {
            let to = data.join(to);
            std::fs::copy(certificates.join(from), &to)?;
            std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o600))?;
            let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(data)?);
            chown(&to, Some(owner), None)?;
        }
        let rules = "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n";
        Ok(std::fs::write(data.join("pg_hba.conf"), rules)?)
    })?;
    Ok((server, port))
}

fn verified() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    certificate(folder.path(), "server")?;
    certificate(folder.path(), "other")?;
    let start = || start(folder.path());
    // Another process may take the port before the server does.
    let (server, port) = start().or_else(|_| start()).or_else(|_| start())?;
    let socket = format!("{}&port={port}", server.url("postgres"));
    query(&socket, "CREATE ROLE app LOGIN PASSWORD 'p@ss'")?;
    query(&socket, "CREATE DATABASE app OWNER app")?;
    let password = folder.path().join("password");
    std::fs::write(&password, "p@ss\n")?;

    let open = |address: &str, ca: &str, file: Option<&Path>| {
        PostgresStore::open(&PostgresSettings {
            url: format!("postgres://app{address}").parse()?,
            ca: Some(folder.path().join(ca)),
            password_file: file.map(Path::to_owned),
            replay_window_days: 3,
            id_partitions: 1,
            cells: Vec::new(),
        })
        .map_err(anyhow::Error::from)
    };
    let file = Some(password.as_path());
    let here = format!("@localhost:{port}/app?sslmode=verify-full");
    open(&here, "server-ca.pem", file)?;
    open(&format!(":p%40ss{here}"), "server-ca.pem", None)?;
    // Another authority, a name that the certificate does not have, no TLS, no password.
    let elsewhere = format!("@127.0.0.1:{port}/app?sslmode=verify-full");
    let clear = format!("@localhost:{port}/app?sslmode=disable");
    for (address, ca, file) in [
        (&here, "other-ca.pem", file),
        (&elsewhere, "server-ca.pem", file),
        (&clear, "server-ca.pem", file),
        (&here, "server-ca.pem", None),
    ] {
        let error = open(address, ca, file).err().with_context(|| format!("{address} {ca}"))?;
        let refused = matches!(
            error.downcast_ref(),
            Some(StoreError::Database(DatabaseError::Postgres { .. }))
        );
        ensure!(refused && !format!("{error:?}").contains("p@ss"), "{error:?}");
    }
    Ok(())
}
