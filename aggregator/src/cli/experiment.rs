//! `bandana experiment`.

use std::borrow::Cow;
use std::path::PathBuf;

use bandana_shared::identity::ExperimentId;
use bandana_shared::participation::{Millionths, ParticipationError};
use bandana_shared::wire::v1::{
    AddArmRequest, Arm, ExperimentName, ExperimentStatus, ExperimentView as Extent,
    RetireArmRequest, SetEnrolmentRequest,
};
use clap::{Args, Subcommand, ValueHint};
use serde::Serialize;
use tonic::{Response, Status};

use super::connection::{Client, Connection, block_on, experiment_id};
use super::consent::Prompt;
use super::export::{Export, export};
use super::record::{Record, record};
use super::{say, say_json, verdict, warn};
use crate::api::NONLINEAR;
use crate::labels;
use crate::views::experiment_settings::ExperimentSettings;
use crate::views::experiment_view::{Deleted, ExperimentView, fields};
use crate::views::failure::Failure;
use crate::views::summary_view::{self, SummaryView};
use crate::views::table::terminal_columns;

const STOP: Prompt = Prompt {
    act: "stop the experiment for good",
    undone: "nothing was stopped",
    unasked: "the experiment may end for good",
};

pub(super) const DELETE: Prompt = Prompt {
    act: "delete the experiment with all that it has counted, for good",
    undone: "nothing was deleted",
    unasked: "the experiment may go for good",
};

/// Create, show and change experiments on a running server.
#[derive(Debug, Subcommand)]
pub(super) enum Experiment {
    /// Create and start an experiment, from flags, a TOML file, or both.
    ///
    /// A flag overrides the file. The server checks all values.
    #[command(after_long_help = fields())]
    Create(Box<Create>),
    /// List experiments.
    ///
    /// With --json: {"experiments": [...]}, each as `bandana experiment show` has it.
    List {
        /// List archived experiments too.
        #[arg(long)]
        archived: bool,
        #[command(flatten)]
        reach: ConnectionArgs,
    },
    /// Show an experiment, its terms and what its estimates mean.
    #[command(after_long_help = fields())]
    Show(ExperimentArgs),
    /// Start a draft: devices see it from now on.
    Start(ExperimentArgs),
    /// Refuse uploads for now. Devices keep their reports, and still get arms.
    ///
    /// An upload keeps the day on which it was made. After a pause as long as the replay window (7
    /// days by default), the server refuses it as expired.
    Pause(ExperimentArgs),
    /// Take uploads of a paused experiment again.
    Resume(ExperimentArgs),
    /// End an experiment for good.
    Stop {
        #[command(flatten)]
        named: ExperimentArgs,
        /// Do not ask for confirmation.
        #[arg(long)]
        yes: bool,
    },
    /// Hide an ended experiment from lists. You can still read all of it.
    Archive(ExperimentArgs),
    /// Show an archived experiment in lists again.
    Unarchive(ExperimentArgs),
    /// Delete an experiment that has ended, with its revisions, signatures and tallies.
    ///
    /// Its entries in the audit log stay. You can't use its id again, since devices may still hold
    /// reports for it. They are told that it has ended, and drop those reports. With --json:
    /// {"experiment_id": ..., "deleted": true}.
    Delete {
        #[command(flatten)]
        named: ExperimentArgs,
        /// Do not ask for confirmation.
        #[arg(long)]
        yes: bool,
    },
    /// Append an arm, in a new revision.
    ///
    /// If the experiment is signed, sign the new revision too (`bandana sign`).
    AddArm {
        #[command(flatten)]
        named: ExperimentArgs,
        /// Label of the arm.
        label: String,
    },
    /// Retire an arm, in a new revision. Reports for it still count.
    ///
    /// If the experiment is signed, sign the new revision too (`bandana sign`).
    RetireArm {
        #[command(flatten)]
        named: ExperimentArgs,
        /// Label or index of the arm, as `bandana experiment show` has them.
        #[arg(required_unless_present = "index")]
        arm: Option<String>,
        /// Index of the arm, if its label could be mistaken for another arm's.
        #[arg(long, conflicts_with = "arm")]
        index: Option<u32>,
    },
    /// Change the share of the installations that takes part, in a new revision.
    ///
    /// If you raise the share, those that take part stay, and others join them.
    ///
    /// If the experiment is signed, sign the new revision too (`bandana sign`).
    Enrol {
        #[command(flatten)]
        named: ExperimentArgs,
        /// The share that takes part from now on: above 0, at most 1.
        share: f64,
    },
    Record(Record),
    Export(Export),
}

