//! Queries have exact probabilities, keep their accuracy, and are refused clearly.
//!
//! Seeds are fixed; statistical tests have a significance of about 10^-6.

use bandana_mechanisms::queries::QueryError;
use bandana_mechanisms::queries::cells::{CELLS_MAX, CellSet};
use bandana_mechanisms::queries::exponential::ExponentialMechanism;
use bandana_mechanisms::queries::halfspaces::halfspaces;
use bandana_mechanisms::queries::moments::Estimate;
use bandana_mechanisms::queries::noisy_max::NoisyMax;
use bandana_mechanisms::queries::price::{ConcentratedLoss, Price, PureLoss};
use bandana_mechanisms::queries::questions::{
    Aim, Answer, Chooser, Class, Question, Size, Term, answer,
};
use bandana_mechanisms::queries::rows::Rows;
use bandana_mechanisms::queries::synthetic::{SyntheticRelease, rows_for};
use bandana_mechanisms::queries::universe::{Column, Schema};
use bandana_mechanisms::queries::weights::{
    MultiplicativeWeights, Promise, Round, SessionPlan, SessionSecret,
};
use rand::{Rng as _, RngExt as _};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng as _;

fn loss(epsilon: f64) -> Result<PureLoss, QueryError> {
    PureLoss::new(epsilon)
}

/// Frequencies of outcomes in `draws` draws.
fn shares<const N: usize>(draws: u32, mut draw: impl FnMut(&mut ChaCha20Rng) -> usize) -> [f64; N] {
    let mut rng = ChaCha20Rng::seed_from_u64(41);
    let mut counts = [0.0; N];
    for _ in 0..draws {
        counts[draw(&mut rng)] += 1.0;
    }
    counts.map(|count| count / f64::from(draws))
}

#[test]
fn the_exponential_mechanism_has_the_probabilities_of_its_definition() {
    const DRAWS: u32 = 60_000;
    let (utilities, weights) = ([7_i64, 3, 10, -2, 9], [5_u32, 1, 2, 8, 0]);
    let mechanism = ExponentialMechanism::new(2, loss(1.5).unwrap()).unwrap();
    let exact: Vec<f64> = utilities
        .iter()
        .zip(weights)
        .map(|(&u, w)| f64::from(w) * (1.5 * u as f64 / 4.0).exp())
        .collect();
    let total: f64 = exact.iter().sum();
    let found: [f64; 5] =
        shares(DRAWS, |rng| mechanism.choose(&utilities, Some(&weights), rng).unwrap());
    for (found, exact) in found.iter().zip(&exact) {
        let p = exact / total;
        let deviation = (p * (1.0 - p) / f64::from(DRAWS)).sqrt();
        assert!((found - p).abs() <= 5.0 * deviation, "{found} is not {p}");
    }
    // A neighbour's probabilities are within a factor of exp(epsilon), and not much closer.
    let neighbour = [9_i64, 1, 8, -4, 7];
    let other: [f64; 5] =
        shares(DRAWS, |rng| mechanism.choose(&neighbour, Some(&weights), rng).unwrap());
    let largest = found.iter().zip(&other).filter(|(_, other)| **other > 0.0);
    let largest = largest.map(|(a, b)| (a / b).ln().abs()).fold(0.0, f64::max);
    assert!((0.8..1.5).contains(&largest), "{largest}");
}

#[test]
fn choices_keep_their_accuracy_and_noisy_max_its_privacy() {
    let utilities: Vec<i64> = (0..50).map(|i| 1_000 - 7 * i).collect();
    let (epsilon, beta) = (loss(0.3).unwrap(), 0.05);
    let exponential = ExponentialMechanism::new(1, epsilon).unwrap();
    let noisy = NoisyMax::new(1, epsilon).unwrap();
    let bounds = [exponential.shortfall(50, beta).unwrap(), noisy.shortfall(50, beta).unwrap()];
    let mut rng = ChaCha20Rng::seed_from_u64(6);
    let mut misses = [0; 2];
    for _ in 0..4_000 {
        let chosen = exponential.choose(&utilities, None, &mut rng).unwrap();
        misses[0] += u32::from(7 * chosen as u64 > bounds[0]);
        misses[1] += u32::from(7 * noisy.choose(&utilities, &mut rng).unwrap() as u64 > bounds[1]);
    }
    // 4000 beta = 200 misses would be allowed; the bounds are not sharp.
    assert!(misses.iter().all(|&misses| misses < 130), "{misses:?}");

    let noisy = NoisyMax::new(1, loss(1.0).unwrap()).unwrap();
    let [a, b]: [[f64; 3]; 2] = [[5_i64, 6, 5], [6, 5, 6]]
        .map(|utilities| shares(200_000, |rng| noisy.choose(&utilities, rng).unwrap()));
    let ratios = a.iter().zip(&b).map(|(a, b)| (a / b).ln().abs());
    let largest = ratios.fold(0.0, f64::max);
    assert!((0.5..1.0).contains(&largest), "{largest}");
}

