//! The report on refusals.

use std::sync::Arc;

use bandana_client::{
    Acceptance, AssignmentId, Bandana, FetchTask, Fetched, Task, Tasks, UploadOutcome,
};
use bandana_shared::alphabet::Symbol;
use bandana_shared::curve::Mechanism;
use bandana_shared::epsilon::Epsilon;
use bandana_shared::identity::ExperimentId;
use bandana_shared::participation::{Participation, Sticky};
use bandana_shared::refusals::{ARM_LABEL, RefusalReason, are_asked_by, rewards};
use bandana_shared::specification::{Arm, ReleaseTiming, Specification, SpecificationParts};
use bandana_shared::tally::Tally;
use bandana_shared::upload::PackedReports;
use bandana_shared::wire::v1;
use prost::Message as _;

use super::{Failure, Hands, NAME, acceptance, builder_accepting, fetched, specification};

const ABOUT: &str = "refusals";

/// Nearly no noise, so that the symbol is the category.
fn about() -> Result<Specification, Failure> {
    let categories = rewards().categories().ok_or("no categories")?;
    let specification = Specification::first(
        ExperimentId::new(ABOUT)?,
        Epsilon::new(30.0)?,
        rewards(),
        Mechanism::Kary(categories),
        vec![Arm::new(ARM_LABEL)?],
        ReleaseTiming { attribution_window_seconds: 86_400, release_delay_seconds_max: 3600 },
    )?;
    let sticky = Some(Sticky { report_days: 28, ..Sticky::DEFAULT });
    Ok(specification.for_part(Participation { sticky, ..Participation::EVERYONE })?)
}

/// Answers what is due, and returns the uploads with their times.
fn serve(
    tasks: &mut Tasks,
    clock: &Hands,
    offered: &Specification,
) -> Result<Vec<v1::UploadRequest>, Failure> {
    let mut sent = Vec::new();
    loop {
        match tasks.next_task()? {
            Task::Fetch(task) => {
                let (one, about) = (offered.clone(), about()?);
                let asked = if task.experiment_id.as_str() == ABOUT { about } else { one };
                let task = FetchTask::new(task.experiment_id);
                let answer: Fetched = fetched(&asked, clock.truth())?;
                // A refusal is an error of the host's too.
                tasks.on_fetched(&task, answer).ok();
            }
            Task::Upload(task) => {
                tasks.on_upload_result(task.id(), &UploadOutcome::Accepted)?;
                sent.push(v1::UploadRequest::decode(task.bytes())?);
            }
            _ => return Ok(sent),
        }
    }
}

fn started(clock: &Arc<Hands>) -> Result<(tempfile::TempDir, Bandana, Tasks), Failure> {
    let directory = tempfile::tempdir()?;
    let little = Acceptance::unsigned(Epsilon::new(30.0)?, rewards());
    let builder = builder_accepting(directory.path(), clock, acceptance()?, 1000)?;
    let (bandana, tasks) = builder.report_refusals(ExperimentId::new(ABOUT)?, little).build();
    bandana.experiment(NAME)?;
    Ok((directory, bandana, tasks))
}

#[test]
fn an_installation_tells_why_it_refuses_and_one_that_does_not_tells_that_likewise()
-> Result<(), Failure> {
    assert!(are_asked_by(&about()?) && !are_asked_by(&specification()?));
    let good = specification()?;
    let too_much = Specification::first(
        ExperimentId::new(NAME)?,
        Epsilon::new(31.0)?,
        good.rewards(),
        Mechanism::RandomizedResponse,
        good.arms().to_vec(),
        good.timing(),
    )?;
    for (offered, reason) in [(&good, RefusalReason::Nothing), (&too_much, RefusalReason::Epsilon)]
    {
        let clock = Hands::new();
        let (_directory, bandana, mut tasks) = started(&clock)?;
        assert!(serve(&mut tasks, &clock, offered)?.is_empty());
        // The app shows its experiment, or a default.
        drop(bandana.experiment(NAME)?.choose());
        let mut told = Vec::new();
        for _ in 0..60 {
            clock.forward(86_400);
            drop(bandana.experiment(NAME)?.choose());
            told.extend(serve(&mut tasks, &clock, offered)?);
        }
        let symbols = symbols_told(&told)?;
        // Once in each of the periods of 28 days that 60 days touch.
        assert!((2..=4).contains(&symbols.len()), "{reason:?}: {symbols:?}");
        assert!(symbols.iter().all(|one| *one == reason.category()), "{reason:?}: {symbols:?}");
    }
    Ok(())
}