/// Which server, and what to print.
#[derive(Debug, Args)]
pub(super) struct ConnectionArgs {
    #[command(flatten)]
    pub(super) connection: Connection,
    /// Print a JSON object for programs.
    #[arg(long)]
    json: bool,
}

/// Which experiment.
#[derive(Debug, Args)]
pub(super) struct ExperimentArgs {
    /// Id of the experiment.
    #[arg(value_name = "ID", value_parser = experiment_id)]
    pub(super) experiment: ExperimentId,
    #[command(flatten)]
    pub(super) reach: ConnectionArgs,
}

/// Which experiment there is to be.
#[derive(Debug, Args)]
pub(super) struct Create {
    #[command(flatten)]
    settings: ExperimentSettings,
    /// File with these settings (TOML). Its keys are the names of the flags, with underscores.
    #[arg(help_heading = "Other")]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: Option<PathBuf>,
    /// File with what you know of the arms beforehand (CSV). Its columns are arm (a label), mean
    /// (the arm's mean reward) and worth (how many private reports would tell as much). An export
    /// of the estimates of an earlier experiment works too. In a file of settings: `priors`, a list
    /// of LABEL=MEAN:WORTH.
    ///
    /// Only the learner uses it, as what it begins with. No estimate and no verdict counts it.
    #[arg(help_heading = "Traffic")]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    prior: Option<PathBuf>,
    /// Needed for a quadratic or exponential mechanism on bounded rewards.
    ///
    /// The server then learns the mean of g(reward), and may prefer an arm whose mean
    /// reward is lower.
    #[arg(help_heading = "Rewards and reports")]
    #[arg(long)]
    accept_nonlinear_estimand: bool,
    /// Only make a draft. Devices see nothing of it until `bandana experiment start`.
    ///
    /// Until then, you can change its arms and sign it.
    #[arg(help_heading = "Other")]
    #[arg(long = "draft")]
    is_draft: bool,
    #[command(flatten, next_help_heading = "Connection")]
    reach: ConnectionArgs,
}

/// Makes a call that takes an experiment's name, and prints the resulting state.
macro_rules! step {
    ($named:ident, $call:ident) => {
        $named.changed(async |mut client, name| client.$call(name).await)
    };
}

