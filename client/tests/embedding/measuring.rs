//! Experiments with segments and metrics.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bandana_client::{Acceptance, Bandana, DefaultReason, FetchTask, Fetched, Refusal, Tasks};
use bandana_shared::cells::{Measurement, Segmentation};
use bandana_shared::participation::{Participation, Sticky};
use bandana_shared::policy::{Policy, Weights};
use bandana_shared::rewards::{RewardRange, Rewards};
use bandana_shared::specification::Specification;

use super::{Failure, Hands, NAME, acceptance, builder_accepting, fetched, send, specification};

fn measured() -> Result<Specification, Failure> {
    Ok(specification()?.measuring(Measurement {
        segmentations: "platform=ios,android".parse::<Segmentation>()?.into(),
        metrics: vec!["returned:0.3".parse()?, "minutes:0.2:0..10".parse()?],
        ..Measurement::REWARDS_ONLY
    })?)
}

fn agreed() -> Result<Acceptance, Failure> {
    let minutes = Rewards::bounded(RewardRange::new(0.0, 10.0)?);
    Ok(acceptance()?.metric("returned", Rewards::binary()).metric("minutes", minutes))
}

/// Has an app hear of an experiment in which the segments have other arms.
fn hear(tasks: &mut Tasks, clock: &Hands, offered: &Specification) -> Result<(), Failure> {
    let [even, first, second] =
        [[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]].map(|shares| Weights::from_shares(&shares));
    let weights = even?.with_segments(&[first?, second?])?;
    let fetched = fetched(offered, clock.truth())?;
    let policy = Policy { weights, ..fetched.policy };
    let task = FetchTask::new(offered.experiment_id().clone());
    Ok(tasks.on_fetched(&task, Fetched { policy, ..fetched })?)
}

fn started(
    path: &Path,
    clock: &Arc<Hands>,
    acceptance: Acceptance,
) -> Result<(Bandana, Tasks), Failure> {
    let (bandana, tasks) = builder_accepting(path, clock, acceptance, 1000)?.build();
    bandana.experiment(NAME)?;
    Ok((bandana, tasks))
}

#[test]
fn a_device_reports_one_metric_in_its_segment_also_after_a_restart() -> Result<(), Failure> {
    let offered = measured()?;
    let mut counts: BTreeMap<usize, u32> = BTreeMap::new();
    for user in 0..120 {
        let (directory, clock) = (tempfile::tempdir()?, Hands::new());
        let (value, place) = if user % 2 == 0 { ("ios", 0) } else { ("android", 1) };
        let terms = || Ok::<_, Failure>(agreed()?.segment("platform", value));
        let (bandana, mut tasks) = started(directory.path(), &clock, terms()?)?;
        hear(&mut tasks, &clock, &offered)?;
        let choice = bandana.experiment(NAME)?.choose();
        let assignment = choice.assignment().ok_or("no arm")?;
        // The weights of the segment leave one arm only.
        assert_eq!(assignment.arm().get(), place);
        let id = assignment.id();
        choice.reward(1.0);
        choice.measure("returned", 1.0);
        choice.measure("minutes", 7.5);
        choice.measure("what no experiment measures", 1e300);
        assert_eq!(bandana.status().statistics.rewards_refused, 0);
        // Beyond the range, and so its end.
        choice.measure("minutes", 10.5);
        // Refused, whichever is reported: nobody learns which one that is.
        choice.measure("returned", 0.5);
        assert_eq!(bandana.status().statistics.rewards_refused, 1);
        drop((choice, bandana, tasks));

        let (bandana, mut tasks) = started(directory.path(), &clock, terms()?)?;
        let found = bandana.assignment(id).ok_or("no assignment")?;
        assert_eq!(found.arm().get(), place);
        drop(found);
        clock.forward(2 * 86_400);
        let mut sent = send(&mut tasks)?;
        hear(&mut tasks, &clock, &offered)?;
        sent.extend(send(&mut tasks)?);
        // The first question had no answer: what waited for the day leaves at a time of its own.
        clock.forward(3600);
        sent.extend(send(&mut tasks)?);
        let [upload] = &sent[..] else { return Err(format!("{sent:?}").into()) };
        let cell = upload.reports.last_cell().and_then(|cell| offered.cells().cell(cell));
        let cell = cell.ok_or("no such cell")?;
        assert_eq!((cell.arm.get(), cell.segment), (place, place));
        *counts.entry(cell.metric).or_default() += 1;
        assert_eq!(bandana.status().spent.lifetime.get(), 1_000_000_000);
    }
    // Rewards half of the time: 60 of 120, and 36 and 24 of the metrics, five standard deviations.
    let [rewards, returned, minutes] = [0, 1, 2].map(|m| counts.get(&m).copied().unwrap_or(0));
    assert!((33..=87).contains(&rewards), "{counts:?}");
    assert!((11..=61).contains(&returned) && (3..=46).contains(&minutes), "{counts:?}");
    Ok(())
}

