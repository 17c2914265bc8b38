//! Tests of studies.

use bandana_shared::accounting::guarantee::Guarantee;
use bandana_shared::accounting::loss::PrivacyLoss;
use bandana_shared::accounting::shuffling::largest_local_loss;
use bandana_shared::alphabet::Alphabet;

use super::*;
use crate::instance::Instance;
use crate::standard::StandardLearner;
use crate::trial::Attack;

fn study(learners: &[StandardLearner], horizon: u64, trials: usize) -> Study {
    let privacy = Privacy { mechanism: Mechanism::Linear, epsilon: Epsilon::new(2.0).unwrap() };
    let bandit = Arc::new(Instance::paper_20());
    Study {
        mechanisms: vec![Mechanism::Linear, Mechanism::Exponential],
        trials,
        course: Course::to(horizon),
        seed: 3,
        threads: 2,
        ..Study::new("paper-20", bandit, privacy, these(learners))
    }
}

fn these(learners: &[StandardLearner]) -> Vec<Arc<dyn Contestant>> {
    learners.iter().map(|one| Arc::new(*one) as Arc<dyn Contestant>).collect()
}

/// The results that a seed determines: all but the speed.
fn regrets(outcome: &StudyOutcome) -> Vec<(String, String, u64, f64, f64)> {
    let rows = outcome.rows.iter();
    rows.map(|r| (r.learner.clone(), r.mechanism.clone(), r.horizon, r.mean_regret, r.p99))
        .collect()
}

#[test]
fn a_seed_fixes_the_result_whatever_the_threads() {
    let all: Vec<StandardLearner> = StandardLearner::all().collect();
    let two = study(&all, 300, 2);
    let one = Study { threads: 1, ..two.clone() };
    let stop = AtomicBool::new(false);
    let outcome = two.run(&stop, |_| {}).unwrap();
    assert_eq!(regrets(&outcome), regrets(&one.run(&stop, |_| {}).unwrap()));
    // Learners without a curve are studied once, the others with each of two curves.
    let curveless = all.iter().filter(|contestant| contestant.own_channel().is_some()).count();
    let entries = 2 * (all.len() - curveless) + curveless;
    assert_eq!(outcome.rows.len(), entries * one.course.checkpoints.len());
    let other = Study { seed: 4, ..one };
    assert_ne!(regrets(&outcome), regrets(&other.run(&stop, |_| {}).unwrap()));
}

#[test]
fn a_host_prepares_each_thread_before_its_trials() {
    thread_local! { static PREPARED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) } }
    let mut study = study(&[StandardLearner::LdpTs], 300, 4);
    study.host = |work| {
        PREPARED.set(true);
        work();
    };
    let prepared = |study: &Study| {
        let seen = Mutex::new(Vec::new());
        let stop = AtomicBool::new(false);
        study.run(&stop, |_| seen.lock().unwrap().push(PREPARED.get())).unwrap();
        seen.into_inner().unwrap()
    };
    assert_eq!(prepared(&study), [true; 8]);
    let unprepared = Study { host: |work| work(), ..study.clone() };
    assert_eq!(prepared(&unprepared), [false; 8]);
}

#[test]
fn levels_tell_more_than_bits_at_a_large_epsilon() {
    // At epsilon = 5 the ratio of all learners lies near .8 in the long run; with 20
    // trials its standard error is about .05, and this seed is fixed.
    let mut study = study(&[StandardLearner::LdpTs, StandardLearner::RandAdaKl], 10_000, 20);
    study.mechanisms = vec![Mechanism::Linear, Mechanism::Kary(Alphabet::new(6).unwrap())];
    study.epsilons = vec![Epsilon::new(5.0).unwrap()];
    let outcome = study.run(&AtomicBool::new(false), |_| {}).unwrap();
    let of = |mechanism: &str| {
        let rows = outcome.rows.iter().filter(|row| row.horizon == 10_000);
        let rows = rows.filter(|row| row.mechanism.starts_with(mechanism));
        rows.map(|row| (row.ratio.unwrap(), row.mean_regret)).collect::<Vec<_>>()
    };
    let (bits, levels) = (of("linear"), of("k-level"));
    assert!(
        (bits[0].0 - 1.0).abs() < 1e-12 && levels[0].0 < 0.95 && levels[1].0 < 0.85,
        "{levels:?}"
    );
    // Ratios of levels are to the first learner on the first channel.
    assert!((levels[1].0 - levels[1].1 / bits[0].1).abs() < 1e-9);
}

