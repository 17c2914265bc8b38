//! `bandana trusted`.

use bandana_edge::operator_client::TrustedClient;
use bandana_shared::identity::ExperimentId;
use bandana_shared::wire::v1::{
    ExperimentView as Extent, ListTrustedExperimentsRequest, TrustedExperimentName, TrustedStatus,
};
use clap::{Args, Subcommand};
use serde::Serialize;
use tonic::{Response, Status};

use super::connection::{Connection, block_on, experiment_id};
use super::consent::Prompt;
use super::experiment::{ConnectionArgs, DELETE, ExperimentArgs};
use super::export_file::ExportFile;
use crate::views::failure::Failure;
use crate::views::released_view::{self, ReleasedView};
use crate::views::table::terminal_columns;
use crate::views::trusted_settings::TrustedSettings;
use crate::views::trusted_view::{FIELDS, TrustedView, list};

const STOP: Prompt = Prompt {
    act: "stop the experiment for good, and erase the rewards of which nothing was released",
    undone: "nothing was stopped",
    unasked: "the experiment may end for good",
};

const COLUMNS: &str = "\
One record for each arm or action, with the columns experiment_id, algorithm, rho, rewards_in_all \
(those that count, released or not), releases, arm (its number), mean (empty when nothing of it was \
released), rewards (those behind the mean) and noise_deviation (the standard deviation of the noise \
in it). For adac-gope coordinate_0 and so on, the action, instead of these two; for adac-oful a \
record for each coordinate, with coordinate and parameter instead of arm and all after it. A \
Parquet file has the columns of the CSV, typed, and null where there is no mean.";

#[derive(Debug, Subcommand)]
pub(super) enum Trusted {
    /// Create and start an experiment in which users disclose their rewards to the server.
    ///
    /// It needs --rewards-are-disclosed, so that nobody creates one by mistake. The server checks
    /// all values.
    #[command(after_long_help = FIELDS)]
    Create(Box<Create>),
    /// List trusted experiments.
    ///
    /// With --json: {"experiments": [...]}, each as `bandana trusted show` has it.
    List {
        /// List archived experiments too.
        #[arg(long)]
        archived: bool,
        #[command(flatten)]
        reach: ConnectionArgs,
    },
    /// Show a trusted experiment, and what is protected.
    #[command(after_long_help = FIELDS)]
    Show(ExperimentArgs),
    /// Refuse rewards for now. Devices keep them, and the server still recommends what to play.
    ///
    /// A reward keeps the day on which it was disclosed. After a pause as long as the replay window
    /// (7 days by default), the server refuses it as expired.
    Pause(ExperimentArgs),
    /// Take rewards of a paused experiment again.
    Resume(ExperimentArgs),
    /// End a trusted experiment for good, and erase the rewards of which nothing was released.
    Stop {
        #[command(flatten)]
        named: ExperimentArgs,
        /// Do not ask for confirmation.
        #[arg(long)]
        yes: bool,
    },
    /// Hide an ended experiment from lists. You can still read what was released.
    Archive(ExperimentArgs),
    /// Show an archived experiment in lists again.
    Unarchive(ExperimentArgs),
    /// Delete an experiment that has ended, with all that was released of it.
    ///
    /// Its entries in the audit log stay. You can't use its id again. With --json:
    /// {"experiment_id": ..., "deleted": true}.
    Delete {
        #[command(flatten)]
        named: ExperimentArgs,
        /// Do not ask for confirmation.
        #[arg(long)]
        yes: bool,
    },
    /// Show what was released: statistics with their noise, and counts.
    #[command(after_long_help = released_view::FIELDS)]
    Released(ExperimentArgs),
    /// Write released statistics to a file.
    #[command(after_long_help = COLUMNS)]
    Export(Export),
}

/// Which trusted experiment there is to be.
#[derive(Debug, Args)]
pub(super) struct Create {
    #[command(flatten)]
    settings: TrustedSettings,
    #[command(flatten)]
    reach: ConnectionArgs,
}

/// Which statistics go where.
#[derive(Debug, Args)]
pub(super) struct Export {
    /// Id of the experiment.
    #[arg(value_name = "ID", value_parser = experiment_id)]
    experiment: ExperimentId,
    #[command(flatten)]
    file: ExportFile,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, Serialize)]
struct Listed {
    experiments: Vec<TrustedView>,
}

