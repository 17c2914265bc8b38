//! Terms of the arms of a new experiment: what is known of them beforehand, and what they cost.

use std::borrow::Cow;
use std::path::Path;

use anyhow::{Context as _, bail};
use bandana_shared::channel::Floor;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::estimate::manipulation_gain;
use bandana_shared::wire::v1::{ArmCost, ArmPrior};

use super::ExperimentSettings;
use crate::labels;
use crate::views::columns::as_it_was;
use crate::views::failure::Failure;

/// The columns that a file of priors may have for each part, in the order of preference. The last ones
/// are those of an export of estimates.
const LABELS: &[&str] = &["label", "arm"];
const MEANS: &[&str] = &["mean", "estimate"];
const WORTHS: &[&str] = &["worth", "reports"];

/// The mean that an arm had, and how many private reports that is worth.
#[derive(Clone, Debug, PartialEq)]
struct Known {
    label: String,
    mean: f64,
    worth: f64,
}

impl ExperimentSettings {
    /// The settings with the priors in a file, and the labels in it that are not those of arms here.
    pub(crate) fn with_prior(mut self, path: &Path) -> anyhow::Result<(Self, Vec<String>)> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("can't read {}", path.display()))?;
        let low = self.reward_low.unwrap_or(0.0);
        let high = self.reward_high.unwrap_or(1.0);
        let known = read(&text, (low, high), self.gain());
        let known = known.with_context(|| format!("{} is not a file of priors", path.display()))?;
        let (mine, others): (Vec<Known>, Vec<Known>) =
            known.into_iter().partition(|one| self.arms.contains(&one.label));
        if mine.is_empty() {
            bail!(
                "no arm in {} is one of the new experiment, whose arms are {}",
                path.display(),
                self.arms.join(", ")
            );
        }
        let text = |Known { label, mean, worth }| format!("{label}={mean}:{worth}");
        self.priors = mine.into_iter().map(text).collect();
        Ok((self, others.into_iter().map(|one| one.label).collect()))
    }

    /// How much a report moves a debiased sum, in the unit of the rewards; `None` without a usable epsilon.
    fn gain(&self) -> Option<f64> {
        let floor = Floor::for_epsilon(Epsilon::new(self.epsilon?).ok()?);
        let width = self.reward_high.unwrap_or(1.0) - self.reward_low.unwrap_or(0.0);
        Some(width * manipulation_gain(floor))
    }

    /// The priors of the request.
    pub(super) fn priors(&self) -> Result<Vec<ArmPrior>, Failure> {
        if self.priors.is_empty() && self.prior_discount.is_some() {
            return Err(Failure::Refused(
                "--prior-discount (`prior_discount`) is a share of the worth of priors; give a \
                 --prior (`priors`), or leave it out"
                    .to_owned(),
            ));
        }
        let one = |text: &String| {
            let parts = text.rsplit_once('=').and_then(|(label, rest)| {
                let (mean, worth) = rest.split_once(':')?;
                Some((label, mean.trim().parse().ok()?, worth.trim().parse().ok()?))
            });
            let (label, mean, worth) = parts.ok_or_else(|| {
                Failure::Refused(format!(
                    "{text:?} is not a prior; write LABEL=MEAN:WORTH, such as green=0.12:500"
                ))
            })?;
            Ok(ArmPrior { arm: self.labelled(label.trim())?, mean, worth })
        };
        self.priors.iter().map(one).collect()
    }

    /// The costs of the request.
    pub(super) fn costs(&self) -> Result<Vec<ArmCost>, Failure> {
        let one = |text: &String| {
            let (label, cost) = labelled_cost(text)?;
            Ok(ArmCost { arm: self.labelled(label)?, cost })
        };
        self.arm_costs.iter().map(one).collect()
    }

    fn labelled(&self, label: &str) -> Result<u32, Failure> {
        // As the server keeps them.
        let kept = |label| labels::normalized(label).unwrap_or(Cow::Borrowed(label));
        let arm = self.arms.iter().position(|arm| kept(arm) == kept(label));
        arm.and_then(|arm| u32::try_from(arm).ok()).ok_or_else(|| {
            let arms = self.arms.join(", ");
            Failure::Refused(format!("no arm is called {label:?}; the arms are {arms}"))
        })
    }
}

/// The label and the cost in a text such as `green=0.1`.
pub(crate) fn labelled_cost(text: &str) -> Result<(&str, f64), Failure> {
    let parts = text.rsplit_once('=').and_then(|(label, cost)| {
        let cost: f64 = cost.trim().parse().ok()?;
        Some((label.trim(), cost))
    });
    parts.ok_or_else(|| {
        Failure::Refused(format!(
            "{text:?} is not the cost of an arm; write LABEL=COST, such as green=0.1"
        ))
    })
}

