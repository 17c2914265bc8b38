//! `bandana sign`.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, ensure};
use bandana_edge::clock::{Clock as _, SystemClock};
use bandana_shared::identity::{ExperimentId, UnixSeconds};
use bandana_shared::limits::SIGNATURE_DAYS_MAX;
use bandana_shared::signing::{Signature, SigningKey};
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::{self, AddSignatureRequest, ExperimentName};
use bandana_shared::wire::{WireError, decode_specification};
use clap::{Args, Subcommand};
use prost::Message as _;

use super::connection::{Connection, block_on, experiment_id};
use super::consent::{Consent, Prompt};
use super::disclosure::table;
use super::{Readers, key_file, say, write_new};
use crate::views::experiment_view::current_revision;
use crate::views::failure::Failure;

const SIGN: Prompt = Prompt {
    act: "sign this",
    undone: "nothing was signed",
    unasked: "what the server has may be signed unseen",
};

/// Sign an experiment, for apps that take part in signed ones only.
///
/// The command fetches the current revision from the server, shows you all that you sign, asks you,
/// and hands in the signature. A new revision needs a new signature. If your key is on a host
/// without network, run `export` on a host that reaches the server, `file` on the host of the key,
/// and then `submit`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct Sign {
    #[command(flatten)]
    terms: Option<Terms>,
    #[command(flatten)]
    connection: Connection,
    /// Id of the experiment.
    #[arg(long, value_name = "ID", value_parser = experiment_id, required = true)]
    experiment: Option<ExperimentId>,
    #[command(subcommand)]
    step: Option<Step>,
}

