//! The sentence of estimates: who leads by how much, for whoever has to decide.

use bandana_shared::wire::v1::{ArmEstimate, Estimand, Estimates, Lead, SegmentEstimates};

use super::arm_estimate_view::number;
use super::estimates_view::confidence;
use super::table::visible;

/// One sentence for whoever has to decide.
pub(super) fn summary(estimates: &Estimates) -> String {
    if estimates.estimand() == Estimand::Frequencies {
        return "Categories have no order: look at the shares of each below.".to_owned();
    }
    let Some(lead) = &estimates.lead else { return without_lead(estimates) };
    let label = |place: u32| label_of(estimates, place);
    let (leader, rival) = (label(lead.arm), label(lead.rival));
    let percent = confidence(estimates.alpha);
    let apart =
        format!("{} ({} to {})", number(lead.difference), number(lead.low), number(lead.high));
    let costs = if estimates.arms.iter().any(|arm| arm.cost > 0.0) {
        " Rewards less costs are compared."
    } else {
        ""
    };
    let of_all = match (estimates.best_arm, lead.reports_left) {
        (Some(_), _) => {
            format!("{leader} is best, ahead of {rival} by {apart}, with confidence {percent}.")
        }
        (None, _) if lead.difference <= 0.0 => format!(
            "No arm is ahead yet: {leader} against {rival} is {apart}, where both were played."
        ),
        (None, Some(left)) => format!(
            "{leader} seems ahead of {rival} by {apart}; about {} more reports until that is certain with \
             confidence {percent}, if it stays so.",
            about(left)
        ),
        (None, None) => format!(
            "{leader} seems ahead of {rival} by {apart}; as the traffic is, that will not become certain \
             with confidence {percent}."
        ),
    };
    let by_segment = where_segments_differ(estimates);
    // What differs by segment is what a decision needs first.
    let of_all =
        if by_segment.is_empty() { of_all } else { format!("{by_segment} Over all: {of_all}") };
    of_all + costs + &speaks_for(lead)
}

/// The sentence where no two arms can be compared.
fn without_lead(estimates: &Estimates) -> String {
    if estimates.reports == 0 {
        return "There are no reports yet.".to_owned();
    }
    let harms = |arm: &ArmEstimate| {
        estimates.metrics.iter().any(|metric| metric.harmful_arms.contains(&arm.arm))
    };
    let played = estimates.arms.iter().filter(|arm| !arm.retired && arm.reports > 0);
    let (harmful, rest): (Vec<_>, Vec<_>) = played.partition(|arm| harms(arm));
    match (&rest[..], &harmful[..]) {
        ([only], []) if estimates.arms.iter().filter(|arm| !arm.retired).count() == 1 => {
            format!("{} is the only arm in play.", visible(&only.label))
        }
        ([] | [_], []) => {
            "Only one arm in play has reports yet, so there is nothing to compare.".to_owned()
        }
        ([only], _) => format!(
            "{} is the only arm with reports that does no harm, so there is nothing to compare.",
            visible(&only.label)
        ),
        _ => "The arm with the largest mean has not been played to the same users as another one, by \
              segment, day and revision, so there is no verdict."
            .to_owned(),
    }
}

fn label_of(estimates: &Estimates, place: u32) -> String {
    let found = estimates.arms.iter().find(|arm| arm.arm == place);
    found.map_or_else(|| place.to_string(), |arm| visible(&arm.label))
}

/// A sentence on the best arm of each segment, where they differ; empty otherwise.
fn where_segments_differ(estimates: &Estimates) -> String {
    let best =
        |one: &SegmentEstimates| Some((one.segmentation.clone(), one.value.clone(), one.best_arm?));
    let all: Vec<(String, String, u32)> = estimates.segments.iter().filter_map(best).collect();
    let is_same = all.iter().all(|(.., arm)| *arm == all[0].2);
    let disagrees = estimates.best_arm.is_some_and(|best| all.iter().any(|(.., arm)| *arm != best));
    if is_same && !disagrees {
        return String::new();
    }
    let one = |(segmentation, value, arm): &(String, String, u32)| {
        format!("for {segmentation} {}, {}", visible(value), label_of(estimates, *arm))
    };
    let shown: Vec<String> = all.iter().take(SEGMENTS_SHOWN).map(one).collect();
    let more = match all.len().saturating_sub(SEGMENTS_SHOWN) {
        0 => String::new(),
        more => format!("; and {more} more below"),
    };
    format!(
        "The best arm differs by segment, with confidence {}: {}{more}.",
        confidence(estimates.alpha),
        shown.join("; ")
    )
}

/// Most segments that the sentence names.
const SEGMENTS_SHOWN: usize = 6;

/// Of how many users a lead tells, if not of nearly all.
fn speaks_for(lead: &Lead) -> String {
    if lead.coverage > 0.99 || lead.coverage <= 0.0 {
        return String::new();
    }
    format!(
        " That speaks for {:.0}% of the users: both arms were played to them, by segment, day and revision.",
        100.0 * lead.coverage
    )
}

/// A number with two digits that count, and commas.
fn about(number: u64) -> String {
    let unit = 10_u64.pow(number.max(1).ilog10().saturating_sub(1));
    let digits = (number.div_ceil(unit) * unit).to_string();
    let mut text = String::new();
    for (place, digit) in digits.char_indices() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(best_arm: Option<u32>, reports_left: Option<u64>) -> String {
        let arm = |arm, label: &str| ArmEstimate { arm, label: label.into(), ..Default::default() };
        let (difference, low, high) = (0.104, -0.0061, 0.2141);
        let lead = Lead { arm: 1, rival: 0, difference, low, high, reports_left, coverage: 1.0 };
        summary(&Estimates {
            arms: vec![arm(0, "blue"), arm(1, "gr\u{202e}een")],
            reports: 7,
            alpha: 0.05,
            best_arm,
            lead: Some(lead),
            ..Default::default()
        })
    }

    #[test]
    fn a_sentence_says_who_leads_and_what_is_missing() {
        let leads = "seems ahead of blue by 0.1040 (-0.0061 to 0.2141)";
        let missing = told(None, Some(8_912));
        assert!(missing.contains(leads) && !missing.contains('\u{202e}'), "{missing}");
        assert!(missing.contains("about 9,000 more reports until that is certain"), "{missing}");
        assert!(told(None, None).contains("will not become certain with confidence 95%"));
        assert!(told(Some(1), Some(0)).contains("is best, ahead of blue by 0.1040"));
        assert_eq!(summary(&Estimates::default()), "There are no reports yet.");
        let arm = |arm, retired| ArmEstimate { arm, retired, reports: 9, ..Default::default() };
        let alone = |arms| summary(&Estimates { arms, reports: 18, ..Default::default() });
        assert!(alone(vec![arm(0, true), arm(1, false)]).contains("is the only arm in play"));
        assert!(
            alone(vec![arm(0, false), arm(1, false)]).contains("has not been played to the same")
        );
        let lead = Lead { arm: 1, rival: 0, difference: -0.1, low: -0.2, ..Default::default() };
        let behind = Estimates { reports: 7, lead: Some(lead), ..Default::default() };
        assert!(summary(&behind).starts_with("No arm is ahead yet"), "{}", summary(&behind));
        let numbers = [0, 7, 42, 99, 101, 1_234_567].map(about);
        assert_eq!(numbers, ["0", "7", "42", "99", "110", "1,300,000"]);
    }
}