#[test]
fn ratios_are_to_the_first_learner_wherever_it_was_run() {
    let learners =
        [StandardLearner::NonprivateTs, StandardLearner::LdpTs, StandardLearner::LdpUcbLaplace];
    let mut study = study(&learners, 1000, 2);
    study.epsilons.push(Epsilon::new(1.0).unwrap());
    let outcome = study.run(&AtomicBool::new(false), |_| {}).unwrap();
    let base = outcome.rows[outcome.rows.len() / 7 - 1].mean_regret;
    let last: Vec<_> = outcome.rows.iter().filter(|row| row.horizon == 1000).collect();
    // One without privacy, two with a curve and one without, for each of two epsilons.
    assert_eq!(last.len(), 7);
    for row in &last {
        assert_eq!(row.ratio_to, "nonprivate-ts, none");
        assert!((row.ratio.unwrap() - row.mean_regret / base).abs() < 1e-12, "{row:?}");
    }
    study.contestants.reverse();
    let outcome = study.run(&AtomicBool::new(false), |_| {}).unwrap();
    for row in outcome.rows.iter().filter(|row| row.epsilon == Some(1.0)) {
        assert_eq!(row.ratio_to, "ldp-ucb-laplace, laplace, 1");
    }
}

#[test]
fn top_two_lies_between_uniform_play_and_thompson_sampling() {
    // Uniform play loses .23 each round, 4,600 +- 20 here in a trial; top-two sampling gives
    // half of the rounds to rivals that are .1 worse or a little more: 1,000 at least.
    let learners = [StandardLearner::Uniform, StandardLearner::TopTwo, StandardLearner::LdpTs];
    let mut study = study(&learners, 20_000, 3);
    study.mechanisms.truncate(1);
    let outcome = study.run(&AtomicBool::new(false), |_| {}).unwrap();
    let last = outcome.rows.iter().filter(|row| row.horizon == 20_000);
    let [uniform, top_two, thompson] = last.collect::<Vec<_>>()[..] else { unreachable!() };
    assert!((uniform.mean_regret - 4_600.0).abs() < 60.0, "{uniform:?}");
    assert!((1_000.0..1_800.0).contains(&top_two.mean_regret), "{top_two:?}");
    assert!(thompson.mean_regret < 600.0, "{thompson:?}");
}

#[test]
fn learners_beat_uniform_play_and_learn_in_batches() {
    // Uniform play loses .23 each round, 1,150 here. Every learner is far below in
    // the mean of 3 trials; one that learnt nothing would be at 1,150 +- 10.
    let learners = [
        StandardLearner::LdpTs,
        StandardLearner::RandAdaKl,
        StandardLearner::TruncatedTs,
        StandardLearner::KlUcb,
    ];
    let mut study = study(&learners, 5_000, 3);
    study.mechanisms.truncate(1);
    for batch in [1, 100] {
        study.course.batch = batch;
        let outcome = study.run(&AtomicBool::new(false), |_| {}).unwrap();
        for row in outcome.rows.iter().filter(|row| row.horizon == 5_000) {
            assert!(row.mean_regret < 800.0, "{batch} {row:?}");
        }
    }
    // The same holds for learners that play by a server's policies, and for levels.
    study.served = true;
    study.contestants = these(&[StandardLearner::LdpTs, StandardLearner::RandAdaKl]);
    study.mechanisms.push(Mechanism::Kary(Alphabet::new(4).unwrap()));
    let outcome = study.run(&AtomicBool::new(false), |_| {}).unwrap();
    let last = outcome.rows.iter().filter(|row| row.horizon == 5_000);
    assert!(last.clone().all(|row| row.mean_regret < 800.0), "{outcome:?}");
    study.contestants = these(&[StandardLearner::Imed]);
    assert!(study.run(&AtomicBool::new(false), |_| {}).is_err());
}

#[test]
fn shuffled_reports_cost_less_regret_at_the_same_loss() {
    // 20 arms, an epsilon of .2 and 100,000 rounds: about 11,400 by local noise, 4,000 shuffled
    // among 100; one that learnt nothing would be at 23,000.
    let mut study = study(&[StandardLearner::LdpTs], 100_000, 3);
    study.mechanisms.truncate(1);
    let central = Guarantee::new(PrivacyLoss::new(0.2).unwrap(), study.delta);
    let mut regret = |local: Epsilon, shuffle: Option<u32>| {
        study.epsilons = vec![local];
        study.course.shuffle = shuffle;
        let outcome = study.run(&AtomicBool::new(false), |_| {}).unwrap();
        let last = outcome.rows.last().unwrap();
        (last.mean_regret, last.central_epsilon)
    };
    let (local, none) = regret(Epsilon::new(0.2).unwrap(), None);
    let larger = largest_local_loss(100, central).unwrap().unwrap();
    let (shuffled, certified) = regret(larger, Some(100));
    assert!(shuffled < 0.5 * local, "{shuffled} {local}");
    assert!(none.is_none() && (certified.unwrap() - 0.2).abs() < 1e-6, "{certified:?}");
    // Batches that never fill teach nothing, whatever the noise.
    let (unseen, _) = regret(larger, Some(16_384));
    let (noisy, _) = regret(Epsilon::new(4.0).unwrap(), Some(16_384));
    assert!(unseen > 20_000.0 && (unseen - noisy).abs() < 1e-9, "{unseen} {noisy}");
}

