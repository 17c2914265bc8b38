//! `bandana experiment record`.

use bandana_shared::wire::v1::{ArmCost, Decision, HarmAction, SetRecordRequest, Texts};
use clap::{Args, ValueEnum};

use super::experiment::ExperimentArgs;
use crate::views::experiment_settings::terms::labelled_cost;
use crate::views::failure::Failure;

/// Write down what an experiment is for, who answers for it, and what was decided.
///
/// What you leave out stays as it is. An empty text removes what is there: --title "", --tag "",
/// --decision "". This makes no new revision, and devices do not see it. `bandana experiment show`
/// shows it. You can write it in every state, also after the experiment has ended.
#[derive(Debug, Args)]
pub(super) struct Record {
    #[command(flatten)]
    named: ExperimentArgs,
    /// Title, on one line: at most 200 characters.
    #[arg(long)]
    title: Option<String>,
    /// What is expected, and why: at most 4000 characters.
    #[arg(long, value_name = "TEXT")]
    hypothesis: Option<String>,
    /// Who answers for it.
    #[arg(long)]
    owner: Option<String>,
    /// A tag. Repeat the flag for up to 20 tags. They replace the present ones.
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// An address, such as that of a ticket or a design. Repeat the flag for up to 20 addresses.
    /// They replace the present ones.
    #[arg(long = "link", value_name = "URL")]
    links: Vec<String>,
    /// What was decided, on one line. It needs --reason.
    #[arg(long, value_name = "TEXT")]
    decision: Option<String>,
    /// Why it was decided: at most 4000 characters.
    #[arg(long, value_name = "TEXT", requires = "decision")]
    reason: Option<String>,
    /// Label or index of the arm that was decided for.
    #[arg(long, value_name = "ARM", requires = "decision")]
    decided_for: Option<String>,
    /// Label or index of the control arm; 0 unless you set it.
    #[arg(long, value_name = "ARM")]
    control: Option<String>,
    /// What a choice of an arm costs from now on, in the unit of the rewards: ARM=COST. ARM is a
    /// label or an index, and a cost of 0 takes the cost away. Repeat the flag for each arm.
    #[arg(long = "arm-cost", value_name = "ARM=COST")]
    arm_costs: Vec<String>,
    /// What happens if an arm is beyond a metric's limit. In each case, the arm gets no traffic.
    ///
    /// After you resume the experiment, the same arm and metric do not pause it again. Give this
    /// flag again if they should.
    #[arg(long, value_enum, value_name = "ACTION")]
    on_harm: Option<OnHarm>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OnHarm {
    /// Nothing else.
    StopArm,
    /// The experiment is paused until you resume it.
    Pause,
}

impl From<OnHarm> for HarmAction {
    fn from(action: OnHarm) -> Self {
        match action {
            OnHarm::StopArm => Self::StopArm,
            OnHarm::Pause => Self::Pause,
        }
    }
}

pub(super) fn record(record: &Record) -> anyhow::Result<()> {
    record.check()?;
    let decided_for = record.find(record.decided_for.as_deref())?;
    let control_arm = record.find(record.control.as_deref())?;
    let cost = |text: &String| {
        let (arm, cost) = labelled_cost(text)?;
        Ok(ArmCost { arm: record.named.find_arm(arm)?, cost })
    };
    let arm_costs = record.arm_costs.iter().map(cost).collect::<anyhow::Result<_>>()?;
    let texts = |texts: &[String]| (!texts.is_empty()).then(|| Texts { texts: texts.to_vec() });
    let decision = record.decision.as_ref().map(|decision| Decision {
        decision: decision.clone(),
        reason: record.reason.clone().unwrap_or_default(),
        arm: decided_for,
    });
    record.named.changed(async |mut client, name| {
        let request = SetRecordRequest {
            experiment_id: name.experiment_id,
            title: record.title.clone(),
            hypothesis: record.hypothesis.clone(),
            owner: record.owner.clone(),
            tags: texts(&record.tags),
            links: texts(&record.links),
            decision,
            control_arm,
            on_harm: record.on_harm.map_or(HarmAction::Unspecified, Into::into).into(),
            arm_costs,
        };
        client.set_record(request).await
    })
}

impl Record {
    /// Rejects a call that says nothing to write.
    fn check(&self) -> Result<(), Failure> {
        let texts = [&self.title, &self.hypothesis, &self.owner, &self.decision, &self.control];
        let is_empty = texts.iter().all(|text| text.is_none())
            && self.on_harm.is_none()
            && self.tags.is_empty()
            && self.arm_costs.is_empty()
            && self.links.is_empty();
        if is_empty {
            return Err(Failure::Incomplete(
                "there is nothing to write; give --title, --hypothesis, --owner, --tag, --link, \
                 --decision with --reason, --control, --arm-cost or --on-harm; `bandana experiment \
                 show` shows what is written"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    fn find(&self, arm: Option<&str>) -> anyhow::Result<Option<u32>> {
        arm.map(|arm| self.named.find_arm(arm)).transpose()
    }
}
