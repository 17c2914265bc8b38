//! Experiments of which some installations are held out.

use std::path::Path;
use std::sync::Arc;

use bandana_client::{AssignmentId, Bandana, FetchTask, Fetched, Tasks};
use bandana_shared::cells::{Cell, Measurement};
use bandana_shared::participation::{Millionths, Participation, Sticky};
use bandana_shared::policy::{Policy, Weights};
use bandana_shared::specification::Specification;
use bandana_shared::upload::Upload;

use super::{Failure, Hands, NAME, acceptance, builder_accepting, fetched, send, specification};

/// Two arms; half of the installations are held out, and each keeps its arm.
fn offered() -> Result<Specification, Failure> {
    let holdout = Millionths::from_share(0.5)?;
    let sticky = Participation { sticky: Some(Sticky::DEFAULT), ..Participation::EVERYONE };
    let measurement = Measurement { holdout, ..Measurement::REWARDS_ONLY };
    Ok(specification()?.measuring(measurement)?.for_part(sticky)?)
}

fn hear(
    tasks: &mut Tasks,
    clock: &Hands,
    offered: &Specification,
    weights: &[u64],
) -> Result<(), Failure> {
    let fetched = fetched(offered, clock.truth())?;
    // Another version for other weights.
    let version = fetched.policy.version + weights[0];
    let policy = Policy { weights: Weights::new(weights)?, version, ..fetched.policy };
    let task = FetchTask::new(offered.experiment_id().clone());
    Ok(tasks.on_fetched(&task, Fetched { policy, ..fetched })?)
}

fn started(path: &Path, clock: &Arc<Hands>) -> Result<(Bandana, Tasks), Failure> {
    let (bandana, tasks) = builder_accepting(path, clock, acceptance()?, 1000)?.build();
    bandana.experiment(NAME)?;
    Ok((bandana, tasks))
}

fn drawn(bandana: &Bandana) -> Result<(AssignmentId, usize), Failure> {
    let choice = bandana.experiment(NAME)?.draw();
    let assignment = choice.assignment().ok_or("no arm")?;
    Ok((assignment.id(), assignment.arm().get()))
}

/// Sends what is due, and returns the cells that the reports were for.
fn sent_cells(tasks: &mut Tasks, offered: &Specification) -> Result<Vec<Cell>, Failure> {
    let cell_of =
        |upload: &Upload| upload.reports.last_cell().and_then(|cell| offered.cells().cell(cell));
    let cells: Option<Vec<Cell>> = send(tasks)?.iter().map(cell_of).collect();
    Ok(cells.ok_or("no such cell")?)
}

/// The learner is sure of the first arm.
const SURE: [u64; 2] = [Weights::TOTAL - 1, 1];

#[test]
fn those_held_out_get_all_arms_evenly_and_say_so_also_after_a_restart() -> Result<(), Failure> {
    let offered = offered()?;
    let mut counts = [[0_u32; 2]; 2];
    for _ in 0..120 {
        let (directory, clock) = (tempfile::tempdir()?, Hands::new());
        let (bandana, mut tasks) = started(directory.path(), &clock)?;
        hear(&mut tasks, &clock, &offered, &SURE)?;
        let (_, arm) = drawn(&bandana)?;
        drop((bandana, tasks));

        let (bandana, mut tasks) = started(directory.path(), &clock)?;
        assert_eq!(drawn(&bandana)?.1, arm, "the arm is kept");
        clock.forward(2 * 86_400);
        let mut sent = sent_cells(&mut tasks, &offered)?;
        hear(&mut tasks, &clock, &offered, &SURE)?;
        sent.extend(sent_cells(&mut tasks, &offered)?);
        // The first question had no answer: what waited for the day leaves at a time of its own.
        clock.forward(3600);
        sent.extend(sent_cells(&mut tasks, &offered)?);
        let [cell] = &sent[..] else { return Err(format!("{sent:?}").into()) };
        assert_eq!(cell.arm.get(), arm);
        counts[usize::from(cell.is_held_out)][arm] += 1;
        assert_eq!(bandana.status().spent.lifetime.get(), 1_000_000_000);
    }
    // The other arm has a weight of 2^-32. Those held out get it half of the time: 60 of 120 are, and
    // 30 get each arm, five standard deviations.
    let [[first, second], held_out] = counts;
    assert_eq!(second, 0, "{counts:?}");
    assert!((33..=87).contains(&first), "{counts:?}");
    assert!(held_out.iter().all(|arm| (7..=53).contains(arm)), "{counts:?}");
    Ok(())
}

#[test]
fn those_held_out_leave_an_arm_without_any_weight() -> Result<(), Failure> {
    let offered = offered()?;
    let mut moved = 0;
    for _ in 0..40 {
        let (directory, clock) = (tempfile::tempdir()?, Hands::new());
        let (bandana, mut tasks) = started(directory.path(), &clock)?;
        hear(&mut tasks, &clock, &offered, &SURE)?;
        let (_, before) = drawn(&bandana)?;
        // The second arm does harm, so it has no weight.
        hear(&mut tasks, &clock, &offered, &[Weights::TOTAL, 0])?;
        assert_eq!(drawn(&bandana)?.1, 0);
        moved += before;
    }
    // A quarter of 40 had it; none at all comes once in 10^5.
    assert!(moved > 0);
    Ok(())
}
