//! Names that nobody knows before, found when a data set is registered.

use std::fmt::Write as _;

use anyhow::{Context as _, ensure};
use bandana_shared::wire::v1::{
    self, AskRequest, AuditAction, ListDebitsRequest, PartitionSelection, RegisterDataSetRequest,
    ask_request, ask_response, partition_selection, register_data_set_request,
};
use tonic::{Code, Status};

use super::data_sets::Server;

/// 600 people of Ulm, 500 of Bonn, one of a place that nobody else is of; streets of one each.
fn people() -> String {
    let mut text = "patient,place,street,age\n".to_owned();
    for person in 0..1_101 {
        let place = match person {
            0..600 => "Ulm",
            600..1_100 => " Bonn ",
            _ => "Atlantis",
        };
        let street = if person % 2 == 0 { "Main, St".to_owned() } else { format!("Lane {person}") };
        writeln!(text, "{person},{place},\"{street}\",{}", person % 10).expect("a string");
    }
    text
}

fn registration(columns: &[&str], find: &[&str], rho: f64) -> RegisterDataSetRequest {
    RegisterDataSetRequest {
        name: "people".to_owned(),
        file: "people.csv".to_owned(),
        columns: columns.iter().map(|&column| column.to_owned()).collect(),
        budget: Some(register_data_set_request::Budget::Rho(100.0)),
        find: Some(PartitionSelection {
            columns: find.iter().map(|&column| column.to_owned()).collect(),
            price: Some(partition_selection::Price::Rho(rho)),
            delta: 1e-9,
        }),
    }
}

impl Server {
    async fn not_registered(&mut self, request: RegisterDataSetRequest) -> anyhow::Result<Status> {
        self.curator.register_data_set(request).await.err().context("it was registered")
    }

    async fn counts_of(&mut self, column: &str) -> anyhow::Result<Vec<(String, i64)>> {
        let histogram =
            v1::Histogram { columns: vec![column.to_owned()], ..v1::Histogram::default() };
        let request = AskRequest {
            data_set: "people".to_owned(),
            price: Some(ask_request::Price::Rho(40.0)),
            question: Some(ask_request::Question::Histogram(histogram)),
            ..AskRequest::default()
        };
        let answer = self.curator.ask(request).await?.into_inner().answer;
        let Some(ask_response::Answer::Numbers(numbers)) = answer else {
            anyhow::bail!("no numbers");
        };
        Ok(numbers.numbers.into_iter().map(|number| (number.label, number.value)).collect())
    }
}