/// The steps of signing on a host without network.
#[derive(Debug, Subcommand)]
enum Step {
    /// Write the canonical bytes of an experiment's current revision to a file.
    Export {
        #[command(flatten)]
        target: Target,
        /// File for the bytes, which must not exist yet.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Sign exported bytes. This needs no network.
    File {
        #[command(flatten)]
        terms: Terms,
        /// File that `export` wrote.
        #[arg(long = "in", value_name = "FILE")]
        input: PathBuf,
        /// File for the signature, which must not exist yet.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Hand a signature to the server.
    Submit {
        #[command(flatten)]
        target: Target,
        /// File that `file` wrote.
        #[arg(long = "in", value_name = "FILE")]
        input: PathBuf,
    },
}

/// Who signs, and until when.
#[derive(Debug, Args)]
struct Terms {
    /// File that `bandana keys generate` wrote.
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Days until the signature expires: 1 to 3650. Sign again before that.
    #[arg(long, value_name = "DAYS",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(SIGNATURE_DAYS_MAX)))]
    expires_days: u32,
    /// Do not ask for confirmation.
    #[arg(long)]
    yes: bool,
}

/// Which experiment.
#[derive(Debug, Args)]
struct Target {
    #[command(flatten)]
    connection: Connection,
    /// Id of the experiment.
    #[arg(long, value_name = "ID", value_parser = experiment_id)]
    experiment: ExperimentId,
}

pub(super) fn run(sign: Sign) -> anyhow::Result<()> {
    match sign {
        Sign { step: Some(Step::Export { target, out }), .. } => {
            let specification = block_on(target.fetch())?;
            write_new(&out, &specification.canonical_bytes(), Readers::Default)?;
            say(&format!("{} is in {}\n", title(&specification), out.display()))
        }
        Sign { step: Some(Step::File { terms, input, out }), .. } => {
            sign_file(&terms, &input, &out)
        }
        Sign { step: Some(Step::Submit { target, input }), .. } => {
            let signature = read_signature(&input)?;
            let specification = block_on(target.fetch())?;
            ensure!(
                signature.fits(&specification),
                "the signature in {} is not for {}, which the server has now; export that and sign \
                 it",
                input.display(),
                title(&specification)
            );
            block_on(target.add(&specification, &signature))
        }
        Sign { terms: Some(terms), connection, experiment: Some(experiment), step: None } => {
            let target = Target { connection, experiment };
            // Detectable errors are reported before the prompt.
            terms.read_key()?;
            terms.consent()?;
            let specification = block_on(target.fetch())?;
            let signature = terms.sign(&specification)?;
            block_on(target.add(&specification, &signature))
        }
        // The command line has both unless it names a step.
        _ => Err(anyhow!("name what to sign; `bandana sign --help` says how")),
    }
}

impl Terms {
    /// Displays the specification, obtains consent, and signs.
    fn sign(&self, specification: &Specification) -> anyhow::Result<Signature> {
        let key = self.read_key()?;
        let expires =
            UnixSeconds::new(SystemClock::new().unix_seconds()).after_days(self.expires_days);
        say(&table(specification, key.public_key(), expires))?;
        self.consent()?.obtain(std::io::stdin().lock(), std::io::stderr())?;
        Ok(key.sign(specification, expires))
    }

    fn read_key(&self) -> anyhow::Result<SigningKey> {
        Ok(key_file::read(&self.key)?)
    }

    fn consent(&self) -> anyhow::Result<Consent> {
        Consent::new(SIGN, self.yes, std::io::stdin().is_terminal())
    }
}

impl Target {
    /// The current revision.
    async fn fetch(&self) -> anyhow::Result<Specification> {
        let name = ExperimentName { experiment_id: self.experiment.to_string() };
        let status = self.connection.connect().await?.get_experiment_status(name).await;
        let status = status.map_err(Failure::from)?.into_inner();
        let specification = current_revision(&status)
            .context("what the server sent is not an experiment that this program understands")?;
        ensure!(
            *specification.experiment_id() == self.experiment,
            "the server sent the experiment {} instead of {}",
            specification.experiment_id(),
            self.experiment
        );
        Ok(specification)
    }

    /// Submits a signature, and prints the outcome.
    async fn add(
        &self,
        specification: &Specification,
        signature: &Signature,
    ) -> anyhow::Result<()> {
        let digest = specification.digest();
        let request = AddSignatureRequest {
            experiment_id: specification.experiment_id().to_string(),
            digest: digest.as_bytes().to_vec().into(),
            signature: Some(signature.into()),
        };
        let status = self.connection.connect().await?.add_signature(request).await;
        let status = status.map_err(Failure::from)?.into_inner();
        let (key, expires) = (signature.key(), signature.expires());
        say(&format!("signed {} by {key} until {expires}\n", title(specification)))?;
        ensure!(
            status.digest[..] == digest.as_bytes()[..],
            "the experiment got a new revision in the meantime, and devices get that one; sign it \
             too"
        );
        Ok(())
    }
}

fn sign_file(terms: &Terms, input: &Path, out: &Path) -> anyhow::Result<()> {
    terms.consent()?;
    let bytes = std::fs::read(input).with_context(|| format!("can't read {}", input.display()))?;
    let specification = decode_specification(&bytes).with_context(|| {
        format!("{} does not hold what `bandana sign export` wrote", input.display())
    })?;
    let signature = terms.sign(&specification)?;
    let message = v1::SpecificationSignature::from(&signature).encode_to_vec();
    write_new(out, &message, Readers::Default)?;
    say(&format!("the signature is in {}\n", out.display()))
}

fn read_signature(input: &Path) -> anyhow::Result<Signature> {
    let bytes = std::fs::read(input).with_context(|| format!("can't read {}", input.display()))?;
    v1::SpecificationSignature::decode(&bytes[..])
        .map_err(WireError::from)
        .and_then(|message| Signature::try_from(&message))
        .with_context(|| {
            format!("{} does not hold what `bandana sign file` wrote", input.display())
        })
}

fn title(specification: &Specification) -> String {
    format!("{}, revision {}", specification.experiment_id(), specification.revision().get())
}
