//! Alarms in simulated experiments of months: silent without a defect, and triggered by the defect
//! that each is for.

mod world;

use bandana_aggregator::alarms::AlarmName;
use bandana_learners::Learner;
use bandana_learners::guardrails::Guardrails;
use bandana_learners::window::Memory;

use world::{DEFECT_DAY, Defect, Failure, World};

/// An experiment in which the second arm is somewhat better.
fn healthy() -> World {
    World {
        learner: Learner::LdpTs,
        guardrails: Guardrails::OFF,
        memory: Memory::Everything,
        server_draws: 0.0,
        users_per_hour: 20.0,
        means: [0.4, 0.5, 0.35],
        later: None,
        events: None,
        launch: 0,
        pause: 0..0,
        defect: Defect::Nothing,
        days: 60,
        batch: 1,
        keeps_arms: false,
    }
}

#[test]
fn nothing_rings_in_a_long_healthy_run() -> Result<(), Failure> {
    let guarded = Guardrails { burn_in_reports: 500, holdout_share: 0.1 };
    let events = Some([15 * 24 + 5, 35 * 24 + 3, 25 * 24 + 7]);
    let worlds = [
        healthy(),
        World { events, ..healthy() },
        World { events, server_draws: 1.0, ..healthy() },
        World { guardrails: guarded, events, ..healthy() },
        World { learner: Learner::RandAdaKl, events, ..healthy() },
        World { learner: Learner::Uniform, server_draws: 1.0, ..healthy() },
        World { means: [0.4; 3], ..healthy() },
        World { means: [0.1, 0.9, 0.1], events, ..healthy() },
        // Half a report an hour, and eight times the traffic.
        World { users_per_hour: 0.5, ..healthy() },
        World { users_per_hour: 160.0, days: 40, ..healthy() },
    ];
    is_silent(worlds)
}

/// Asserts that no alarm rings.
fn is_silent(worlds: impl IntoIterator<Item = World>) -> Result<(), Failure> {
    for (seed, world) in (1..).zip(worlds) {
        let rung = world.run(seed)?;
        assert!(rung.is_empty(), "{rung:?} in {world:?}, seed {seed}");
    }
    Ok(())
}

#[test]
fn a_server_that_draws_for_some_of_the_apps_does_not_ring() -> Result<(), Failure> {
    // An arm is added, one retired, and the server restarted.
    let events = Some([15 * 24 + 5, 35 * 24 + 3, 25 * 24 + 7]);
    let shares = [0.02, 0.3, 0.7, 0.9].into_iter();
    is_silent(shares.flat_map(|server_draws| {
        let mixed = World { server_draws, ..healthy() };
        [World { events, ..mixed.clone() }, World { launch: 5 * 24, ..mixed }]
    }))
}

#[test]
fn launches_and_pauses_of_any_length_do_not_ring() -> Result<(), Failure> {
    let pauses = [10 * 24 + 7..11 * 24, 10 * 24..14 * 24, 20 * 24 + 9..32 * 24];
    is_silent(pauses.into_iter().flat_map(|pause| {
        let paused = World { pause, ..healthy() };
        let drawn_here = World { server_draws: 1.0, ..paused.clone() };
        let busy = World { users_per_hour: 160.0, means: [0.2, 0.7, 0.2], days: 40, ..healthy() };
        [World { pause: paused.pause.clone(), ..busy }, paused, drawn_here]
    }))?;
    // By day and by night, on a workday and on a weekend.
    let launches = [3 * 24 + 8, 5 * 24 + 20, 9 * 24 + 2, 20 * 24 + 14];
    is_silent(launches.map(|launch| World { launch, users_per_hour: 80.0, days: 40, ..healthy() }))
}

#[test]
fn a_learner_that_explores_does_not_ring() -> Result<(), Failure> {
    let events = Some([15 * 24 + 5, 35 * 24 + 3, 25 * 24 + 7]);
    let exploring = World { learner: Learner::LdpUcb, users_per_hour: 80.0, ..healthy() };
    is_silent([[0.4, 0.5, 0.35], [0.4; 3], [0.1, 0.9, 0.1]].into_iter().flat_map(|means| {
        [World { means, ..exploring.clone() }, World { means, events, ..exploring.clone() }]
    }))
}