#[tokio::test]
async fn names_of_many_rows_are_found_once_and_paid_for() -> anyhow::Result<()> {
    let mut server = Server::start().await?;
    std::fs::write(server.file("people.csv"), people())?;
    let columns = ["place:other*", "street:unknown*", "age:0..9"];
    let request = registration(&columns, &["place", "street"], 2.0);
    let registered = server.curator.register_data_set(request.clone()).await?.into_inner();
    let found = ["place:Bonn|Ulm|other*", "street:\"Main, St\"|unknown*", "age:0..9"];
    assert_eq!(registered.columns, found);
    assert_eq!((registered.budget_nanos, registered.spent_nanos), (100_000_000_000, 2_000_000_000));

    // They stay as they are, after a restart too, and all questions know them.
    let mut server = server.kill_and_restart().await?;
    let expected = [("place=Bonn", 500_i64), ("place=Ulm", 600), ("place=other", 1)];
    for ((label, value), (wanted, exact)) in server.counts_of("place").await?.iter().zip(expected) {
        ensure!(label == wanted && value.abs_diff(exact) < 3, "{label}: {value}");
    }
    let streets = server.counts_of("street").await?;
    ensure!(streets.len() == 2 && streets[0].1.abs_diff(551) < 3, "{streets:?}");
    assert_eq!(streets[0].0, r#"street="Main, St""#, "a label is a predicate");
    let request_of_debits =
        ListDebitsRequest { data_set: "people".to_owned(), ..Default::default() };
    let debits = server.curator.list_debits(request_of_debits).await?.into_inner().debits;
    let paid = debits.last().context("no debit")?;
    assert_eq!(paid.price_nanos, 2_000_000_000);
    ensure!(paid.purpose.starts_with("names of place, street, at delta 1e-9: one of "), "{paid:?}");

    let again = server.not_registered(request).await?;
    assert_eq!(again.code(), Code::AlreadyExists);
    server.process.stop().await
}

/// A refusal after the search, which is made with other noise each time and paid for by nobody, would tell
/// whether a name was found.
#[tokio::test]
async fn what_is_refused_is_refused_whatever_is_found() -> anyhow::Result<()> {
    let mut server = Server::start().await?;
    std::fs::write(server.file("people.csv"), people())?;
    std::fs::write(server.file("others.csv"), people().replace("Ulm", "").replace("Bonn", ""))?;
    // Short names, since a request has at most 256 KiB.
    let digits: Vec<char> = ('0'..='9').chain('a'..='z').collect();
    let name = |n: usize| [n / 1296, n / 36 % 36, n % 36].map(|digit| digits[digit]);
    let names: Vec<String> = (0..46_656).map(|n| name(n).into_iter().collect()).collect();
    // These begin with a letter.
    let more = (12_960..29_000).map(|n| name(n).map(|c| c.to_ascii_uppercase()));
    let more: Vec<String> = more.map(|name| name.into_iter().collect()).collect();
    let full = format!("place:{}|{}|other*", names.join("|"), more.join("|"));
    for file in ["people.csv", "others.csv"] {
        let request = registration(&[&full], &["place"], 100.0);
        let refused = server
            .not_registered(RegisterDataSetRequest { file: file.to_owned(), ..request })
            .await?;
        assert_eq!(refused.code(), Code::InvalidArgument);
        ensure!(refused.message().contains("may have 61440"), "{refused}");
    }
    let columns = ["place:other*"];
    server.curator.register_data_set(registration(&columns, &["place"], 1.0)).await?;
    for name in ["people", "again"] {
        let request = registration(&columns, &["place"], 100.0);
        let request = RegisterDataSetRequest { name: name.to_owned(), ..request };
        assert_eq!(server.not_registered(request).await?.code(), Code::AlreadyExists);
    }
    let mut entries = server.audit().await?;
    entries.retain(|entry| entry.action() == AuditAction::RefuseDataSet);
    let wanted = "to find names of \"place\" for rho 100 at delta 1e-9";
    let are_told = entries.iter().all(|entry| entry.detail.contains(wanted));
    ensure!(entries.len() == 4 && are_told, "{entries:?}");
    server.process.stop().await
}

#[tokio::test]
async fn rows_of_people_count_as_far_as_they_are_kept() -> anyhow::Result<()> {
    let mut server = Server::start().await?;
    // A hundred people have one row in Ulm, and one has a thousand in Bonn.
    let mut text = "patient,place\n".to_owned();
    (0..300).try_for_each(|person| writeln!(text, "{person},Ulm"))?;
    (0..1_000).try_for_each(|_| writeln!(text, "alone,Bonn"))?;
    std::fs::write(server.file("people.csv"), &text)?;
    let request = registration(&["patient@2", "place:other*"], &["place"], 20.0);
    let registered = server.curator.register_data_set(request).await?.into_inner();
    assert_eq!(registered.columns, ["patient@2", "place:Ulm|other*"]);
    server.process.stop().await
}

#[tokio::test]
async fn a_search_that_can_t_be_made_costs_nothing_and_says_why() -> anyhow::Result<()> {
    let mut server = Server::start().await?;
    std::fs::write(server.file("people.csv"), people())?;
    let columns = ["place:other*", "street:Main St", "age:0..9"];
    let wrong = [
        (registration(&columns, &["street"], 1.0), "no name of it stands for every other"),
        (registration(&columns, &["age"], 1.0), "no name of it stands for every other"),
        (registration(&columns, &["town"], 1.0), "no column \"town\""),
        (registration(&columns, &[], 1.0), "has no column"),
        (registration(&columns, &["place", "place"], 1.0), "searched twice"),
        (registration(&columns, &["place"], 101.0), "does not suffice"),
        (registration(&columns, &["place"], 1e-8), "a question costs at least"),
    ];
    for (request, message) in wrong {
        let refused = server.not_registered(request).await?;
        ensure!(refused.message().contains(message), "{refused}");
    }
    let with = |change: &dyn Fn(&mut PartitionSelection)| {
        let mut request = registration(&["place:other*"], &["place"], 1.0);
        request.find.iter_mut().for_each(change);
        request
    };
    let free = server.not_registered(with(&|find| find.price = None)).await?;
    ensure!(free.message().contains("needs a price"), "{free}");
    let large = server.not_registered(with(&|find| find.delta = 0.01)).await?;
    ensure!(large.message().contains("at most 0.001"), "{large}");

    // A budget of epsilon and delta contains the delta of the search.
    let approximate = |delta| {
        let both = v1::ApproximateBudget { epsilon: 1.0, delta };
        let budget = Some(register_data_set_request::Budget::Approximate(both));
        RegisterDataSetRequest { budget, ..registration(&["place:other*"], &["place"], 0.01) }
    };
    let refused = server.not_registered(approximate(1e-9)).await?;
    ensure!(refused.message().contains("take less than that"), "{refused}");
    let all = server.curator.register_data_set(approximate(2e-9)).await?.into_inner();
    let one = v1::ApproximateBudget { epsilon: 1.0, delta: 1e-9 };
    let rho = bandana_mechanisms::queries::price::ConcentratedLoss::within_numbers(
        one.epsilon,
        one.delta,
    )?;
    ensure!(all.budget_nanos <= rho.nanos() && all.budget_nanos + 2 >= rho.nanos(), "{all:?}");
    server.process.stop().await
}
