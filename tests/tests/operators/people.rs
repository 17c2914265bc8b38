//! Data sets that say whose row it is, on a real server.

use std::fmt::Write as _;

use anyhow::{Context as _, ensure};
use bandana_shared::wire::v1::{
    self, AskRequest, RegisterDataSetRequest, ask_request, register_data_set_request,
};
use tonic::Code;

use super::data_sets::Server;

#[tokio::test]
async fn all_rows_of_a_person_cost_one_price_and_the_content_stays_the_same() -> anyhow::Result<()>
{
    let mut server = Server::start().await?;
    // Ten people with three rows each, however their numbers are written, and five with one.
    let mut visits = "patient,age,city\n".to_owned();
    for visit in 0..3 {
        for person in 0..10 {
            let written = [format!("{person}"), format!(" {person}.0 "), format!("00{person}")];
            writeln!(visits, "{},{},Ulm", written[visit], 30 + person)?;
        }
    }
    (0..5).try_for_each(|one| writeln!(visits, "p{one},20,Bonn"))?;
    std::fs::write(server.file("visits.csv"), &visits)?;
    std::fs::write(server.file("gaps.csv"), visits.replace("p4,", ","))?;
    let columns = ["age:18..99", "city:Bonn|Ulm", "patient@2"];
    let refused = server.refused("gaps", "gaps.csv", &columns).await?;
    assert!(refused.message().contains("column \"patient\" has something"), "{refused}");

    let request = RegisterDataSetRequest {
        name: "visits".to_owned(),
        file: "visits.csv".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        budget: Some(register_data_set_request::Budget::Rho(500.0)),
        find: None,
    };
    let registered = server.curator.register_data_set(request).await?.into_inner();
    assert_eq!((registered.rows, registered.rows_of_each_person), (2 * 15, 2));
    assert_eq!(registered.columns, columns);
    let refused = server.refused("again", "visits.csv", &["age:18..99"]).await?;
    assert_eq!(refused.code(), Code::AlreadyExists);

    // A quarter of the rho is for each row, which moves both counts: a variance of 1/35, so noise that is
    // 0 but for a probability of 4 * exp(-17.5), 1e-7.
    let ask = |question| AskRequest {
        data_set: "visits".to_owned(),
        price: Some(ask_request::Price::Rho(140.0)),
        question: Some(question),
        ..AskRequest::default()
    };
    let counts = v1::Counts { predicates: vec!["*".to_owned(), "city=Ulm".to_owned()] };
    let asked = ask(ask_request::Question::Counts(counts));
    let answer = server.curator.ask(asked).await?.into_inner();
    assert_eq!(answer.price_nanos, 140_000_000_000);
    let Some(v1::ask_response::Answer::Numbers(numbers)) = answer.answer else {
        anyhow::bail!("no numbers");
    };
    let values: Vec<i64> = numbers.numbers.iter().map(|number| number.value).collect();
    assert_eq!(values, [2 * 10 + 5, 2 * 10], "two of three rows are kept");
    let made = v1::SyntheticTable { columns: Vec::new(), ways: 2, rows: 10 };
    let refused = server.curator.ask(ask(ask_request::Question::SyntheticTable(made))).await;
    let refused = refused.err().context("people were made up")?;
    assert!(refused.message().contains("are not made up"), "{refused}");

    let request = v1::OpenSessionRequest {
        session: "habits".to_owned(),
        data_set: "visits".to_owned(),
        price: Some(v1::open_session_request::Price::Rho(360.0)),
        plan: Some(v1::open_session_request::Plan::Promise(v1::SessionPromise {
            queries: 3,
            beta: 0.0,
        })),
        columns: vec!["city".to_owned()],
    };
    let opened = server.curator.open_session(request).await?.into_inner();
    assert_eq!((opened.price_nanos, opened.cells), (360_000_000_000, 4));
    for (predicate, expected) in [("*", 25.0), ("city=Ulm", 20.0), ("city=Bonn", 5.0)] {
        let request = v1::AskSessionRequest {
            session: "habits".to_owned(),
            predicate: predicate.to_owned(),
            ..v1::AskSessionRequest::default()
        };
        let answer = server.curator.ask_session(request).await?.into_inner().answer;
        ensure!((answer - expected).abs() < 2.0, "{predicate}: {answer}");
    }
    server.process.stop().await
}

#[tokio::test]
async fn a_file_of_people_that_is_written_otherwise_is_not_answered() -> anyhow::Result<()> {
    let mut server = Server::start().await?;
    // One person with twenty rows, in ways that the content holds for one and people for twenty.
    let (mut once, mut spread) = ("patient,ill\n".to_owned(), "patient,ill\n".to_owned());
    for zeros in 0..20 {
        writeln!(once, "7,yes")?;
        writeln!(spread, "7{}e-{zeros},yes", "0".repeat(zeros))?;
    }
    std::fs::write(server.file("visits.csv"), &once)?;
    let columns = ["ill:no|yes", "patient@1"];
    let request = RegisterDataSetRequest {
        name: "visits".to_owned(),
        file: "visits.csv".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        budget: Some(register_data_set_request::Budget::Rho(500.0)),
        find: None,
    };
    assert_eq!(server.curator.register_data_set(request).await?.into_inner().rows, 1);
    let counts = v1::Counts { predicates: vec!["ill=yes".to_owned()] };
    let asked = AskRequest {
        data_set: "visits".to_owned(),
        price: Some(ask_request::Price::Rho(40.0)),
        question: Some(ask_request::Question::Counts(counts)),
        ..AskRequest::default()
    };
    server.curator.ask(asked.clone()).await?;

    std::fs::write(server.file("visits.csv"), &spread)?;
    let refused = server.refused("others", "visits.csv", &columns).await?;
    assert_eq!(
        refused.code(),
        Code::AlreadyExists,
        "it is the content that has a budget: {refused}"
    );
    let refused =
        server.curator.ask(asked.clone()).await.err().context("twenty rows of one person")?;
    assert!(refused.message().contains("is not the one that was registered"), "{refused}");

    std::fs::write(server.file("visits.csv"), &once)?;
    server.curator.ask(asked).await?;
    server.process.stop().await
}