pub(super) fn run(experiment: Experiment) -> anyhow::Result<()> {
    match experiment {
        Experiment::Create(wanted) => block_on(create(*wanted)),
        Experiment::List { archived, reach } => block_on(list_all(&reach, archived)),
        Experiment::Show(named) => {
            let view =
                change(&named, async |mut client, name| client.get_experiment_status(name).await)?;
            named.reach.print(&view, |view| view.describe(terminal_columns()))
        }
        Experiment::Start(named) => step!(named, start_experiment),
        Experiment::Pause(named) => step!(named, pause_experiment),
        Experiment::Resume(named) => step!(named, resume_experiment),
        Experiment::Stop { named, yes } => {
            STOP.confirmed(yes)?;
            step!(named, stop_experiment)
        }
        Experiment::Archive(named) => step!(named, archive_experiment),
        Experiment::Unarchive(named) => step!(named, unarchive_experiment),
        Experiment::Delete { named, yes } => {
            DELETE.confirmed(yes)?;
            block_on(delete(&named))
        }
        Experiment::AddArm { named, label } => named.changed(async |mut client, name| {
            let ExperimentName { experiment_id } = name;
            client.add_arm(AddArmRequest { experiment_id, label: label.clone() }).await
        }),
        Experiment::RetireArm { named, arm, index } => {
            let arm = match (index, arm) {
                (Some(index), _) => index,
                (None, arm) => named.find_arm(&arm.unwrap_or_default())?,
            };
            named.changed(async |mut client, name| {
                let ExperimentName { experiment_id } = name;
                client.retire_arm(RetireArmRequest { experiment_id, arm }).await
            })
        }
        Experiment::Enrol { named, share } => {
            let refused = |error: ParticipationError| Failure::Refused(error.to_string());
            let share = Millionths::from_share(share).map_err(refused)?;
            named.changed(async |mut client, name| {
                let (experiment_id, enrolment_millionths) = (name.experiment_id, share.get());
                client
                    .set_enrolment(SetEnrolmentRequest { experiment_id, enrolment_millionths })
                    .await
            })
        }
        Experiment::Record(wanted) => record(&wanted),
        Experiment::Export(wanted) => export(&wanted),
    }
}

type Answer = Result<Response<ExperimentStatus>, Status>;

/// Makes one call about an experiment, and reads the answer.
fn change(
    named: &ExperimentArgs,
    call: impl AsyncFnOnce(Client, ExperimentName) -> Answer,
) -> anyhow::Result<ExperimentView> {
    block_on(async {
        let client = named.reach.connection.connect().await?;
        let name = ExperimentName { experiment_id: named.experiment.to_string() };
        let status = call(client, name).await.map_err(Failure::from)?;
        ExperimentView::new(status.get_ref())
    })
}

/// The index of an arm given by label, if an arm in play has that label, or else by index.
pub(super) async fn find_arm(
    connection: &Connection,
    experiment: &ExperimentId,
    text: &str,
) -> anyhow::Result<u32> {
    let mut client = connection.connect().await?;
    let name = ExperimentName { experiment_id: experiment.to_string() };
    let status = client.get_experiment_status(name).await.map_err(Failure::from)?.into_inner();
    let arms = status.specification.unwrap_or_default().arms;
    // As the server keeps it.
    let label = labels::normalized(text).unwrap_or(Cow::Borrowed(text));
    Ok(arm_of(&arms, &label)?)
}

impl ExperimentArgs {
    /// See [`find_arm`].
    pub(super) fn find_arm(&self, text: &str) -> anyhow::Result<u32> {
        block_on(find_arm(&self.reach.connection, &self.experiment, text))
    }

    /// Makes a change, and prints the resulting state of the experiment.
    pub(super) fn changed(
        &self,
        call: impl AsyncFnOnce(Client, ExperimentName) -> Answer,
    ) -> anyhow::Result<()> {
        let view = change(self, call)?;
        self.reach.print(&view, ExperimentView::line)
    }
}

impl ConnectionArgs {
    /// Prints that an experiment was deleted.
    pub(super) fn deleted(&self, id: &ExperimentId) -> anyhow::Result<()> {
        let view = Deleted::new(id.to_string());
        self.print(&view, |_| format!("{id} is deleted\n"))
    }

    pub(super) fn is_json(&self) -> bool {
        self.json
    }

    pub(super) fn print<V: Serialize>(
        &self,
        view: &V,
        for_people: impl FnOnce(&V) -> String,
    ) -> anyhow::Result<()> {
        if self.json { say_json(view) } else { say(&for_people(view)) }
    }
}