#[test]
fn every_learner_learns_from_shuffled_reports() {
    // Uniform play loses .23 each round, 1,150 here, and waiting for an arm without reports
    // would settle on the first arm whose batch is full.
    let all: Vec<StandardLearner> = StandardLearner::all().collect();
    let mut study = study(&all, 5_000, 4);
    // One does not learn, and one learns for a verdict.
    study.contestants.retain(|one| !["uniform", "top-two"].contains(&&*one.name()));
    study.mechanisms.truncate(1);
    study.epsilons = vec![Epsilon::new(4.0).unwrap()];
    study.course.shuffle = Some(10);
    let outcome = study.run(&AtomicBool::new(false), |_| {}).unwrap();
    for row in outcome.rows.iter().filter(|row| row.horizon == 5_000) {
        assert!(row.mean_regret < 1_000.0, "{row:?}");
        let is_bits = row.mechanism == "linear";
        assert_eq!(row.central_epsilon.is_some(), is_bits, "{row:?}");
    }
    study.served = true;
    study.contestants = these(&[StandardLearner::LdpTs, StandardLearner::RandAdaKl]);
    let outcome = study.run(&AtomicBool::new(false), |_| {}).unwrap();
    let last = outcome.rows.iter().filter(|row| row.horizon == 5_000);
    assert!(last.clone().all(|row| row.mean_regret < 800.0), "{outcome:?}");
    assert!(outcome.table().contains("shuffled among 10 of its arm"), "{}", outcome.table());
}

#[test]
fn lies_cost_regret_and_an_interrupt_keeps_what_is_finished() {
    let mut study = study(&[StandardLearner::LdpTs], 5_000, 6);
    study.mechanisms.truncate(1);
    let last = |study: &Study| {
        let outcome = study.run(&AtomicBool::new(false), |_| {}).unwrap();
        outcome.rows.last().unwrap().mean_regret
    };
    let honest = last(&study);
    study.course.dishonest = 0.2;
    assert!(last(&study) > 1.3 * honest);
    study.course.attack = Attack::Stuff;
    assert!(last(&study) > 1.3 * honest);

    let stop = AtomicBool::new(false);
    study.threads = 1;
    let outcome = study.run(&stop, |done| stop.store(done == 2, Ordering::Relaxed)).unwrap();
    assert!(outcome.interrupted);
    assert!(outcome.rows.iter().all(|row| row.trials == 2), "{outcome:?}");
}

#[test]
fn by_batches_regret_has_the_law_of_single_rounds() {
    // The same policies of batches of 100, drawn round by round or as counts. A difference of means
    // beyond five standard errors comes once in a million. Policies of the first two cost little, so
    // they have the trials that make a standard error 1 to 2% of the mean.
    let cheap = [StandardLearner::LdpUcb, StandardLearner::Uniform];
    for (learners, trials) in [(&cheap[..], 400), (&[StandardLearner::LdpTs], 60)] {
        let mut single = study(learners, 1_500, trials);
        single.bandit = Arc::new(Instance::named("wide-best").unwrap());
        single.mechanisms = vec![Mechanism::Linear, Mechanism::Kary(Alphabet::new(4).unwrap())];
        (single.course.batch, single.served) = (100, true);
        single.course.checkpoints = vec![150, 700, 1_500];
        let mut counted = Study { served: false, ..single.clone() };
        counted.course.by_batches = true;
        let stop = AtomicBool::new(false);
        let [single, counted] = [single, counted].map(|study| study.run(&stop, |_| {}).unwrap());
        assert!(counted.by_batches && single.rows.len() == counted.rows.len());
        for (one, other) in single.rows.iter().zip(&counted.rows) {
            assert_eq!((&one.learner, one.horizon), (&other.learner, other.horizon));
            let error = one.ci95.hypot(other.ci95) / 1.96;
            let off = (one.mean_regret - other.mean_regret) / error;
            assert!(off.abs() < 5.0, "{off}: {one:?} {other:?}");
        }
    }
}

#[test]
fn by_batches_only_learners_with_weights_play_and_nobody_lies() {
    let mut by_batches = study(&[StandardLearner::KlUcb], 1000, 1);
    by_batches.course.by_batches = true;
    let stop = AtomicBool::new(false);
    let error = by_batches.run(&stop, |_| {}).unwrap_err().to_string();
    assert!(error.contains("kl-ucb chooses arm by arm"), "{error}");
    by_batches.contestants = these(&[StandardLearner::LdpTs]);
    by_batches.course.dishonest = 0.01;
    let error = by_batches.run(&stop, |_| {}).unwrap_err().to_string();
    assert!(error.contains("no shuffled reports and no dishonest"), "{error}");
}
