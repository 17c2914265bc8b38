//! Trusted experiments in their database: counted once, and the same after every restart.

use std::path::Path;

use bandana_aggregator::trusted::adac_gope::{GopeSettings, PhaseLength};
use bandana_aggregator::trusted::adac_oful::OfulSettings;
use bandana_aggregator::trusted::adac_ucb::{Memory, UcbSettings};
use bandana_aggregator::trusted::estimator::Placement;
use bandana_aggregator::trusted::keeper::{Disclosed, Keeper, KeeperError, Plan, Played, Released};
use bandana_aggregator::trusted::{Action, Protection, RewardRange, TrustedError};
use bandana_shared::identity::{ExperimentId, UploadId};
use rusqlite::Connection;
use tempfile::{TempDir, tempdir};

fn name() -> ExperimentId {
    ExperimentId::new("headlines").unwrap()
}

fn ucb() -> Plan {
    let protection = Protection::concentrated(0.5).unwrap();
    let (exploration, memory) = (1.0, Memory::Forgetting);
    Plan::Ucb(UcbSettings { arms: 3, protection, exploration, memory })
}

fn disclosure(number: u64) -> UploadId {
    UploadId::new(u128::from(number).to_be_bytes())
}

/// Follows the recommendation.
fn follow(keeper: &mut Keeper, number: u64) -> Result<Disclosed, KeeperError> {
    let arm = keeper.recommend(&name(), &[])?;
    let reward = f64::from(u8::from(!number.is_multiple_of(3)));
    keeper.disclose(&name(), disclosure(number), &Played::Arm(arm), reward)
}

/// An experiment with these disclosures, in the middle of an episode, whose release is so many
/// disclosures ahead.
fn in_mid_episode(directory: &Path) -> (Keeper, u64) {
    let mut keeper = Keeper::open(directory).unwrap();
    keeper.create(&name(), ucb()).unwrap();
    for number in 0.. {
        follow(&mut keeper, number).unwrap();
        if number > 60 && remaining(&keeper) > 4 {
            return (keeper, number + 1);
        }
    }
    unreachable!("an episode is as long as all before");
}

/// Disclosures until a release, by looking at a copy.
fn remaining(keeper: &Keeper) -> u64 {
    match keeper.released(&name()).unwrap() {
        // An episode has as many plays as its arm before, and only arms with many have long ones.
        Released::Means(means) => {
            let arm = keeper.recommend(&name(), &[]).unwrap();
            means[arm].map_or(1, |mean| mean.rewards)
        }
        _ => 1,
    }
}

fn copy(from: &Path) -> TempDir {
    let to = tempdir().unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.path().join(entry.file_name())).unwrap();
    }
    to
}

/// Follows recommendations until something new is released.
fn until_release(keeper: &mut Keeper, mut number: u64) -> Released {
    let before = keeper.released(&name()).unwrap();
    while keeper.released(&name()).unwrap() == before {
        follow(keeper, number).unwrap();
        number += 1;
    }
    keeper.released(&name()).unwrap()
}

#[test]
fn a_restart_in_mid_episode_changes_no_statistic() {
    let directory = tempdir().unwrap();
    let (mut keeper, number) = in_mid_episode(directory.path());
    let other = copy(directory.path());
    let expected = until_release(&mut keeper, number);

    // The copy stands for the same server, killed in mid-episode and started again, twice.
    let mut killed = Keeper::open(other.path()).unwrap();
    assert_eq!(follow(&mut killed, number).unwrap(), Disclosed::Counted);
    drop(killed);
    let mut again = Keeper::open(other.path()).unwrap();
    assert_eq!(follow(&mut again, number).unwrap(), Disclosed::Duplicate);
    assert_eq!(until_release(&mut again, number + 1), expected);
    let (one, two) = (keeper.rewards(&name()).unwrap(), again.rewards(&name()).unwrap());
    assert_eq!(one, two);
}