fn arm_of(arms: &[Arm], text: &str) -> Result<u32, Failure> {
    let labelled = (0_u32..).zip(arms).filter(|(_, arm)| arm.label == text && !arm.retired);
    let labelled: Vec<u32> = labelled.map(|(index, _)| index).collect();
    match (&labelled[..], text.parse()) {
        ([], Ok(index)) => Ok(index),
        ([label], Err(_)) => Ok(*label),
        ([label], Ok(index)) if *label == index => Ok(index),
        ([], Err(_)) => {
            let labels =
                arms.iter().filter(|arm| !arm.retired).map(|arm| format!("{:?}", arm.label));
            let labels = labels.collect::<Vec<_>>().join(", ");
            Err(Failure::Refused(format!(
                "no arm in play is called {text:?}; the arms in play are {labels}"
            )))
        }
        (labels, _) => {
            let mut all: Vec<u32> = labels.to_vec();
            all.extend(text.parse::<u32>());
            Err(Failure::Refused(format!(
                "{text} can be any of the arms with the indexes {all:?}; say which with --index"
            )))
        }
    }
}

async fn create(wanted: Create) -> anyhow::Result<()> {
    let file = match &wanted.file {
        Some(path) => ExperimentSettings::read(path)?,
        None => ExperimentSettings::default(),
    };
    let mut settings = wanted.settings.over(file);
    if let Some(path) = &wanted.prior {
        let others;
        (settings, others) = settings.with_prior(path)?;
        if !others.is_empty() {
            let (path, others) = (path.display(), others.join(", "));
            warn(&format!(
                "warning: {path}: left out, as they are no arms of this experiment: {others}"
            ));
        }
    }
    let budget_warning = settings.budget_warning();
    let mut request = settings.request(wanted.accept_nonlinear_estimand)?;
    request.draft = wanted.is_draft;
    if let Some(warning) = budget_warning {
        warn(&format!("warning: {warning}"));
    }
    let mut client = wanted.reach.connection.connect().await?;
    let status = client.create_experiment(request).await.map_err(Failure::from)?;
    let view = ExperimentView::new(status.get_ref())?;
    if view.has_nonlinear_estimand() {
        warn(&format!("warning: {NONLINEAR}"));
    }
    wanted.reach.print(&view, |view| view.describe(terminal_columns()))?;
    if let (false, Some(expected)) = (wanted.reach.json, verdict::expected(status.get_ref())) {
        warn(&format!("note: {expected}"));
    }
    Ok(())
}

#[derive(Debug, Serialize)]
struct Listed {
    experiments: Vec<ExperimentView>,
}

async fn list_all(reach: &ConnectionArgs, archived: bool) -> anyhow::Result<()> {
    let mut client = reach.connection.connect().await?;
    if reach.json {
        let all = summary_view::all(&mut client, Extent::Full, archived).await?;
        let views = all.iter().map(ExperimentView::new);
        return say_json(&Listed { experiments: views.collect::<Result<_, _>>()? });
    }
    let all = summary_view::all(&mut client, Extent::Summary, archived).await?;
    let views: Vec<_> = all.iter().map(SummaryView::from).collect();
    say(&summary_view::list(&views, terminal_columns()))
}

async fn delete(named: &ExperimentArgs) -> anyhow::Result<()> {
    let mut client = named.reach.connection.connect().await?;
    let name = ExperimentName { experiment_id: named.experiment.to_string() };
    client.delete_experiment(name).await.map_err(Failure::from)?;
    named.reach.deleted(&named.experiment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_are_found_by_label_and_by_index() {
        let arm = |label: &str| Arm { label: label.to_owned(), retired: false };
        let arms = [arm("blue"), arm("2"), arm("green"), Arm { retired: true, ..arm("red") }];
        for (text, index) in [("blue", 0), ("green", 2), ("0", 0), ("3", 3), ("9", 9)] {
            assert_eq!(arm_of(&arms, text).unwrap(), index, "{text}");
        }
        let ambiguous = arm_of(&arms, "2").unwrap_err().to_string();
        assert!(ambiguous.contains("--index") && ambiguous.contains("[1, 2]"), "{ambiguous}");
        for unknown in ["red", "violet"] {
            let refused = arm_of(&arms, unknown).unwrap_err().to_string();
            assert!(refused.contains("\"blue\", \"2\", \"green\""), "{refused}");
        }
    }
}