#[test]
fn an_installation_tells_that_its_app_gave_a_reward_that_the_experiment_does_not_admit()
-> Result<(), Failure> {
    for (reward, reason) in [(1.0, RefusalReason::Nothing), (f64::NAN, RefusalReason::Rewards)] {
        let clock = Hands::new();
        let (_directory, bandana, mut tasks) = started(&clock)?;
        let offered = specification()?;
        serve(&mut tasks, &clock, &offered)?;
        let choice = bandana.experiment(NAME)?.choose();
        choice.reward(reward);
        // A reward of an assignment that nobody knows is refused for another reason.
        assert!(!bandana.reward(AssignmentId::new(7), 1.0));
        drop(bandana.experiment(NAME)?.choose());
        clock.forward(100_000);
        let told = symbols_told(&serve(&mut tasks, &clock, &offered)?)?;
        assert_eq!(told, [reason.category()], "{reward}");
    }
    Ok(())
}

/// The categories of the reports on refusals, of all that was sent.
fn symbols_told(sent: &[v1::UploadRequest]) -> Result<Vec<u8>, Failure> {
    let (digest, categories) = (about()?.digest(), rewards().categories().ok_or("none")?);
    let mut symbols = Vec::new();
    for sent in sent.iter().filter(|sent| sent.digest == digest.as_bytes()[..]) {
        let reports = PackedReports::symbols_from_packed(&sent.runs, &sent.bits, categories)?;
        let symbol = |tally: Tally| {
            let all = RefusalReason::ALL.iter().map(|reason| reason.category());
            all.filter_map(Symbol::new).find(|one| tally.count(*one) == 1)
        };
        symbols.extend(reports.tallies().filter_map(|(_, tally)| symbol(tally)).map(Symbol::get));
    }
    Ok(symbols)
}

/// The reports on refusals, of all that was sent.
fn on_refusals(sent: &[v1::UploadRequest]) -> Result<usize, Failure> {
    let digest = about()?.digest();
    Ok(sent.iter().filter(|upload| upload.digest == digest.as_bytes()[..]).count())
}

/// What is refused is asked for again and again. No report may be drawn because of that: an app that
/// chooses once makes one, whether it refuses something or not, at the same price.
#[test]
fn asking_again_for_what_is_refused_makes_no_report() -> Result<(), Failure> {
    for chooses in [false, true] {
        let mut seen = Vec::new();
        for refuses in [false, true] {
            let clock = Hands::new();
            let (_directory, bandana, mut tasks) = started(&clock)?;
            let mut offered = specification()?;
            if refuses {
                let timing = ReleaseTiming { release_delay_seconds_max: 0, ..offered.timing() };
                offered = Specification::new(SpecificationParts { timing, ..offered.to_parts() })?;
            }
            let own = if refuses || !chooses { 0 } else { 1_000_000_000 };
            let mut reports = on_refusals(&serve(&mut tasks, &clock, &offered)?)?;
            if chooses {
                drop(bandana.experiment(NAME)?.choose());
            }
            for _ in 0..60 * 24 {
                clock.forward(3600);
                reports += on_refusals(&serve(&mut tasks, &clock, &offered)?)?;
            }
            let status = bandana.status();
            assert_eq!(status.last_refusal.is_some(), refuses);
            seen.push((reports, status.spent.lifetime.get() - own));
        }
        assert_eq!(seen[0], seen[1]);
        assert_eq!(seen[0].0, usize::from(chooses));
    }
    Ok(())
}
