//! Data sets that say whose row it is: all rows of a person cost no more than the price.

use bandana_mechanisms::queries::QueryError;
use bandana_mechanisms::queries::marginals::SyntheticTable;
use bandana_mechanisms::queries::price::{ConcentratedLoss, Measure, Price, PureLoss};
use bandana_mechanisms::queries::questions::{
    Aim, Answer, Chooser, NoisyNumber, Question, Term, answer,
};
use bandana_mechanisms::queries::rows::Rows;
use bandana_mechanisms::queries::universe::Schema;
use rand::RngExt as _;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng as _;

/// Codes of an age and a city, and the place of the person.
type Row = [u32; 3];

fn schema(people: &str) -> Result<Schema, QueryError> {
    let columns = ["age:18..21", "city:Bonn|Ulm", people];
    Schema::parse(&columns[..if people.is_empty() { 2 } else { 3 }])
}

/// The rows of people, in the order in which a file could have them.
fn rows(schema: &Schema, of: &[Vec<Row>]) -> Result<Rows, QueryError> {
    let mut read = Rows::new(schema.clone());
    let mut people = Vec::new();
    let longest = of.iter().map(Vec::len).max().unwrap_or(0);
    for visit in 0..longest {
        for (person, rows) in (1_u128..).zip(of) {
            if let Some(row) = rows.get(visit) {
                read.push(row)?;
                people.push(person);
            }
        }
    }
    read.of_people(&people)
}

fn visits(random: &mut ChaCha20Rng) -> Vec<Row> {
    let number = random.random_range(1..=6);
    (0..number).map(|_| [random.random_range(0..4), random.random_range(0..2), 1]).collect()
}

fn numbers(answer: Answer) -> Vec<NoisyNumber> {
    if let Answer::Numbers(numbers) = answer { numbers } else { Vec::new() }
}

fn values(answer: Answer) -> Vec<i64> {
    numbers(answer).iter().map(|number| number.value).collect()
}

fn bounds(answer: Answer) -> Vec<u64> {
    numbers(answer).iter().map(|number| number.accuracy).collect()
}

#[test]
fn the_rows_of_a_person_change_the_places_of_that_person_alone() {
    let schema = schema("who@3").unwrap();
    let universe = schema.universe_of_places::<&str>(&[]).unwrap();
    let mut random = ChaCha20Rng::seed_from_u64(1);
    let mut furthest = 0;
    for _ in 0..500 {
        let mut people: Vec<Vec<Row>> = (0..5).map(|_| visits(&mut random)).collect();
        let before = rows(&schema, &people).unwrap();
        let changed = random.random_range(0..5);
        people[changed] = visits(&mut random);
        let after = rows(&schema, &people).unwrap();
        assert_eq!([before.count(), after.count()], [15; 2], "the number of places is public");
        let pairs = before.histogram(&universe).into_iter().zip(after.histogram(&universe));
        let moved: u64 = pairs.map(|(one, other)| one.abs_diff(other)).sum();
        furthest = furthest.max(moved);
    }
    assert_eq!(furthest, 2 * 3, "three places may change, and do");
}

#[test]
fn what_is_left_out_is_drawn_at_random() {
    let schema = schema("who@2").unwrap();
    let four: Vec<Row> = (0..4).map(|age| [age, 0, 1]).collect();
    let kept = rows(&schema, &vec![four; 8000]).unwrap();
    let universe = schema.universe(&["age"]).unwrap();
    // Each of four rows is one of the two with probability 1/2: 5 standard deviations of 45.
    for count in kept.histogram(&universe) {
        assert!(count.abs_diff(4000) < 225, "{count}");
    }
}

#[test]
fn noise_covers_all_rows_of_a_person() {
    let mut random = ChaCha20Rng::seed_from_u64(2);
    let people: Vec<Vec<Row>> = (0..40).map(|_| visits(&mut random)).collect();
    let one_row: Vec<Vec<Row>> = people.iter().map(|rows| rows[..1].to_vec()).collect();
    let (of_three, of_one) = (
        rows(&schema("who@3").unwrap(), &people).unwrap(),
        rows(&schema("who@1").unwrap(), &one_row).unwrap(),
    );
    let plain = {
        let mut plain = Rows::new(schema("").unwrap());
        for rows in &one_row {
            plain.push(&rows[0][..2]).unwrap();
        }
        plain
    };
    let text = str::to_owned;
    let everyone = text("city=Bonn|Ulm");
    let counts = |predicate: &str| Question::Counts { predicates: vec![text(predicate)] };
    let sums = |predicate: &str| Question::Sums {
        terms: vec![Term::values("age")],
        predicate: text(predicate),
        counted: true,
    };
    let histogram = |predicate: &str| Question::Histogram {
        columns: vec![text("city")],
        predicate: text(predicate),
    };
    let pure = |epsilon: f64| Price::Pure(PureLoss::new(epsilon).unwrap());
    let rho = |rho: f64| Price::Concentrated(ConcentratedLoss::new(rho).unwrap());
    let mut bound = |rows: &Rows, question: &Question, price| {
        bounds(answer(rows, question, price, 0.05, &mut random).unwrap())
    };
    // With one row each, a question about all is one about those who have a row. With three, a third of
    // epsilon is for each, and a ninth of rho.
    for (question, plainly) in [
        (counts("*"), counts("city=Bonn")),
        (counts("age=18"), counts("age=18")),
        (sums(""), sums("city=Bonn")),
        (sums(&everyone), sums("city=Bonn")),
        (sums("age=19..20"), sums("age=19..20")),
        (histogram(""), histogram("")),
    ] {
        for (whole, third) in [(pure(0.3), pure(0.1)), (rho(0.9), rho(0.1))] {
            let expected = bound(&plain, &plainly, third);
            assert_eq!(bound(&of_one, &question, third), expected, "{question:?}");
            assert_eq!(bound(&of_three, &question, whole), expected, "{question:?}");
            assert_eq!(
                question.charge(whole, Measure::Concentrated),
                plainly.charge(whole, Measure::Concentrated)
            );
        }
    }
}

