//! The record of an experiment: what people write about it, for people.
//!
//! It is stored beside the specification and not in it, so that it changes without a new revision
//! and never reaches devices.

mod harm_pauses;

use bandana_learners::terms::{ArmTerms, Prior, TermsError};
use bandana_shared::estimate::Estimand;
use bandana_shared::specification::Specification;
use bandana_shared::wire::v1::{
    ArmCost, ArmPrior, CreateExperimentRequest, Decision, ExperimentRecord as Message,
    SetRecordRequest,
};
use prost::Message as _;
use thiserror::Error;

use crate::{StoreError, damaged};

/// Most characters of a title and of an owner.
const LINE_MAX: usize = 200;

/// Most characters of a hypothesis and of a reason.
const TEXT_MAX: usize = 4000;

/// Most characters of a decision.
const DECISION_MAX: usize = 500;

/// Most tags and links, and most characters of each. A list of experiments shows the tags of all.
const TAGS_MAX: usize = 20;
const TAG_MAX: usize = 50;
const LINKS_MAX: usize = 20;
const LINK_MAX: usize = 500;

/// The record of an experiment, within its limits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WrittenRecord(pub(super) Message);

/// The reason why a record can't be written as asked.
#[derive(Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum RecordError {
    /// A text is too long.
    #[error("the {field} has {found} characters, and may have at most {most}; shorten it")]
    TooLong {
        /// The text.
        field: &'static str,
        /// Its characters.
        found: usize,
        /// Most characters that it may have.
        most: usize,
    },
    /// A text has characters that are not shown.
    #[error("the {field} must be without control characters{}", if *is_line { ", on one line" } else { "" })]
    Control {
        /// The text.
        field: &'static str,
        /// Whether line breaks are control characters too.
        is_line: bool,
    },
    /// There are too many tags or links.
    #[error("there are {found} {field}; give at most {most}")]
    TooMany {
        /// What there are too many of.
        field: &'static str,
        /// How many there are.
        found: usize,
        /// How many there may be.
        most: usize,
    },
    /// A link is no address that a browser would open.
    #[error("the link {link:?} must begin with https:// or http:// and have no blanks")]
    Link {
        /// The link.
        link: String,
    },
    /// A decision and its reason need each other.
    #[error("a decision needs a reason, and a reason or an arm needs a decision; give both")]
    HalfDecision,
    /// There is nothing that could do harm.
    #[error(
        "no metric of the experiment has a limit, so no arm is ever found to do harm; create one \
         with --metric NAME:SHARE:at-most=MEAN, or leave out --on-harm"
    )]
    NoLimit,
    /// A prior or a cost is not possible.
    #[error(transparent)]
    Terms(#[from] TermsError),
    /// Two priors or costs of one arm.
    #[error("arm {arm} has two {field}; leave one out")]
    Twice {
        /// What it has two of.
        field: &'static str,
        /// Its index.
        arm: u32,
    },
    /// Nothing can be compared.
    #[error("{field} need rewards with an order, and an experiment without a private context")]
    NoOrder {
        /// What was asked for.
        field: &'static str,
    },
    /// A cost has no unit that it could be compared in.
    #[error(
        "costs of arms need the linear mechanism or levels: the {mechanism} one is compared by a mean \
         that is not in the unit of the rewards"
    )]
    CurvedCosts {
        /// The mechanism's name.
        mechanism: &'static str,
    },
    /// There is no such arm.
    #[error("{field} is arm {arm}, and the experiment has the arms 0 to {last}; name one of them")]
    NoSuchArm {
        /// What the arm is.
        field: &'static str,
        /// Its index.
        arm: u32,
        /// The index of the last arm.
        last: usize,
    },
}

impl WrittenRecord {
    /// The record as operators read it.
    pub fn message(&self) -> &Message {
        &self.0
    }