#[test]
fn a_release_that_a_crash_held_up_has_the_noise_it_would_have_had() {
    let directory = tempdir().unwrap();
    let (mut keeper, mut number) = in_mid_episode(directory.path());
    let other = copy(directory.path());
    let expected = until_release(&mut keeper, number);

    // The disk refuses states in which nothing was disclosed: the release.
    let database = Connection::open(other.path().join("trusted.sqlite3")).unwrap();
    let refuse = "CREATE TRIGGER refuse BEFORE UPDATE ON experiment
        WHEN NEW.sequence - OLD.sequence = 1 AND (SELECT count(*) FROM disclosure) <= (
            SELECT n FROM counted)
        BEGIN SELECT raise(ABORT, 'no'); END;
        CREATE TABLE counted (n INTEGER);
        CREATE TRIGGER count AFTER UPDATE ON experiment
        BEGIN DELETE FROM counted; INSERT INTO counted SELECT count(*) FROM disclosure; END;";
    database.execute_batch(refuse).unwrap();
    let mut killed = Keeper::open(other.path()).unwrap();
    let error = loop {
        match follow(&mut killed, number) {
            Ok(_) => number += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, KeeperError::Database(_)), "{error}");
    // It says no more until it has looked at what is durable.
    let refused = killed.recommend(&name(), &[]).unwrap_err();
    assert!(matches!(refused, KeeperError::Unsure), "{refused}");
    drop(killed);
    database.execute_batch("DROP TRIGGER refuse; DROP TRIGGER count;").unwrap();

    let mut again = Keeper::open(other.path()).unwrap();
    assert_eq!(again.released(&name()).unwrap(), expected);
    assert_eq!(follow(&mut again, number).unwrap(), Disclosed::Duplicate);
}

#[test]
fn bad_input_changes_nothing() {
    let directory = tempdir().unwrap();
    let mut keeper = Keeper::open(directory.path()).unwrap();
    assert!(matches!(Keeper::open(directory.path()), Err(KeeperError::Locked { .. })));
    assert!(matches!(keeper.rewards(&name()), Err(KeeperError::Unknown(_))));
    keeper.create(&name(), ucb()).unwrap();
    assert!(matches!(keeper.create(&name(), ucb()), Err(KeeperError::Exists(_))));
    let before = (keeper.released(&name()).unwrap(), 0);
    let vector = Played::Vector(Action::new(&[1.0], 1, 0).unwrap());
    for (played, reward) in
        [(Played::Arm(3), 0.5), (Played::Arm(0), 1.25), (Played::Arm(0), f64::NAN), (vector, 0.5)]
    {
        let refused = keeper.disclose(&name(), disclosure(1), &played, reward).unwrap_err();
        assert!(!refused.to_string().contains("1.25"), "{refused}");
        let after = (keeper.released(&name()).unwrap(), keeper.rewards(&name()).unwrap());
        assert_eq!(after, before, "{played:?}");
    }
    // The id is not used up.
    let counted = keeper.disclose(&name(), disclosure(1), &Played::Arm(2), 0.5).unwrap();
    assert_eq!(counted, Disclosed::Counted);
    // Its reward is in a buffer, and nothing is said of it.
    assert_eq!(keeper.released(&name()).unwrap(), before.0);
}

#[test]
fn linear_experiments_are_kept_too() {
    let directory = tempdir().unwrap();
    let protection = Protection::concentrated(10.0).unwrap();
    let vectors = [[1.0, 0.0], [0.0, 1.0], [-0.6, 0.8]].map(|vector| vector.to_vec());
    let actions = Action::list(&vectors).unwrap();
    let fixed = ExperimentId::new("fixed").unwrap();
    let changing = ExperimentId::new("changing").unwrap();
    let mut keeper = Keeper::open(directory.path()).unwrap();
    let settings = GopeSettings {
        actions: actions.clone(),
        range: RewardRange::Symmetric,
        protection,
        failure: 0.1,
        length: PhaseLength::Exact,
        placement: Placement::Shaped,
    };
    keeper.create(&fixed, Plan::Gope(settings)).unwrap();
    keeper.create(&changing, Plan::Oful(OfulSettings::published(2, protection))).unwrap();
    for number in 0..60 {
        let arm = Played::Arm(keeper.recommend(&fixed, &[]).unwrap());
        keeper.disclose(&fixed, disclosure(number), &arm, -1.0).unwrap();
        let best = keeper.recommend(&changing, &actions).unwrap();
        let played = Played::Vector(actions[best].clone());
        keeper.disclose(&changing, disclosure(number), &played, 1.0).unwrap();
        if number % 10 == 0 {
            let before = [&fixed, &changing].map(|id| keeper.released(id).unwrap());
            drop(keeper);
            keeper = Keeper::open(directory.path()).unwrap();
            assert_eq!([&fixed, &changing].map(|id| keeper.released(id).unwrap()), before);
        }
    }
    assert_eq!(keeper.rewards(&changing).unwrap(), 60);
    let missing = keeper.recommend(&changing, &[]).unwrap_err();
    assert!(matches!(missing, KeeperError::Trusted(TrustedError::Arms { .. })), "{missing}");
    let Released::Parameter(parameter) = keeper.released(&changing).unwrap() else {
        panic!("AdaC-OFUL estimates a parameter")
    };
    assert!(parameter.iter().any(|coordinate| *coordinate != 0.0));
}