#[test]
fn batches_do_not_ring() -> Result<(), Failure> {
    is_silent([10, 100, 300].into_iter().flat_map(|batch| {
        let world = World { batch, users_per_hour: 80.0, ..healthy() };
        let uniform = World { learner: Learner::Uniform, ..world.clone() };
        let rare = World { users_per_hour: 4.0, ..world.clone() };
        [World { server_draws: 1.0, ..world.clone() }, world, uniform, rare]
    }))
}

/// Asserts that this alarm rings, and no other, within this number of days of the defect.
fn rings(world: &World, name: AlarmName, within: f64) -> Result<(), Failure> {
    for seed in 1..=3 {
        let rung = world.run(seed)?;
        let others = rung.keys().filter(|rung| **rung != name).count();
        let after = rung.get(&name).map(|day| day - f64::from(DEFECT_DAY));
        let in_time = after.is_some_and(|after| (0.0..within).contains(&after));
        assert!(in_time && others == 0, "{rung:?} in {world:?}, seed {seed}");
    }
    Ok(())
}

#[test]
fn reports_of_an_arm_that_are_lost_ring_the_sample_ratio() -> Result<(), Failure> {
    let lost = Defect::Lost(0.3);
    let uniform = World { learner: Learner::Uniform, defect: lost, days: 50, ..healthy() };
    rings(&uniform, AlarmName::SampleRatioMismatch, 15.0)?;
    // A learner's policies change from hour to hour, so the range is wider.
    let learnt = World {
        means: [0.2, 0.6, 0.2],
        guardrails: Guardrails { burn_in_reports: 0, holdout_share: 0.5 },
        defect: Defect::Lost(0.6),
        days: 60,
        ..healthy()
    };
    rings(&learnt, AlarmName::SampleRatioMismatch, 30.0)
}

#[test]
fn reports_that_cease_ring_as_stalled() -> Result<(), Failure> {
    let silent = World { defect: Defect::Silent, days: 35, ..healthy() };
    rings(&silent, AlarmName::StalledReporting, 4.0)
}

#[test]
fn reports_on_somebodys_own_ring_as_too_many_for_the_selections_or_for_the_past()
-> Result<(), Failure> {
    let flood = Defect::Unsolicited(60);
    let drawn_here = World { server_draws: 1.0, defect: flood, days: 50, ..healthy() };
    rings(&drawn_here, AlarmName::ReportsOutgrowSelections, 15.0)?;
    let flood = Defect::Unsolicited(400);
    let by_devices = World { defect: flood, days: 33, ..healthy() };
    rings(&by_devices, AlarmName::ReportSurge, 2.0)?;
    rings(&World { keeps_arms: true, ..by_devices }, AlarmName::ReportSurge, 2.0)
}

#[test]
fn a_policy_that_is_surer_than_all_reports_rings_as_collapsed() -> Result<(), Failure> {
    let forgetful = World {
        memory: Memory::days(7).unwrap(),
        users_per_hour: 160.0,
        means: [0.2, 0.7, 0.2],
        later: Some((DEFECT_DAY, [0.45, 0.1, 0.1])),
        days: 60,
        ..healthy()
    };
    rings(&forgetful, AlarmName::CollapsedEntropy, 30.0)
}

#[test]
fn the_time_as_a_draft_is_no_silence() {
    use bandana_aggregator::alarms::{AlarmBaseline, AlarmQuery, Arrival, ExperimentMonitor};
    use std::time::Duration;

    let hours = Duration::from_hours;
    let mut draft = ExperimentMonitor::new(AlarmBaseline {
        now: hours(0),
        delay: hours(1),
        reports: &[0; 2],
        initial_arms: 2,
        is_history_known: true,
        explores: false,
        counts_selections: true,
        arrival: Arrival::Single,
    })
    .waiting();
    let mut look = |hour: u64| {
        draft.observe(hours(hour), &[0; 2], 0, true);
        let (best, label) = (|_| None, |arm: usize| arm.to_string());
        let query = AlarmQuery { now: hours(hour), is_running: true, best, label };
        draft.alarms(query).iter().any(|alarm| alarm.name == AlarmName::NeverReported)
    };
    // It is started ten hours after it was made; a report can come an hour later.
    assert_eq!([10, 11, 12].map(&mut look), [false, false, true]);
}