#[test]
fn an_app_takes_part_only_in_what_it_has_agreed_to() -> Result<(), Failure> {
    let offered = measured()?;
    let other_range = Rewards::bounded(RewardRange::new(0.0, 20.0)?);
    let named = |name: &str| name.to_owned();
    for (terms, expected) in [
        (agreed()?, Refusal::Segmentation { name: named("platform") }),
        (agreed()?.segment("country", "ios"), Refusal::Segmentation { name: named("platform") }),
        (
            acceptance()?.segment("platform", "ios").metric("returned", Rewards::binary()),
            Refusal::Metric { name: named("minutes") },
        ),
        (
            agreed()?.segment("platform", "ios").metric("minutes", other_range),
            Refusal::Metric { name: named("minutes") },
        ),
    ] {
        let (directory, clock) = (tempfile::tempdir()?, Hands::new());
        let (bandana, mut tasks) = started(directory.path(), &clock, terms)?;
        assert!(hear(&mut tasks, &clock, &offered).is_err());
        let choice = bandana.experiment(NAME)?.choose();
        let bandana_client::Choice::Default(reason) = choice else { return Err("an arm".into()) };
        assert_eq!(reason, DefaultReason::Refused(expected));
    }

    // A value that is none of the experiment's: the installation is outside of it, and pays nothing.
    let (directory, clock) = (tempfile::tempdir()?, Hands::new());
    let terms = agreed()?.segment("platform", "windows");
    let (bandana, mut tasks) = started(directory.path(), &clock, terms)?;
    hear(&mut tasks, &clock, &offered)?;
    let choice = bandana.experiment(NAME)?.choose();
    let bandana_client::Choice::Default(reason) = choice else { return Err("an arm".into()) };
    assert_eq!(reason, DefaultReason::NotSampled);
    assert_eq!(bandana.status().spent.lifetime.get(), 0);
    Ok(())
}

#[test]
fn a_policy_has_weights_for_each_segment_or_is_refused() -> Result<(), Failure> {
    let (directory, clock) = (tempfile::tempdir()?, Hands::new());
    let terms = agreed()?.segment("platform", "ios");
    let (bandana, mut tasks) = started(directory.path(), &clock, terms)?;
    let offered = measured()?;
    let task = FetchTask::new(offered.experiment_id().clone());
    let pooled = fetched(&offered, clock.truth())?;
    assert!(tasks.on_fetched(&task, pooled).is_err());
    let choice = bandana.experiment(NAME)?.choose();
    let bandana_client::Choice::Default(reason) = choice else { return Err("an arm".into()) };
    let refusal = Refusal::PolicySegments { lists: 0, segments: 2 };
    assert_eq!(reason, DefaultReason::Refused(refusal));
    Ok(())
}

#[test]
fn an_installation_keeps_its_arm_as_long_as_its_segment_has_it() -> Result<(), Failure> {
    let sticky = Participation { sticky: Some(Sticky::DEFAULT), ..Participation::EVERYONE };
    let offered = measured()?.for_part(sticky)?;
    let (directory, clock) = (tempfile::tempdir()?, Hands::new());
    let terms = agreed()?.segment("platform", "android");
    let (bandana, mut tasks) = started(directory.path(), &clock, terms)?;
    hear(&mut tasks, &clock, &offered)?;
    let shown = || -> Result<usize, Failure> {
        let choice = bandana.experiment(NAME)?.draw();
        Ok(choice.assignment().ok_or("no arm")?.arm().get())
    };
    assert_eq!(shown()?, 1);
    // Among all installations the arm has no weight any more, and in the segment it has: kept.
    let list = |shares: [f64; 2]| Weights::from_shares(&shares);
    for (segment, expected) in [([0.5, 0.5], 1), ([1.0, 0.0], 0)] {
        let weights = list([1.0, 0.0])?.with_segments(&[list([1.0, 0.0])?, list(segment)?])?;
        let answer = fetched(&offered, clock.truth())?;
        let policy = Policy { weights, version: answer.policy.version + 1, ..answer.policy };
        let task = FetchTask::new(offered.experiment_id().clone());
        tasks.on_fetched(&task, Fetched { policy, ..answer })?;
        assert_eq!(shown()?, expected);
    }
    Ok(())
}