    /// The record as it is stored; nothing for an empty one.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.encode_to_vec()
    }

    /// Reads a stored record.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, StoreError> {
        let message = Message::decode(bytes);
        message.map(Self).map_err(|error| damaged(format!("the record of an experiment: {error}")))
    }

    /// The arm that others are compared with.
    pub fn control_arm(&self) -> u32 {
        self.0.control_arm.unwrap_or(0)
    }

    /// The record of a new experiment: what is known of its arms, and what they cost.
    ///
    /// # Errors
    /// [`RecordError`] when a prior or a cost is not possible.
    pub fn beginning(
        request: &CreateExperimentRequest,
        specification: &Specification,
    ) -> Result<Self, RecordError> {
        let discount = request.prior_discount;
        // Zero is the default. Any other is checked, also where there are no priors to count.
        if discount != 0.0 && !(0.0..=1.0).contains(&discount) {
            return Err(TermsError::Discount { discount }.into());
        }
        let mut message = Message::default();
        for prior in &request.priors {
            if message.priors.iter().any(|other| other.arm == prior.arm) {
                return Err(RecordError::Twice { field: "priors", arm: prior.arm });
            }
            message.priors.push(*prior);
        }
        if !request.priors.is_empty() {
            let is_default = request.prior_discount == 0.0;
            message.prior_discount =
                if is_default { ArmTerms::DISCOUNT } else { request.prior_discount };
        }
        set_costs(&mut message, &request.arm_costs)?;
        let record = Self(message);
        record.check_terms(specification)?;
        Ok(record)
    }

    /// What is known of the arms, and what they cost.
    ///
    /// # Errors
    /// [`TermsError`], which no stored record causes.
    pub fn terms(&self, specification: &Specification) -> Result<ArmTerms, TermsError> {
        let Message { priors, prior_discount, arm_costs, .. } = &self.0;
        if priors.is_empty() && arm_costs.is_empty() {
            return Ok(ArmTerms::default());
        }
        let arms = specification.arms().len();
        let (mut means, mut costs) = (vec![None; arms], vec![0.0; arms]);
        for ArmPrior { arm, mean, worth } in priors {
            if let Some(place) = means.get_mut(*arm as usize) {
                *place = Some(Prior { mean: *mean, worth: *worth });
            }
        }
        for ArmCost { arm, cost } in arm_costs {
            if let Some(place) = costs.get_mut(*arm as usize) {
                *place = *cost;
            }
        }
        let discount = if priors.is_empty() { ArmTerms::DISCOUNT } else { *prior_discount };
        ArmTerms::new(means, discount, costs, specification.rewards().range())
    }

    fn check_terms(&self, specification: &Specification) -> Result<(), RecordError> {
        let arms = specification.arms().len();
        let Message { priors, arm_costs, .. } = &self.0;
        let has_order = specification.estimand() != Estimand::Frequencies
            && specification.private_context().is_none();
        for (field, is_asked) in
            [("priors", !priors.is_empty()), ("costs of arms", !arm_costs.is_empty())]
        {
            if is_asked && !has_order {
                return Err(RecordError::NoOrder { field });
            }
        }
        if !arm_costs.is_empty() && specification.estimand() == Estimand::MeanCurvedReward {
            return Err(RecordError::CurvedCosts { mechanism: specification.mechanism().name() });
        }
        let of_priors = priors.iter().map(|one| ("a prior", one.arm));
        let named = of_priors.chain(arm_costs.iter().map(|one| ("what costs", one.arm)));
        for (field, arm) in named {
            if arm as usize >= arms {
                return Err(RecordError::NoSuchArm { field, arm, last: arms.saturating_sub(1) });
            }
        }
        self.terms(specification)?;
        Ok(())
    }

    /// The record with these costs; those of other arms stay.
    ///
    /// # Errors
    /// [`RecordError`] when a cost is not possible.
    pub fn with_costs(
        self,
        costs: &[ArmCost],
        specification: &Specification,
    ) -> Result<Self, RecordError> {
        let mut record = self;
        set_costs(&mut record.0, costs)?;
        record.check_terms(specification)?;
        Ok(record)
    }

    /// The record with what a request says, but for costs, of an experiment with so many arms.
    ///
    /// # Errors
    /// [`RecordError`] when something is beyond its limits.
    pub fn changed(&self, request: &SetRecordRequest, arms: usize) -> Result<Self, RecordError> {
        let mut record = self.0.clone();
        if let Some(title) = &request.title {
            record.title = line("title", title, LINE_MAX)?;
        }
        if let Some(hypothesis) = &request.hypothesis {
            record.hypothesis = text("hypothesis", hypothesis)?;
        }
        if let Some(owner) = &request.owner {
            record.owner = line("owner", owner, LINE_MAX)?;
        }
        if let Some(tags) = &request.tags {
            record.tags = list("tags", &tags.texts, TAGS_MAX, |tag| line("tag", tag, TAG_MAX))?;
            record.tags.sort_unstable();
        }
        if let Some(links) = &request.links {
            record.links = list("links", &links.texts, LINKS_MAX, link)?;
        }
        if let Some(decision) = &request.decision {
            record.decision = decided(decision)?;
        }
        record.control_arm = request.control_arm.or(record.control_arm);
        harm_pauses::set_action(&mut record, request);
        let of_decision = record.decision.as_ref().and_then(|decision| decision.arm);
        for (field, arm) in
            [("the control", record.control_arm), ("what is decided for", of_decision)]
        {
            if let Some(arm) = arm.filter(|arm| *arm as usize >= arms) {
                return Err(RecordError::NoSuchArm { field, arm, last: arms.saturating_sub(1) });
            }
        }
        Ok(Self(record))
    }

    /// What differs from an earlier record, for the audit log.
    pub fn differences(&self, before: &Self) -> String {
        let (now, before) = (&self.0, &before.0);
        let mut parts = Vec::new();
        let mut part = |differs: bool, what: String| {
            if differs {
                parts.push(what);
            }
        };
        part(now.title != before.title, format!("title {:?}", now.title));
        part(now.hypothesis != before.hypothesis, "hypothesis".to_owned());
        part(now.owner != before.owner, format!("owner {:?}", now.owner));
        part(now.tags != before.tags, format!("tags {:?}", now.tags));
        part(now.links != before.links, "links".to_owned());
        let control = format!("control arm {}", self.control_arm());
        part(now.control_arm != before.control_arm, control);
        let decision = match &now.decision {
            Some(Decision { decision, arm: Some(arm), .. }) => {
                format!("decision {decision:?} for arm {arm}")
            }
            Some(Decision { decision, .. }) => format!("decision {decision:?}"),
            None => "decision taken back".to_owned(),
        };
        part(now.decision != before.decision, decision);
        part(now.priors != before.priors, in_words_of_priors(now));
        part(now.arm_costs != before.arm_costs, in_words_of_costs(now));
        parts.extend(harm_pauses::difference(now, before));
        parts.join(", ")
    }
}