/// Reads a file of priors. Estimates, which are noisy, are cut to the range of rewards. The reports of an
/// export are worth as many here as tell as much: `gain` is how much one moves a debiased sum here.
fn read(csv: &str, (low, high): (f64, f64), gain: Option<f64>) -> anyhow::Result<Vec<Known>> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(csv.as_bytes());
    let headings = reader.headers()?.clone();
    let find = |names: &[&str]| {
        let places = names.iter().map(|name| headings.iter().position(|one| one == *name));
        places
            .flatten()
            .next()
            .with_context(|| format!("there is no column {}", names.join(" or ")))
    };
    let (label, mean, worth) = (find(LABELS)?, find(MEANS)?, find(WORTHS)?);
    let place = |name: &str| headings.iter().position(|one| one == name);
    let (from, to, gain_there) = (place("low"), place("high"), place("manipulation_gain"));
    let (segment, metric, estimand) = (place("segment"), place("metric"), place("estimand"));
    let is_estimate = headings.get(mean) == Some("estimate");
    let mut all: Vec<Known> = Vec::new();
    for (row, line) in reader.records().zip(2..) {
        let row = row?;
        let cell = |place: Option<usize>| place.and_then(|place| row.get(place)).unwrap_or("");
        // Of an export, the rewards in all segments.
        if !cell(segment).is_empty() || !matches!(cell(metric), "" | "rewards") {
            continue;
        }
        if !matches!(cell(estimand), "" | "mean_reward") {
            bail!(
                "line {line}: a prior is a mean reward, and the estimand here is {}",
                cell(estimand)
            );
        }
        if cell(Some(mean)).is_empty() {
            continue;
        }
        let number = |place: usize| {
            let text = cell(Some(place));
            text.parse::<f64>().ok().filter(|number| number.is_finite()).with_context(|| {
                format!(
                    "line {line}: {text:?} is not a number, and {} must be one",
                    &headings[place]
                )
            })
        };
        let (mut found, mut worth) = (number(mean)?, number(worth)?);
        if is_estimate {
            for end in [from, to].into_iter().flatten().map(number) {
                let end = end?;
                if !(low..=high).contains(&end) {
                    bail!(
                        "line {line}: rewards there can be {end}, and those of the new experiment go from \
                         {low} to {high}; write the means in the new unit into a list of your own"
                    );
                }
            }
            found = found.clamp(low, high);
            if let (Some(here), Some(there)) = (gain, gain_there) {
                worth *= (here / number(there)?).powi(2);
            }
        }
        let one = Known { label: as_it_was(cell(Some(label))).to_owned(), mean: found, worth };
        if all.iter().any(|other| other.label == one.label) {
            bail!("line {line}: arm {:?} has a line above", one.label);
        }
        all.push(one);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priors_are_read_from_a_list_of_ones_own_or_from_an_export() {
        let of = |text: &str| read(text, (0.0, 1.0), Some(1.0));
        let known = |label: &str, mean, worth| Known { label: label.to_owned(), mean, worth };
        let own = of("arm, mean, worth\ngreen, 0.12, 500\nblue, 0.1, 300.5\n").unwrap();
        assert_eq!(own, [known("green", 0.12, 500.0), known("blue", 0.1, 300.5)]);
        let exported = "estimand,arm,label,reports,estimate,segment,metric\n\
                        mean_reward,0,green,70,1.02,,rewards\nmean_reward,1,blue,0,,,rewards\n\
                        mean_reward,0,green,50,0.5,ios,rewards\nmean_reward,0,green,9,0.1,,returned\n";
        assert_eq!(of(exported).unwrap(), [known("green", 1.0, 70.0)]);
        // Reports of more noise are worth fewer, and rewards of another range none.
        let noisy = "label,reports,estimate,low,high,manipulation_gain\ngreen,900,0.5,0.2,0.9,3\n";
        assert_eq!(of(noisy).unwrap(), [known("green", 0.5, 100.0)]);
        for (text, complaint) in [
            ("arm,mean\ngreen,0.1\n", "worth or reports"),
            ("arm,mean,worth\ngreen,x,1\n", "line 2: \"x\" is not a number"),
            ("label,reports,estimate,low,high\ngreen,9,-0.5,-1,0\n", "rewards there can be -1"),
            ("arm,mean,worth\ngreen,0,1\ngreen,0,1\n", "line 3: arm \"green\" has a line above"),
            ("arm,mean,worth,estimand\ngreen,0,1,frequencies\n", "line 2: a prior is a mean"),
        ] {
            let error = format!("{:#}", of(text).unwrap_err());
            assert!(error.contains(complaint), "{error}");
        }
    }

    #[test]
    fn terms_name_arms_by_their_labels() {
        let settings: ExperimentSettings = toml::from_str(
            "experiment_id = \"a\"\nepsilon = 1\narms = [\"x\", \"a=b\"]\narm_costs = [\"a=b=0.1\"]\n\
             attribution_window_seconds = 60\npriors = [\"x=0.2:100\"]\nprior_discount = 0.25\n",
        )
        .unwrap();
        let request = settings.request(false).unwrap();
        assert_eq!(request.arm_costs, [ArmCost { arm: 1, cost: 0.1 }]);
        assert_eq!(request.priors, [ArmPrior { arm: 0, mean: 0.2, worth: 100.0 }]);
        assert!((request.prior_discount - 0.25).abs() < 1e-12);
        for (field, complaint) in [
            ("arm_costs = [\"y=1\"]", "no arm is called \"y\""),
            ("arm_costs = [\"x\"]", "LABEL=COST"),
            ("priors = [\"x=1\"]", "LABEL=MEAN:WORTH"),
        ] {
            let text = format!(
                "experiment_id = \"a\"\nepsilon = 1\narms = [\"x\"]\nattribution_window_seconds = 60\n{field}\n"
            );
            let settings: ExperimentSettings = toml::from_str(&text).unwrap();
            let error = settings.request(false).unwrap_err().to_string();
            assert!(error.contains(complaint), "{error}");
        }
    }
}
