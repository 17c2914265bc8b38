//! Experiments in which an installation keeps its arm, and those for a part of the installations.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use bandana_client::{Bandana, Choice, DefaultReason, FetchTask, Fetched, Tasks, Unreported};
use bandana_shared::identity::{ArmIndex, ExperimentId};
use bandana_shared::participation::{Layer, Millionths, Participation, Sticky};
use bandana_shared::policy::{Policy, Weights};
use bandana_shared::specification::Specification;

use super::{Failure, Hands, NAME, builder, fetched, send, specification};

fn sticky() -> Participation {
    Participation { sticky: Some(Sticky::DEFAULT), ..Participation::EVERYONE }
}

fn layer(part: &str) -> Result<Participation, Failure> {
    Ok(Participation { layer: Some(part.parse::<Layer>()?), ..Participation::EVERYONE })
}

/// Has an app hear of an experiment.
fn hear(
    tasks: &mut Tasks,
    clock: &Hands,
    offered: &Specification,
    shares: &[f64],
) -> Result<(), Failure> {
    let weights = Weights::from_shares(shares)?;
    let fetched = fetched(offered, clock.truth())?;
    let policy = Policy { weights, ..fetched.policy };
    let task = FetchTask::new(offered.experiment_id().clone());
    Ok(tasks.on_fetched(&task, Fetched { policy, ..fetched })?)
}

fn started(path: &Path, clock: &Arc<Hands>) -> Result<(Bandana, Tasks), Failure> {
    let (bandana, tasks) = builder(path, clock, 1000)?.build();
    bandana.experiment(NAME)?;
    Ok((bandana, tasks))
}

fn arm(bandana: &Bandana) -> Result<(String, Option<Unreported>), Failure> {
    let choice = bandana.experiment(NAME)?.choose();
    let assignment = choice.assignment().ok_or("no arm")?;
    Ok((assignment.label().to_owned(), assignment.unreported()))
}

#[test]
fn an_installation_keeps_its_arm_and_reports_it_once_over_restarts() -> Result<(), Failure> {
    let offered = specification()?.for_part(sticky())?;
    for reports in [true, false] {
        let directory = tempfile::tempdir()?;
        let clock = Hands::new();
        let mut shown = BTreeSet::new();
        let mut sent = 0;
        for start in 0..8 {
            let (bandana, mut tasks) = if reports {
                started(directory.path(), &clock)?
            } else {
                // There is no room for a report, so the arm alone is kept.
                let (bandana, tasks) = builder(directory.path(), &clock, 0)?.build();
                bandana.experiment(NAME)?;
                (bandana, tasks)
            };
            hear(&mut tasks, &clock, &offered, &[0.5, 0.5])?;
            for visit in 0..6 {
                let (label, unreported) = arm(&bandana)?;
                shown.insert(label);
                let first = reports && start == 0 && visit == 0;
                assert_eq!(unreported.is_none(), first, "start {start}, visit {visit}");
                // An assignment lasts ten minutes, and is released within another hour.
                clock.forward(600 + 3600);
                hear(&mut tasks, &clock, &offered, &[0.5, 0.5])?;
                sent += send(&mut tasks)?.len();
            }
            assert!(bandana.experiment(NAME)?.draw().label_or("") == shown.first().ok_or("none")?);
            tasks.write();
        }
        assert_eq!((shown.len(), sent), (1, usize::from(reports)));
    }
    Ok(())
}

#[test]
fn an_arm_is_released_below_a_hundredth_and_when_it_is_retired() -> Result<(), Failure> {
    let offered = specification()?.for_part(sticky())?;
    let directory = tempfile::tempdir()?;
    let clock = Hands::new();
    let (bandana, mut tasks) = started(directory.path(), &clock)?;
    let shares = |kept: &str, share: f64| match kept {
        "red" => [share, 1.0 - share],
        _ => [1.0 - share, share],
    };
    hear(&mut tasks, &clock, &offered, &[0.5, 0.5])?;
    let (first, _) = arm(&bandana)?;
    clock.forward(600);
    hear(&mut tasks, &clock, &offered, &shares(&first, 0.010_01))?;
    assert_eq!(arm(&bandana)?.0, first, "just above");
    clock.forward(600);
    hear(&mut tasks, &clock, &offered, &shares(&first, 0.0))?;
    let (second, unreported) = arm(&bandana)?;
    assert_ne!(second, first);
    assert_eq!(unreported, Some(Unreported::ReportedOnce), "a second arm costs nothing");
    // The other one is kept now, whatever the first one weighs.
    clock.forward(600);
    hear(&mut tasks, &clock, &offered, &shares(&second, 0.02))?;
    assert_eq!(arm(&bandana)?.0, second);
    clock.forward(600);
    let place = offered.arms().iter().position(|arm| arm.label() == second).ok_or("no such arm")?;
    let revised = offered.without_arm(ArmIndex::new(place)?)?;
    hear(&mut tasks, &clock, &revised, &shares(&first, 1.0))?;
    assert_eq!(arm(&bandana)?.0, first);
    Ok(())
}