/// Sets the costs of these arms; those of others stay.
fn set_costs(record: &mut Message, costs: &[ArmCost]) -> Result<(), RecordError> {
    for (place, ArmCost { arm, .. }) in costs.iter().enumerate() {
        if costs[..place].iter().any(|other| other.arm == *arm) {
            return Err(RecordError::Twice { field: "costs", arm: *arm });
        }
    }
    record.arm_costs.retain(|known| costs.iter().all(|one| one.arm != known.arm));
    record.arm_costs.extend(costs.iter().filter(|one| one.cost != 0.0));
    record.arm_costs.sort_unstable_by_key(|one| one.arm);
    Ok(())
}

fn in_words_of_priors(record: &Message) -> String {
    let one = |prior: &ArmPrior| {
        format!("arm {} {} worth {} reports", prior.arm, prior.mean, prior.worth)
    };
    let all: Vec<String> = record.priors.iter().map(one).collect();
    format!("priors {} times {}", all.join(", "), record.prior_discount)
}

fn in_words_of_costs(record: &Message) -> String {
    let one = |cost: &ArmCost| format!("arm {} costs {}", cost.arm, cost.cost);
    let all: Vec<String> = record.arm_costs.iter().map(one).collect();
    if all.is_empty() { "no arm costs anything".to_owned() } else { all.join(", ") }
}

/// A text on one line, without blanks around it.
fn line(field: &'static str, text: &str, most: usize) -> Result<String, RecordError> {
    let text = within(field, text, most)?;
    if text.chars().any(char::is_control) {
        return Err(RecordError::Control { field, is_line: true });
    }
    Ok(text)
}