#[test]
fn answers_are_about_the_rows_that_are_kept() {
    // Of three rows, one without a second, and one with both in Ulm.
    let people =
        vec![vec![[0, 0, 1], [0, 0, 1], [0, 0, 1]], vec![[1, 0, 1]], vec![[3, 1, 1], [3, 1, 1]]];
    let rows = rows(&schema("who@2").unwrap(), &people).unwrap();
    let mut random = ChaCha20Rng::seed_from_u64(3);
    let price = Price::Concentrated(ConcentratedLoss::new(512.0).unwrap());
    let mut ask = |question: &Question| answer(&rows, question, price, 0.05, &mut random);
    let counts = |predicates: &[&str]| Question::Counts {
        predicates: predicates.iter().map(|&text| text.to_owned()).collect(),
    };
    assert_eq!(values(ask(&counts(&["*"])).unwrap()), [5]);
    assert_eq!(values(ask(&counts(&["city=Ulm"])).unwrap()), [2]);
    assert_eq!(values(ask(&counts(&["age=18,city=Bonn"])).unwrap()), [2]);
    let all = Question::Sums {
        terms: vec![Term::values("age")],
        predicate: String::new(),
        counted: true,
    };
    // The noise of the second has a standard deviation of 2.
    let sums = values(ask(&all).unwrap());
    assert_eq!(sums[0], 5);
    assert!(sums[1].abs_diff(18 + 18 + 19 + 21 + 21) < 10, "{sums:?}");
    let cities = Question::histogram(vec!["city".to_owned()]);
    assert_eq!(values(ask(&cities).unwrap()), [3, 2]);
    for chooser in [Chooser::Exponential(None), Chooser::NoisyMax] {
        let median = Question::choice("age", Aim::Quantile(0.5), chooser.clone());
        let chosen = ask(&median).unwrap();
        assert!(matches!(&chosen, Answer::Value { value, .. } if value == "19"), "{chosen:?}");
        let common = Question::choice("city", Aim::MostCommon, chooser);
        let chosen = ask(&common).unwrap();
        assert!(matches!(&chosen, Answer::Value { value, .. } if value == "Bonn"), "{chosen:?}");
    }
    let table =
        Question::Table { columns: Vec::new(), table: SyntheticTable { ways: 2, rows: 10 } };
    assert_eq!(ask(&table), Err(QueryError::RowsOfPeople));
    for about_people in [counts(&["who=1"]), Question::histogram(vec!["who".to_owned()])] {
        assert!(matches!(ask(&about_people), Err(QueryError::NoColumn { .. })), "{about_people:?}");
    }
    let little = Price::Concentrated(ConcentratedLoss::new(3e-9).unwrap());
    let refused = answer(&rows, &counts(&["*"]), little, 0.05, &mut random);
    assert_eq!(refused, Err(QueryError::PriceOfRows { rows: 2 }));
}

#[test]
fn a_column_of_people_is_declared_once_and_beside_others() {
    for (columns, message) in [
        (&["who@3"][..], "universe is empty"),
        (&["age:1..9", "who@3", "whose@2"], "another column says already"),
        (&["age:1..9", "who@0"], "1 to 1000"),
        (&["age:1..9", "who@1001"], "1 to 1000"),
        (&["age:1..9", "who@x"], "1 to 1000"),
        (&["age:1..9", "@3"], "must not be empty"),
        (&["age:1..9", "who"], "NAME@3"),
    ] {
        let error = Schema::declared(columns).unwrap_err().to_string();
        assert!(error.contains(message), "{columns:?}: {error}");
    }
    let schema = Schema::declared(&[r#""patient:no"@12"#, "a@b:1..9"]).unwrap();
    let written: Vec<String> = schema.columns().iter().map(ToString::to_string).collect();
    assert_eq!(written, [r#""patient:no"@12"#, "a@b:1..9"]);
    assert_eq!(schema.people(), Some((0, 12)));
}