#[test]
fn no_utilities_and_no_weights_make_a_choice_long() {
    let mechanism = ExponentialMechanism::new(1, loss(1.0).unwrap()).unwrap();
    let mut rng = ChaCha20Rng::seed_from_u64(3);
    // By rejection, the first would take 60 million attempts, the second four billion.
    let utilities: Vec<i64> = (0..64).map(|place| if place == 0 { 200 } else { 0 }).collect();
    for weight in [1_000_000, u32::MAX] {
        let weights: Vec<u32> = (0..64).map(|place| if place == 0 { 1 } else { weight }).collect();
        let chosen: [f64; 64] =
            shares(100, |rng| mechanism.choose(&utilities, Some(&weights), rng).unwrap());
        assert!(chosen[0] > 0.999, "{chosen:?}");
    }
    let far = [i64::MIN, i64::MAX];
    assert_eq!(mechanism.choose(&far, None, &mut rng).unwrap(), 1);
}

#[test]
fn a_column_has_few_values_however_far_apart_they_are() {
    assert_eq!("n:-1..4294967294".parse::<Column>().unwrap().values(), 1 << 32);
    for range in ["0..4294967296", "-9223372036854775808..9223372036854775807"] {
        let error = format!("n:{range}").parse::<Column>().unwrap_err().to_string();
        assert!(error.contains("more than 4294967296 values"), "{range}: {error}");
    }
    let names: Vec<String> = (0..65_537).map(|name| format!("n{name}")).collect();
    assert_eq!(format!("n:{}", names[1..].join("|")).parse::<Column>().unwrap().values(), 65_536);
    let error = format!("n:{}", names.join("|")).parse::<Column>().unwrap_err().to_string();
    assert!(error.contains("more than 65536 names"), "{error}");
}

#[test]
fn a_choice_of_nothing_is_refused() {
    let mechanism = ExponentialMechanism::new(1, loss(1.0).unwrap()).unwrap();
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let mut choose = |utilities: &[i64], weights: Option<&[u32]>| {
        mechanism.choose(utilities, weights, &mut rng).unwrap_err()
    };
    assert_eq!(choose(&[], None), QueryError::NoCandidates);
    assert_eq!(choose(&[1, 2], Some(&[0, 0])), QueryError::NoCandidates);
    assert!(matches!(choose(&[1], Some(&[1, 1])), QueryError::Weights { .. }));
    assert_eq!(ExponentialMechanism::new(0, loss(1.0).unwrap()), Err(QueryError::Insensitive));
}

#[test]
fn synthetic_databases_answer_halfspaces_about_as_well_as_promised() {
    let (alpha, beta) = (0.3, 0.05);
    let class = halfspaces(3).unwrap();
    // The class has so low a dimension that few rows suffice; here even fewer are enough.
    assert_eq!(rows_for(alpha, 8, class.len(), Some(4)).unwrap(), 30);
    let release = SyntheticRelease::new(8, 9, class, loss(1.0).unwrap()).unwrap();
    let histogram = [3_000, 100, 900, 200, 2_500, 0, 300, 3_000];
    let promised = release.error_of_best() + release.accuracy(10_000, beta).unwrap();
    let mut rng = ChaCha20Rng::seed_from_u64(2);
    for _ in 0..5 {
        let database = release.choose(&histogram, &mut rng).unwrap();
        let error = release.error(&histogram, &database).unwrap();
        assert!(error <= promised, "{error} is above {promised}");
        assert!(error < 0.12, "{error}");
        let noisy =
            release.noisy_error(&histogram, &database, loss(0.5).unwrap(), &mut rng).unwrap();
        assert!((noisy - error).abs() < 0.01, "{noisy} is not about {error}");
    }
}

/// A histogram of 64 cells far from uniform.
fn skewed_histogram(rows: u64) -> Vec<u64> {
    let weight = |cell: u64| 1_000 / (1 + cell);
    let total: u64 = (0..64).map(weight).sum();
    let mut histogram: Vec<u64> = (0..64).map(|cell| rows * weight(cell) / total).collect();
    histogram[0] += rows - histogram.iter().sum::<u64>();
    histogram
}