/// A text that may have several lines.
fn text(field: &'static str, text: &str) -> Result<String, RecordError> {
    let text = within(field, &text.replace("\r\n", "\n"), TEXT_MAX)?;
    if text.chars().any(|c| c.is_control() && c != '\n' && c != '\t') {
        return Err(RecordError::Control { field, is_line: false });
    }
    Ok(text)
}

fn within(field: &'static str, text: &str, most: usize) -> Result<String, RecordError> {
    let text = text.trim();
    let found = text.chars().count();
    let fits = found <= most;
    fits.then(|| text.to_owned()).ok_or(RecordError::TooLong { field, found, most })
}

/// What is not empty, each once.
fn list(
    field: &'static str,
    texts: &[String],
    most: usize,
    read: impl Fn(&str) -> Result<String, RecordError>,
) -> Result<Vec<String>, RecordError> {
    let mut all: Vec<String> = Vec::new();
    for text in texts {
        let text = read(text)?;
        if !text.is_empty() && !all.contains(&text) {
            all.push(text);
        }
        if all.len() > most {
            return Err(RecordError::TooMany { field, found: texts.len(), most });
        }
    }
    Ok(all)
}

fn link(text: &str) -> Result<String, RecordError> {
    let link = line("link", text, LINK_MAX)?;
    let address = link.strip_prefix("https://").or_else(|| link.strip_prefix("http://"));
    let is_address = address.is_some_and(|rest| !rest.is_empty());
    if link.is_empty() || (is_address && !link.chars().any(char::is_whitespace)) {
        return Ok(link);
    }
    Err(RecordError::Link { link })
}

