//! `bandana gateway-key`.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use bandana_edge::clock::{Clock as _, SystemClock};
use bandana_edge::gateway::{GatewayKey, read_keys};
use bandana_shared::gateway::GatewayKeys;
use bandana_shared::identity::UnixSeconds;
use bandana_shared::limits::{SIGNATURE_DAYS_MAX, SIGNATURES_MAX};
use bandana_shared::wire::v1;
use clap::Subcommand;
use prost::Message as _;

use super::consent::{Consent, Prompt};
use super::{Readers, key_file, say, write_new};

const SIGN: Prompt = Prompt {
    act: "sign these keys",
    undone: "nothing was signed",
    unasked: "the keys of a gateway may be signed unseen",
};

/// Make, show and sign the keys of a gateway, for devices that call through a relay.
#[derive(Debug, Subcommand)]
pub(super) enum GatewayKeyCommand {
    /// Make a new secret key in a file, and write its public keys to FILE.pub.
    ///
    /// Give the secret key to the server, as `gateway_key_file`. If you replace a key, devices ask
    /// for the new one by themselves. Reports that were sealed for the old key may still wait at a
    /// relay. Until they have come, give the old key to the server too, as
    /// `gateway_former_key_file`. A relay that shuffles needs a key of its own.
    Generate {
        /// File for the secret key, which must not exist yet. Only its owner can read it.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Print the public key of a gateway or of a relay that shuffles, for apps to pin.
    Show {
        /// File that `bandana gateway-key generate` or `sign` wrote, secret or public.
        file: PathBuf,
    },
    /// Sign the public keys of a gateway. This needs no network.
    ///
    /// Apps pin the public half of the signing key, and then accept no other keys of the gateway.
    /// So all devices seal for the same key, and nobody can recognise a device by a key of its own.
    /// Sign each key of a gateway once, and give the result to the server, as
    /// `gateway_signed_keys_file`.
    Sign {
        /// File with the public keys: FILE.pub, or what an earlier `sign` wrote.
        #[arg(long = "in", value_name = "FILE")]
        input: PathBuf,
        /// File that `bandana keys generate` wrote.
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
        /// Days until the signature expires: 1 to 3650. Sign again before that.
        #[arg(long, value_name = "DAYS",
              value_parser = clap::value_parser!(u32).range(1..=i64::from(SIGNATURE_DAYS_MAX)))]
        expires_days: u32,
        /// File for the keys with all signatures, which must not exist yet.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// Do not ask for confirmation.
        #[arg(long)]
        yes: bool,
    },
}

pub(super) fn run(command: &GatewayKeyCommand) -> anyhow::Result<()> {
    match command {
        GatewayKeyCommand::Generate { out } => generate(out),
        GatewayKeyCommand::Show { file } => show(file),
        GatewayKeyCommand::Sign { input, key, expires_days, out, yes } => {
            sign(input, key, *expires_days, out, *yes)
        }
    }
}

fn generate(out: &Path) -> anyhow::Result<()> {
    let key = GatewayKey::generate()?;
    let keys = v1::GatewayKeys {
        key_configurations: key.keys()?.configurations().to_vec().into(),
        ..v1::GatewayKeys::default()
    };
    let public = out.with_added_extension("pub");
    write_new(out, key.to_text().as_bytes(), Readers::Owner)?;
    write_new(&public, &keys.encode_to_vec(), Readers::Default)?;
    say(&format!("{}\nthe public keys are in {}\n", key.keys()?, public.display()))
}

fn show(file: &Path) -> anyhow::Result<()> {
    let keys = match GatewayKey::read(file) {
        Ok(key) => key.keys()?,
        // A public key is no text.
        Err(_) => GatewayKeys::new(&read_keys(file)?.key_configurations)
            .with_context(|| format!("{} does not hold the keys of a gateway", file.display()))?,
    };
    say(&format!("{keys}\n"))
}

fn sign(input: &Path, key: &Path, days: u32, out: &Path, yes: bool) -> anyhow::Result<()> {
    let consent = Consent::new(SIGN, yes, std::io::stdin().is_terminal())?;
    let mut message = read_keys(input)?;
    let keys = GatewayKeys::new(&message.key_configurations)
        .with_context(|| format!("{} does not hold the keys of a gateway", input.display()))?;
    let key = key_file::read(key)?;
    let expires = UnixSeconds::new(SystemClock::new().unix_seconds()).after_days(days);
    let signer = key.public_key();
    say(&format!("gateway keys  {keys}\nsigned by     {signer}\nuntil         {expires}\n"))?;
    consent.obtain(std::io::stdin().lock(), std::io::stderr())?;
    let signer: &[u8] = signer.as_bytes();
    message.signatures.retain(|signature| signature.public_key != signer);
    ensure!(
        message.signatures.len() < SIGNATURES_MAX,
        "there are {SIGNATURES_MAX} signatures already, of which devices look at no more; begin \
         with the file that `bandana gateway-key generate` wrote"
    );
    message.signatures.push((&key.sign(&keys, expires)).into());
    write_new(out, &message.encode_to_vec(), Readers::Default)?;
    say(&format!("the signed keys are in {}\n", out.display()))
}