fn random_query(rng: &mut ChaCha20Rng) -> Result<CellSet, QueryError> {
    let word = rng.next_u64();
    CellSet::of(64, |cell| word >> cell & 1 == 1)
}

#[test]
fn multiplicative_weights_keep_their_promise_on_adaptive_queries() {
    const ROWS: u64 = 400_000;
    let histogram = skewed_histogram(ROWS);
    let promise = Promise { rows: ROWS, cells: 64, queries: 2_000, beta: 0.05 };
    let (plan, alpha) =
        SessionPlan::promised_by_weights(Price::Pure(loss(1.0).unwrap()), promise).unwrap();
    assert!(alpha < 0.2 * ROWS as f64, "{alpha} of {ROWS}");
    assert!((plan.accuracy(2_000, 0.05).unwrap() - alpha).abs() < 1.0);
    let mut rng = ChaCha20Rng::seed_from_u64(9);
    let secret = SessionSecret::draw(&plan, &mut rng).unwrap();
    let mut session = MultiplicativeWeights::new(plan, ROWS, 64, secret).unwrap();
    // An adversary who repeats the query whose answer differed most from uniform.
    let mut hardest = random_query(&mut rng).unwrap();
    let mut farthest = 0.0_f64;
    for round in 0..2_000 {
        let again = round % 3 == 0;
        let query = if again { hardest.clone() } else { random_query(&mut rng).unwrap() };
        let truth = query.count(&histogram).unwrap() as f64;
        let given = match session.ask(&histogram, &query, &mut rng).unwrap() {
            Round::Lazy { answer } => answer,
            Round::Update { answer } => {
                session.update(&query, answer).unwrap();
                answer as f64
            }
        };
        assert!((given - truth).abs() <= alpha, "round {round}: {given} for {truth}");
        let uniform = ROWS as f64 * query.members().count() as f64 / 64.0;
        if (given - uniform).abs() > farthest {
            (farthest, hardest) = ((given - uniform).abs(), query);
        }
    }
    assert!(session.used() > 0 && session.used() <= plan.updates(), "{}", session.used());
}

#[test]
fn a_session_that_has_used_its_updates_fails_and_says_so() {
    let histogram = skewed_histogram(100_000);
    let plan = SessionPlan::chosen(Price::Pure(loss(8.0).unwrap()), 2, 500).unwrap();
    let mut session =
        MultiplicativeWeights::new(plan, 100_000, 64, SessionSecret::Threshold(0)).unwrap();
    let mut rng = ChaCha20Rng::seed_from_u64(3);
    let first = CellSet::of(64, |cell| cell == 0).unwrap();
    let mut updates = 0;
    let error = loop {
        match session.ask(&histogram, &first, &mut rng) {
            Ok(Round::Update { answer }) => {
                session.update(&first, answer).unwrap();
                updates += 1;
                assert!(updates <= 2);
            }
            Ok(Round::Lazy { .. }) => panic!("the hypothesis can't be good by now"),
            Err(error) => break error,
        }
    };
    assert_eq!(error, QueryError::SessionExhausted { updates: 2 });
    assert!(error.to_string().contains("used all of its 2 updates"));
    assert!(session.update(&first, 0).is_err());
    // A session rebuilt from the released answers is identical.
    let mut again =
        MultiplicativeWeights::new(plan, 100_000, 64, SessionSecret::Threshold(0)).unwrap();
    again.update(&first, 40_000).unwrap();
    let mut once_more =
        MultiplicativeWeights::new(plan, 100_000, 64, SessionSecret::Threshold(0)).unwrap();
    once_more.update(&first, 40_000).unwrap();
    assert_eq!(again.hypothesis(), once_more.hypothesis());
}

#[test]
fn sessions_that_promise_nothing_are_refused() {
    let promise = Promise { rows: 100, cells: 64, queries: 10_000, beta: 0.05 };
    let refused =
        |promise| SessionPlan::promised(Price::Pure(loss(0.1).unwrap()), promise).unwrap_err();
    assert!(refused(promise).to_string().contains("below the number of rows"));
    assert_eq!(refused(Promise { cells: 0, ..promise }), QueryError::EmptyUniverse);
    let huge = refused(Promise { cells: CELLS_MAX + 1, ..promise });
    assert!(matches!(huge, QueryError::TooManyCells { .. }));
    assert_eq!(refused(Promise { beta: 1.0, ..promise }), QueryError::Beta(1.0));
    assert_eq!(refused(Promise { queries: 0, ..promise }), QueryError::NoQueries);
    assert_eq!(refused(Promise { rows: 0, ..promise }), QueryError::NoRows);
    assert!(SessionPlan::chosen(Price::Pure(loss(1.0).unwrap()), 0, 10).is_err());
    assert!(SessionPlan::chosen(Price::Pure(loss(1.0).unwrap()), 10, 0).is_err());
}