/// A decision with its reason. None: it is taken back.
fn decided(message: &Decision) -> Result<Option<Decision>, RecordError> {
    let decision = line("decision", &message.decision, DECISION_MAX)?;
    let reason = text("reason", &message.reason)?;
    match (decision.is_empty(), reason.is_empty()) {
        (true, true) if message.arm.is_none() => Ok(None),
        (false, false) => Ok(Some(Decision { decision, reason, arm: message.arm })),
        _ => Err(RecordError::HalfDecision),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bandana_shared::wire::v1::Texts;

    fn texts(texts: &[&str]) -> Texts {
        Texts { texts: texts.iter().map(|text| (*text).to_owned()).collect() }
    }

    #[test]
    fn what_a_request_leaves_out_stays_and_what_is_empty_goes() {
        let request = SetRecordRequest {
            title: Some("  Button colours ".to_owned()),
            tags: Some(texts(&["web", "checkout", "web", ""])),
            links: Some(texts(&["https://example.org/42"])),
            ..Default::default()
        };
        let first = WrittenRecord::default().changed(&request, 2).unwrap();
        assert_eq!(first.message().title, "Button colours");
        assert_eq!(first.message().tags, ["checkout", "web"]);
        let decision = Some(Decision {
            decision: "ship green".to_owned(),
            reason: "It leads.\nNobody complained.".to_owned(),
            arm: Some(1),
        });
        let decided = SetRecordRequest { decision, tags: Some(texts(&[])), ..Default::default() };
        let second = first.changed(&decided, 2).unwrap();
        assert_eq!(second.message().title, "Button colours");
        assert!(second.message().tags.is_empty() && second.message().links.len() == 1);
        assert_eq!(second.differences(&first), "tags [], decision \"ship green\" for arm 1");
        assert_eq!(WrittenRecord::from_bytes(&second.to_bytes()).unwrap(), second);
        let taken_back =
            SetRecordRequest { decision: Some(Decision::default()), ..Default::default() };
        assert_eq!(second.changed(&taken_back, 2).unwrap().message().decision, None);
        assert!(WrittenRecord::default().to_bytes().is_empty());
    }

    fn specification() -> Specification {
        use bandana_shared::specification::{Arm, ReleaseTiming};
        use bandana_shared::{curve, epsilon, identity, rewards};

        Specification::first(
            identity::ExperimentId::new("a").unwrap(),
            epsilon::Epsilon::new(1.0).unwrap(),
            rewards::Rewards::binary(),
            curve::Mechanism::Linear,
            vec![Arm::new("x").unwrap(), Arm::new("y").unwrap()],
            ReleaseTiming::IMMEDIATE,
        )
        .unwrap()
    }

    #[test]
    fn an_experiment_begins_with_its_priors_and_costs_can_change() {
        let specification = specification();
        let beginning = |priors: &[(u32, f64, f64)], arm_costs: &[(u32, f64)]| {
            let prior = |(arm, mean, worth): &(u32, f64, f64)| ArmPrior {
                arm: *arm,
                mean: *mean,
                worth: *worth,
            };
            let cost = |(arm, cost): &(u32, f64)| ArmCost { arm: *arm, cost: *cost };
            let request = CreateExperimentRequest {
                priors: priors.iter().map(prior).collect(),
                arm_costs: arm_costs.iter().map(cost).collect(),
                ..Default::default()
            };
            WrittenRecord::beginning(&request, &specification)
        };
        assert_eq!(beginning(&[], &[]).unwrap(), WrittenRecord::default());
        let first = beginning(&[(1, 0.2, 100.0)], &[(1, 0.05)]).unwrap();
        let terms = first.terms(&specification).unwrap();
        assert_eq!(terms.prior(1), Some(Prior { mean: 0.2, worth: 100.0 }));
        assert_eq!((terms.discount(), terms.cost(0), terms.cost(1)), (0.5, 0.0, 0.05));
        let costs = [ArmCost { arm: 0, cost: 0.1 }, ArmCost { arm: 1, cost: 0.0 }];
        let second = first.clone().with_costs(&costs, &specification).unwrap();
        assert_eq!(second.differences(&first), "arm 0 costs 0.1");
        assert_eq!(second.message().priors, first.message().priors);
        let refused = |priors: &[(u32, f64, f64)], costs: &[(u32, f64)]| {
            beginning(priors, costs).unwrap_err().to_string()
        };
        assert!(refused(&[(2, 0.5, 1.0)], &[]).contains("has the arms 0 to 1"));
        assert!(refused(&[(1, 0.5, 1.0), (1, 0.5, 1.0)], &[]).contains("two priors"));
        assert!(refused(&[], &[(0, 0.1), (0, 0.2)]).contains("two costs"));
        assert!(refused(&[], &[(0, 2.0)]).contains("unit of the rewards"));
        for prior_discount in [f64::NAN, -0.5, 1.5, f64::INFINITY] {
            let request = CreateExperimentRequest { prior_discount, ..Default::default() };
            let refused = WrittenRecord::beginning(&request, &specification).unwrap_err();
            assert!(refused.to_string().contains("above 0 and at most 1"), "{prior_discount}");
        }
    }

    #[test]
    fn what_is_beyond_its_limits_is_refused_with_them() {
        let of = |request: SetRecordRequest| {
            WrittenRecord::default().changed(&request, 2).unwrap_err().to_string()
        };
        let base = SetRecordRequest::default;
        let title = |text: &str| SetRecordRequest { title: Some(text.to_owned()), ..base() };
        assert!(of(title(&"é".repeat(201))).contains("201 characters, and may have at most 200"));
        assert!(of(title("two\nlines")).contains("on one line"));
        let hypothesis = Some("\u{1b}[31mred".to_owned());
        assert!(of(SetRecordRequest { hypothesis, ..base() }).contains("control characters"));
        let many: Vec<String> = (0..21).map(|tag| tag.to_string()).collect();
        let tags = Some(Texts { texts: many });
        assert!(of(SetRecordRequest { tags, ..base() }).contains("at most 20"));
        for wrong in ["javascript:alert(1)", "https://", "https://a b", "example.org"] {
            let links = Some(texts(&[wrong]));
            assert!(of(SetRecordRequest { links, ..base() }).contains("must begin"), "{wrong}");
        }
        let half = Decision { decision: "ship".to_owned(), ..Default::default() };
        let request = SetRecordRequest { decision: Some(half), ..base() };
        assert!(of(request).contains("needs a reason"));
        let control = SetRecordRequest { control_arm: Some(2), ..base() };
        assert!(of(control).contains("has the arms 0 to 1"));
    }
}