#[test]
fn a_report_in_each_period() -> Result<(), Failure> {
    let weekly = Sticky { report_days: 7, ..Sticky::DEFAULT };
    let participation = Participation { sticky: Some(weekly), ..Participation::EVERYONE };
    let offered = specification()?.for_part(participation)?;
    let directory = tempfile::tempdir()?;
    let clock = Hands::new();
    let (bandana, mut tasks) = started(directory.path(), &clock)?;
    let mut reports = BTreeMap::<u64, u32>::new();
    for _ in 0..60 {
        hear(&mut tasks, &clock, &offered, &[0.5, 0.5])?;
        let reported = arm(&bandana)?.1.is_none();
        let week = clock.truth().unix_ms() / (7 * 86_400_000);
        *reports.entry(week).or_default() += u32::from(reported);
        clock.forward(86_400);
        hear(&mut tasks, &clock, &offered, &[0.5, 0.5])?;
        send(&mut tasks)?;
    }
    assert!(reports.len() > 8 && reports.values().all(|count| *count == 1), "{reports:?}");
    Ok(())
}

#[test]
fn parts_of_a_layer_share_no_device_whatever_restarts_and_crashes() -> Result<(), Failure> {
    let (one, other) = (ExperimentId::new(NAME)?, ExperimentId::new("font-size")?);
    let first = specification()?.for_part(layer("page:0-0.5")?)?;
    let mut parts = specification()?.for_part(layer("page:0.5-1")?)?.to_parts();
    parts.experiment_id = other.clone();
    let second = Specification::new(parts)?;
    let mut counts = [0; 2];
    for _device in 0..40 {
        let directory = tempfile::tempdir()?;
        let clock = Hands::new();
        let mut seen = BTreeSet::new();
        for start in 0..3 {
            let (bandana, mut tasks) = started(directory.path(), &clock)?;
            bandana.experiment(other.as_str())?;
            for offered in [&first, &second] {
                hear(&mut tasks, &clock, offered, &[0.5, 0.5])?;
            }
            for id in [&one, &other] {
                match bandana.experiment(id.as_str())?.choose() {
                    Choice::Arm(assignment) if assignment.unreported().is_none() => {
                        seen.insert(id.clone());
                    }
                    Choice::Arm(_) => {}
                    Choice::Default(why) => assert_eq!(why, DefaultReason::NotSampled),
                }
            }
            clock.forward(600 + 3600);
            for offered in [&first, &second] {
                hear(&mut tasks, &clock, offered, &[0.5, 0.5])?;
            }
            // A report leaves only after the installation's secret is on the disk; what follows is
            // lost, as by a kill.
            assert_eq!(send(&mut tasks)?.len(), 1, "start {start}");
        }
        assert_eq!(seen.len(), 1, "{seen:?}");
        counts[usize::from(seen.contains(&other))] += 1;
    }
    // Fewer than 7 of 40 come with a probability of 2e-6.
    assert!(counts.iter().all(|count| *count >= 7), "{counts:?}");
    Ok(())
}

#[test]
fn those_who_are_enrolled_stay_so_as_the_share_grows() -> Result<(), Failure> {
    let share = Millionths::from_share;
    let few = Participation { enrolment: share(0.3)?, ..Participation::EVERYONE };
    let few = specification()?.for_part(few)?;
    let more = few.with_enrolment(share(0.7)?)?;
    let all = more.with_enrolment(Millionths::ALL)?;
    let mut counts = [0; 3];
    for _device in 0..60 {
        let directory = tempfile::tempdir()?;
        let clock = Hands::new();
        let (bandana, mut tasks) = started(directory.path(), &clock)?;
        let mut was_in = false;
        for (count, offered) in counts.iter_mut().zip([&few, &more, &all]) {
            hear(&mut tasks, &clock, offered, &[0.5, 0.5])?;
            let is_in = match bandana.experiment(NAME)?.choose() {
                Choice::Arm(_) => true,
                Choice::Default(why) => {
                    assert_eq!(why, DefaultReason::NotSampled);
                    false
                }
            };
            assert!(is_in || !was_in);
            was_in = is_in;
            *count += u32::from(is_in);
            clock.forward(600);
        }
    }
    // Five standard deviations of a binomial of 60 at .3 are 17.7.
    assert!(counts[0] < 36 && counts[1] > 24 && counts[2] == 60, "{counts:?}");
    Ok(())
}

#[test]
fn opting_out_and_in_is_no_way_to_a_second_report_or_position() -> Result<(), Failure> {
    let half = Participation { layer: Some("page:0-0.5".parse()?), ..sticky() };
    let offered = specification()?.for_part(half)?;
    let (mut reports, mut sampled) = (0, 0);
    for _device in 0..20 {
        let directory = tempfile::tempdir()?;
        let clock = Hands::new();
        let mut is_in = BTreeSet::new();
        let mut of_device = 0;
        for start in 0..4 {
            let (bandana, mut tasks) = started(directory.path(), &clock)?;
            for _ in 0..3 {
                hear(&mut tasks, &clock, &offered, &[0.5, 0.5])?;
                match bandana.experiment(NAME)?.choose() {
                    Choice::Arm(assignment) => {
                        is_in.insert(true);
                        of_device += usize::from(assignment.unreported().is_none());
                    }
                    Choice::Default(why) => {
                        assert_eq!(why, DefaultReason::NotSampled, "start {start}");
                        is_in.insert(false);
                    }
                }
                bandana.opt_out()?;
                bandana.opt_in()?;
                tasks.write();
            }
        }
        assert!(is_in.len() == 1 && of_device <= 1, "{is_in:?}, {of_device} reports");
        reports += of_device;
        sampled += usize::from(is_in.contains(&true));
    }
    assert!(reports == sampled && (3..18).contains(&sampled), "{reports} of {sampled}");
    Ok(())
}