fn people() -> Result<Rows, QueryError> {
    let schema = Schema::parse(&["age:0..99", "city:Bonn|Ulm|Kiel", "a:no|yes", "b:no|yes"]);
    let mut rows = Rows::new(schema?);
    let mut rng = ChaCha20Rng::seed_from_u64(4);
    for row in 0..20_000_u32 {
        let age = rng.random_range(20..60);
        let city = if row % 10 < 7 { 1 } else { row % 3 };
        rows.push(&[age, city, u32::from(row % 4 == 0), row % 2])?;
    }
    Ok(rows)
}

fn ask(rows: &Rows, question: &Question, price: Price) -> Result<Answer, QueryError> {
    answer(rows, question, price, 0.01, &mut ChaCha20Rng::seed_from_u64(12))
}

#[test]
fn every_question_is_answered_within_its_accuracy() {
    let rows = people().unwrap();
    let pure = Price::Pure(loss(1.0).unwrap());
    let concentrated = Price::Concentrated(ConcentratedLoss::new(0.5).unwrap());
    let texts = |texts: &[&str]| -> Vec<String> { texts.iter().map(|t| (*t).to_owned()).collect() };
    for price in [pure, concentrated] {
        let predicates = texts(&["*", "a=yes", "a=yes,b=yes"]);
        let counted = ask(&rows, &Question::Counts { predicates }, price).unwrap();
        let Answer::Numbers(numbers) = counted else { panic!("not numbers") };
        for (found, exact) in numbers.iter().zip([20_000_i64, 5_000, 0]) {
            assert!(found.accuracy < 30, "{found:?}");
            assert!(found.value.abs_diff(exact) <= found.accuracy, "{found:?} for {exact}");
        }
        let columns = texts(&["a", "b"]);
        let Answer::Numbers(numbers) = ask(&rows, &Question::histogram(columns), price).unwrap()
        else {
            panic!("not numbers")
        };
        for (found, (label, exact)) in numbers.iter().zip([
            ("a=no,b=no", 5_000),
            ("a=no,b=yes", 10_000),
            ("a=yes,b=no", 5_000),
            ("a=yes,b=yes", 0),
        ]) {
            assert_eq!(found.label, label);
            assert!(found.value.abs_diff(exact) <= found.accuracy, "{found:?} for {exact}");
        }
        let sums = Question::sums(&["age"]);
        let Answer::Numbers(numbers) = ask(&rows, &sums, price).unwrap() else {
            panic!("not numbers")
        };
        let mean = numbers[0].value as f64 / 20_000.0;
        assert!((mean - 39.5).abs() < 0.3, "{mean}");
    }
    let choose = |column: &str, aim, chooser| {
        let question = Question::choice(column, aim, chooser);
        match ask(&rows, &question, pure).unwrap() {
            Answer::Value { value, .. } => value,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(choose("city", Aim::MostCommon, Chooser::NoisyMax), "Ulm");
    assert_eq!(choose("city", Aim::MostCommon, Chooser::Exponential(None)), "Ulm");
    let weights = Chooser::Exponential(Some(vec![5, 0, 1]));
    assert_ne!(choose("city", Aim::MostCommon, weights), "Ulm");
    let median = choose("age", Aim::Quantile(0.5), Chooser::Exponential(None));
    assert!((38..=41).contains(&median.parse::<i32>().unwrap()), "{median}");
    let question = Question::Synthetic {
        columns: texts(&["a", "b"]),
        class: Class::Halfspaces,
        size: Size::Rows(8),
    };
    let Answer::Database { rows: database, .. } = ask(&rows, &question, pure).unwrap() else {
        panic!("no database")
    };
    let on = |row: &&Vec<String>| row[0] == "no" && row[1] == "yes";
    assert_eq!(database.len(), 8);
    assert!((3..=5).contains(&database.iter().filter(on).count()), "{database:?}");
}

#[test]
fn a_mean_lies_where_its_conditions_leave_values() {
    let mut rows = Rows::new(Schema::parse(&["age:0..99", "pay:0..1000000:0.01"]).unwrap());
    for i in 0..2000 {
        rows.push(&[i % 100, 100 * (i % 7)]).unwrap();
    }
    let price = Price::Pure(loss(3.0).unwrap());
    // The condition leaves a tenth of the range, so a tenth of the noise.
    for (column, predicate, mean, most) in [
        ("age", "age=90..99", 94.5, 5.0),
        ("age", "age=3|97", 50.0, 90.0),
        ("pay", "pay=0..6", 3.0, 1.0),
    ] {
        let (column, predicate) = (column.to_owned(), predicate.to_owned());
        let question = Question::Mean { column, predicate, variance: true };
        let Ok(Answer::Moments(found)) = ask(&rows, &question, price) else {
            panic!("{question:?} has no answer")
        };
        let Estimate { low, high, .. } = found.mean;
        assert!(low <= mean && mean <= high && high - low < most, "{found:?}");
        let variance = found.variance.unwrap();
        assert!(0.0 <= variance.low && variance.low <= variance.high, "{found:?}");
        assert!(found.rows.low >= 0.0 && !found.label.is_empty(), "{found:?}");
    }
    // No row can meet it, or change the answer.
    let (column, predicate) = ("age".to_owned(), "age=1,age=2".to_owned());
    let none = Question::Mean { column, predicate, variance: false };
    assert_eq!(ask(&rows, &none, price), Err(QueryError::Insensitive));
}

#[test]
fn a_choice_is_among_what_its_conditions_leave() {
    let mut rows = Rows::new(Schema::parse(&["age:0..99", "city:Bonn|Ulm|Kiel"]).unwrap());
    for i in 0..300 {
        rows.push(&[i % 100, i % 3]).unwrap();
    }
    // At a price that tells nothing, any candidate can be chosen.
    let price = Price::Pure(loss(1e-4).unwrap());
    let weights = Some((1..101).collect());
    let aims = [
        ("age", Aim::Quantile(0.5), Chooser::Exponential(None)),
        ("age", Aim::Quantile(0.5), Chooser::Exponential(weights)),
        ("age", Aim::IntervalOfQuantile(1.0), Chooser::NoisyMax),
        ("age", Aim::MostCommon, Chooser::NoisyMax),
        ("city", Aim::MostCommon, Chooser::Exponential(None)),
    ];
    for (column, aim, chooser) in aims {
        let (column, predicate) = (column.to_owned(), "age=3..10,city=Bonn|Kiel".to_owned());
        let question = Question::Choice { column, predicate, aim, chooser };
        for _ in 0..40 {
            let Ok(Answer::Value { value, interval, .. }) = ask(&rows, &question, price) else {
                panic!("{question:?} has no answer")
            };
            for value in [Some(value), interval.clone().map(|i| i.0), interval.map(|i| i.1)] {
                let Some(value) = value else { continue };
                let age = value.parse().unwrap_or(3);
                assert!((3..=10).contains(&age) && value != "Ulm", "{value} of {question:?}");
            }
        }
    }
}

#[test]
fn a_column_of_millions_of_values_is_counted_and_added_up() {
    // Weights of a census, and an amount in cents.
    let schema = Schema::declared(&["weight:12285..1490400", "amount:-10000..10000:0.01!"]);
    let mut rows = Rows::new(schema.unwrap());
    let codes = |weight: &str, amount: &str| {
        let columns = rows.schema().columns();
        [columns[0].read(weight).unwrap(), columns[1].read(amount).unwrap()]
    };
    let (low, high) = (codes("12285", "-10000"), codes("1490400", "1e12"));
    assert_eq!(rows.schema().columns()[1].value(high[1]), "10000.00");
    for _ in 0..500 {
        rows.push(&low).unwrap();
        rows.push(&high).unwrap();
    }
    let price = Price::Pure(loss(10.0).unwrap());
    let check = |question: &Question, exact: &[i64], accuracy: u64| {
        let Ok(Answer::Numbers(numbers)) = ask(&rows, question, price) else {
            panic!("no numbers")
        };
        for (found, exact) in numbers.iter().zip(exact) {
            assert!(found.value.abs_diff(*exact) <= found.accuracy, "{found:?} for {exact}");
            assert!(found.accuracy <= accuracy, "{found:?}");
        }
    };
    check(&Question::sums(&["weight", "amount"]), &[500 * (12_285 + 1_490_400), 0], 2_200_000);
    let predicates = ["weight=12285", "weight=12286..1490400", "amount=0.01..10000,weight=1490400"];
    let predicates = predicates.map(str::to_owned).to_vec();
    check(&Question::Counts { predicates }, &[500; 3], 2);
    for question in [
        Question::choice("weight", Aim::Quantile(0.5), Chooser::Exponential(None)),
        Question::choice("amount", Aim::MostCommon, Chooser::NoisyMax),
    ] {
        let error = ask(&rows, &question, price).unwrap_err().to_string();
        assert!(error.contains("at most 65536; count ranges of it"), "{error}");
    }
    // Wider than noise can be drawn in whole numbers: it has the same deviation in larger steps.
    let squares = Term { squared: true, ..Term::values("weight") };
    let squares = Question::Sums { terms: vec![squares], predicate: String::new(), counted: false };
    let exact: i64 = [12_285_i64, 1_490_400].map(|weight| 500 * weight * weight).iter().sum();
    let width = 1_490_400_f64.powi(2) - 12_285_f64.powi(2);
    for rho in [0.5, 1e-6] {
        let price = Price::Concentrated(ConcentratedLoss::new(rho).unwrap());
        let Ok(Answer::Numbers(numbers)) = ask(&rows, &squares, price) else {
            panic!("no numbers")
        };
        let [found] = &numbers[..] else { panic!("{numbers:?}") };
        assert!(found.value.abs_diff(exact) <= found.accuracy, "{found:?} for {exact}");
        let deviations = found.accuracy as f64 / (width / (2.0 * rho).sqrt());
        assert!((2.57..2.58).contains(&deviations), "{deviations} for rho {rho}");
    }
    let error = ask(&rows, &Question::histogram(vec!["weight".to_owned()]), price).unwrap_err();
    assert!(
        error.to_string().contains("1478116 combinations of values, and at most 10000"),
        "{error}"
    );
}

#[test]
fn bad_questions_are_refused_with_what_to_do() {
    let rows = people().unwrap();
    let pure = Price::Pure(loss(1.0).unwrap());
    let rho = Price::Concentrated(ConcentratedLoss::new(0.5).unwrap());
    let counts = |text: &str| Question::Counts { predicates: vec![text.to_owned()] };
    let choice = |column: &str, aim| Question::choice(column, aim, Chooser::NoisyMax);
    let synthetic = |columns: &[&str], size| Question::Synthetic {
        columns: columns.iter().map(|c| (*c).to_owned()).collect(),
        class: Class::Halfspaces,
        size,
    };
    let names = ["age".to_owned(), "city".to_owned()];
    for (question, price, message) in [
        (Question::Counts { predicates: Vec::new() }, pure, "there is no query"),
        (counts("size=3"), pure, "there is no column \"size\"; the columns are age, city, a, b"),
        (counts("city=Rome"), pure, "it has Bonn, Ulm, Kiel"),
        (Question::sums(&["city"]), pure, "has no numbers"),
        (Question::histogram(Vec::new()), pure, "there is no query"),
        (choice("city", Aim::Quantile(0.5)), pure, "has no numbers"),
        (choice("age", Aim::Quantile(1.5)), pure, "the quantile is 1.5"),
        (choice("size", Aim::MostCommon), rho, "there is no column"),
        (synthetic(&["age"], Size::Rows(3)), pure, "two values each"),
        (synthetic(&["a"], Size::Rows(0)), pure, "no rows"),
        (synthetic(&["a"], Size::ForError(0.0)), pure, "alpha is 0"),
        (synthetic(&[], Size::Rows(3)), pure, "the universe is empty"),
    ] {
        let error = ask(&rows, &question, price).unwrap_err().to_string();
        assert!(error.contains(message), "{question:?}: {error}");
    }
    let wide: Vec<String> = (0..4).map(|i| format!("c{i}:0..999")).collect();
    let wide = Rows::new(Schema::parse(&wide).unwrap());
    let columns = (0..4).map(|i| format!("c{i}")).collect();
    let error = ask(&wide, &Question::histogram(columns), pure).unwrap_err().to_string();
    assert!(error.contains("1000000000000 combinations"), "{error}");
    assert!(answer(&rows, &counts("*"), pure, 0.0, &mut ChaCha20Rng::seed_from_u64(1)).is_err());
    assert_eq!(Schema::parse::<&str>(&[]), Err(QueryError::EmptyUniverse));
    assert!(Schema::parse(&["a:x|y", "a:1..2"]).is_err());
    assert!(rows.schema().universe(&names).is_ok());
}