pub(super) fn run(trusted: Trusted) -> anyhow::Result<()> {
    match trusted {
        Trusted::Create(wanted) => create(*wanted),
        Trusted::List { archived, reach } => list_all(&reach, archived),
        Trusted::Show(named) => {
            let view =
                change(&named, async |mut client, name| client.get_trusted_status(name).await)?;
            named.reach.print(&view, |view| view.describe(terminal_columns()))
        }
        Trusted::Pause(named) => {
            changed(&named, async |mut client, name| client.pause_trusted_experiment(name).await)
        }
        Trusted::Resume(named) => {
            changed(&named, async |mut client, name| client.resume_trusted_experiment(name).await)
        }
        Trusted::Stop { named, yes } => {
            STOP.confirmed(yes)?;
            changed(&named, async |mut client, name| client.stop_trusted_experiment(name).await)
        }
        Trusted::Archive(named) => {
            changed(&named, async |mut client, name| client.archive_trusted_experiment(name).await)
        }
        Trusted::Unarchive(named) => changed(&named, async |mut client, name| {
            client.unarchive_trusted_experiment(name).await
        }),
        Trusted::Delete { named, yes } => {
            DELETE.confirmed(yes)?;
            delete(&named)
        }
        Trusted::Released(named) => {
            let view = block_on(released(&named.reach.connection, &named.experiment))?;
            named.reach.print(&view, |view| view.describe(terminal_columns()))
        }
        Trusted::Export(export) => {
            export.file.check()?;
            let view = block_on(released(&export.connection, &export.experiment))?;
            export.file.write(&view.columns())
        }
    }
}

fn create(wanted: Create) -> anyhow::Result<()> {
    let request = wanted.settings.request()?;
    let view = block_on(async {
        let mut client = wanted.reach.connection.connect_trusted().await?;
        let status = client.create_trusted_experiment(request).await.map_err(Failure::from)?;
        TrustedView::new(status.get_ref())
    })?;
    wanted.reach.print(&view, |view| view.describe(terminal_columns()))
}

fn list_all(reach: &ConnectionArgs, show_archived: bool) -> anyhow::Result<()> {
    let extent = if reach.is_json() { Extent::Full } else { Extent::Summary };
    let listed = block_on(async {
        let mut client = reach.connection.connect_trusted().await?;
        let view = extent.into();
        let mut request =
            ListTrustedExperimentsRequest { view, show_archived, ..Default::default() };
        let mut experiments = Vec::new();
        loop {
            let answer = client.list_trusted_experiments(request.clone()).await;
            let answer = answer.map_err(Failure::from)?.into_inner();
            for status in &answer.experiments {
                experiments.push(TrustedView::new(status)?);
            }
            if answer.next_page_token.is_empty() {
                return anyhow::Ok(Listed { experiments });
            }
            request.page_token = answer.next_page_token;
        }
    })?;
    reach.print(&listed, |listed| list(&listed.experiments, terminal_columns()))
}

fn delete(named: &ExperimentArgs) -> anyhow::Result<()> {
    block_on(async {
        let mut client = named.reach.connection.connect_trusted().await?;
        let name = TrustedExperimentName { experiment_id: named.experiment.to_string() };
        client.delete_trusted_experiment(name).await.map_err(Failure::from)?;
        named.reach.deleted(&named.experiment)
    })
}

/// Makes one call about an experiment, and reads the answer.
fn change(
    named: &ExperimentArgs,
    call: impl AsyncFnOnce(
        TrustedClient,
        TrustedExperimentName,
    ) -> Result<Response<TrustedStatus>, Status>,
) -> anyhow::Result<TrustedView> {
    block_on(async {
        let client = named.reach.connection.connect_trusted().await?;
        let name = TrustedExperimentName { experiment_id: named.experiment.to_string() };
        let status = call(client, name).await.map_err(Failure::from)?;
        TrustedView::new(status.get_ref())
    })
}

/// Makes a change, and prints the resulting state of the experiment.
fn changed(
    named: &ExperimentArgs,
    call: impl AsyncFnOnce(
        TrustedClient,
        TrustedExperimentName,
    ) -> Result<Response<TrustedStatus>, Status>,
) -> anyhow::Result<()> {
    let view = change(named, call)?;
    named.reach.print(&view, TrustedView::line)
}

async fn released(connection: &Connection, id: &ExperimentId) -> anyhow::Result<ReleasedView> {
    let mut client = connection.connect_trusted().await?;
    let name = TrustedExperimentName { experiment_id: id.to_string() };
    let released = client.get_released(name).await.map_err(Failure::from)?.into_inner();
    let status = released.experiment.clone().unwrap_or_default();
    Ok(ReleasedView::new(&TrustedView::new(&status)?, released))
}
