//! Every store keeps its guarantees on budgets of data sets and on sessions of queries.

use std::thread;

use anyhow::{Context as _, ensure};
use bandana_mechanisms::queries::price::Measure;
use bandana_shared::identity::UnixSeconds;
use bandana_store::fingerprint::Fingerprint;
use bandana_store::{
    AnswerToKeep, AuditAction, CuratorChange, CuratorName, CuratorRefusal, DataSetRecord, Debit,
    KeptAnswer, Outcome, PostgresStore, QuestionKey, QuestionScope, SessionRecord, SessionRound,
    SessionUpdate, Store, StoreError, StoreRefusal,
};
use bandana_tests::postgres::{Postgres, query};

use super::Case;
use super::places::{Place, entry, settings};

pub(crate) const ALL: &[(&str, Case)] = &[
    ("a_budget_is_spent_once_and_comes_back_after_a_crash", budgets),
    ("a_session_takes_its_updates_in_order_and_keeps_them", sessions),
    ("a_content_has_one_data_set_for_good", contents),
    ("an_answer_is_kept_with_its_debit_and_neither_without_the_other", answers),
    ("of_the_answers_that_are_kept_the_newest_stay", newest_answers),
];

pub(crate) const OF_REPLICAS: &[(&str, super::replicas::Case)] =
    &[("two_replicas_can_not_spend_the_same", overdrawn)];

fn name(text: &str) -> anyhow::Result<CuratorName> {
    Ok(CuratorName::new(text)?)
}

pub(crate) fn register(
    store: &mut dyn Store,
    text: &str,
    budget: u64,
) -> anyhow::Result<DataSetRecord> {
    let record = DataSetRecord {
        name: name(text)?,
        file: "people.csv".to_owned(),
        fingerprint: Fingerprint::from_bytes([1; 32]),
        content: Some(content(text)),
        rows: 1_000,
        columns: "age:0..99\ncity:Bonn|Ulm".to_owned(),
        measure: Measure::Concentrated,
        budget,
        spent: 0,
        at: UnixSeconds::new(7),
    };
    store.apply_query_change(&registration(record.clone())?)?;
    Ok(record)
}

/// A distinct content for each name.
fn content(text: &str) -> Fingerprint {
    let mut bytes = [0; 32];
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    Fingerprint::from_bytes(bytes)
}

fn registration(record: DataSetRecord) -> anyhow::Result<CuratorChange> {
    let entry = entry(record.name.as_str(), AuditAction::RegisterDataSet)?;
    Ok(CuratorChange::Register(Box::new(record), None, entry))
}

pub(crate) fn debit(data_set: &str, price: u64) -> anyhow::Result<Debit> {
    Ok(Debit {
        data_set: name(data_set)?,
        at: UnixSeconds::new(8),
        caller: "anna".to_owned(),
        purpose: format!("a count for {price}"),
        price,
        caller_most: None,
    })
}

/// The reason for a refusal by the store, without any change.
fn refusal(outcome: Result<(), StoreError>) -> anyhow::Result<CuratorRefusal> {
    let error = outcome.err().context("the store made the change")?;
    ensure!(error.outcome() == Outcome::Declined, "{error}");
    match error {
        StoreError::Refused(StoreRefusal::Curator(refusal)) => Ok(*refusal),
        other => Err(other.into()),
    }
}

fn budgets(place: &Place) -> anyhow::Result<()> {
    let mut store = place.open()?;
    let record = register(&mut *store, "people", 100)?;
    register(&mut *store, "others", 5)?;
    let again =
        store.apply_query_change(&registration(DataSetRecord { budget: 900, ..record.clone() })?);
    ensure!(refusal(again)? == CuratorRefusal::DataSetExists(name("people")?));
    store.apply_query_change(&CuratorChange::Debit(debit("people", 60)?, None))?;
    let exhausted =
        CuratorRefusal::Exhausted { data_set: name("people")?, price: 41, left: 40, budget: 100 };
    ensure!(
        refusal(store.apply_query_change(&CuratorChange::Debit(debit("people", 41)?, None)))?
            == exhausted
    );
    ensure!(exhausted.to_string().contains("0.00000004 of 0.0000001 is left"), "{exhausted}");
    let unknown = store.apply_query_change(&CuratorChange::Debit(debit("nobody", 1)?, None));
    ensure!(refusal(unknown)? == CuratorRefusal::NoDataSet(name("nobody")?));
    // A session that can't be paid for is not created, and one whose name is taken costs nothing.
    let session = session("first", "people")?;
    let dear = CuratorChange::Open(debit("people", 41)?, session.clone());
    ensure!(refusal(store.apply_query_change(&dear))? == exhausted);
    store.apply_query_change(&CuratorChange::Open(debit("people", 40)?, session.clone()))?;
    let taken = CuratorChange::Open(debit("others", 5)?, session.clone());
    ensure!(
        refusal(store.apply_query_change(&taken))? == CuratorRefusal::SessionExists(session.name)
    );
    drop(store);

    let mut store = place.open()?;
    let reader = place.reader()?;
    let records = reader.data_sets(None)?;
    let spent: Vec<(&str, u64)> = records.iter().map(|r| (r.name.as_str(), r.spent)).collect();
    ensure!(spent == [("others", 0), ("people", 100)], "{spent:?}");
    ensure!(reader.data_sets(Some(&record.name))? == [DataSetRecord { spent: 100, ..record }]);
    let people = name("people")?;
    let page = |after, limit| -> anyhow::Result<Vec<String>> {
        let page = reader.data_sets_after(after, limit)?;
        Ok(page.iter().map(|record| record.name.to_string()).collect())
    };
    ensure!(page("", 1)? == ["others"] && page("others", 10)? == ["people"]);
    ensure!(page("people", 10)?.is_empty());
    let debits = reader.debits((&people, None), None, 10)?;
    let prices: Vec<u64> = debits.iter().map(|record| record.debit.price).collect();
    ensure!(prices == [40, 60], "{prices:?}");
    ensure!(debits.last().map(|record| &record.debit) == Some(&debit("people", 60)?));
    let older = reader.debits((&people, None), Some(debits[0].number), 10)?;
    ensure!(older.len() == 1 && older[0].debit.price == 60);
    let caller = debits[0].debit.caller.clone();
    ensure!(reader.debits((&people, Some(&caller)), None, 10)? == debits);
    ensure!(reader.debits((&people, Some("nobody")), None, 10)?.is_empty());
    ensure!(
        refusal(store.apply_query_change(&CuratorChange::Debit(debit("people", 1)?, None))).is_ok()
    );

    // Of a budget of 5, each caller may spend 3.
    let part = |caller: &str, price| -> anyhow::Result<CuratorChange> {
        let (caller, caller_most) = (caller.to_owned(), Some(3));
        Ok(CuratorChange::Debit(Debit { caller, caller_most, ..debit("others", price)? }, None))
    };
    store.apply_query_change(&part("anna", 2)?)?;
    let refused =
        CuratorRefusal::PartExhausted { data_set: name("others")?, price: 2, left: 1, most: 3 };
    ensure!(refusal(store.apply_query_change(&part("anna", 2)?))? == refused);
    store.apply_query_change(&part("anna", 1)?)?;
    store.apply_query_change(&part("ben", 2)?)?;
    ensure!(matches!(
        refusal(store.apply_query_change(&part("ben", 1)?))?,
        CuratorRefusal::Exhausted { .. }
    ));
    for (caller, spent) in [("anna", 3), ("ben", 2), ("eve", 0)] {
        ensure!(reader.spent_by((&name("others")?, caller))? == spent, "{caller}");
    }
    Ok(store.close()?)
}

pub(crate) fn session(text: &str, data_set: &str) -> anyhow::Result<SessionRecord> {
    Ok(SessionRecord {
        name: name(text)?,
        data_set: name(data_set)?,
        columns: "city".to_owned(),
        plan: "{}".to_owned(),
        threshold_noise: -17,
    })
}

fn sessions(place: &Place) -> anyhow::Result<()> {
    let mut store = place.open()?;
    register(&mut *store, "people", 100)?;
    let record = session("habits", "people")?;
    store.apply_query_change(&CuratorChange::Open(debit("people", 1)?, record.clone()))?;
    let round = |number, update: Option<(u32, i64)>| -> anyhow::Result<CuratorChange> {
        let (session, predicate) = (name("habits")?, "city=Ulm".to_owned());
        let update = update.map(|(number, answer)| {
            let (session, predicate) = (session.clone(), predicate.clone());
            SessionUpdate { session, number, predicate, answer }
        });
        Ok(CuratorChange::Round(SessionRound { session, number, update }, None))
    };
    store.apply_query_change(&round(0, Some((0, 10)))?)?;
    // A round compared with a state other than the last one is not stored, whether or not it is an
    // update.
    for late in [round(0, None), round(0, Some((1, 99))), round(2, None), round(1, Some((0, 99)))] {
        ensure!(refusal(store.apply_query_change(&late?))? == CuratorRefusal::SessionMoved);
    }
    store.apply_query_change(&round(1, None)?)?;
    ensure!(
        refusal(store.apply_query_change(&round(1, Some((1, 99)))?))?
            == CuratorRefusal::SessionMoved
    );
    store.apply_query_change(&round(2, Some((1, -11)))?)?;
    drop(store);

    let store = place.open()?;
    let reader = place.reader()?;
    ensure!(reader.session(&record.name)? == Some(record.clone()));
    ensure!(reader.session(&name("other")?)?.is_none());
    let answers = |from| -> anyhow::Result<Vec<(u32, i64)>> {
        let updates = reader.session_updates(&record.name, from, 10)?;
        Ok(updates.into_iter().map(|update| (update.number, update.answer)).collect())
    };
    ensure!(reader.session_updates(&record.name, 0, 1)?.len() == 1);
    ensure!(answers(0)? == [(0, 10), (1, -11)] && answers(1)? == [(1, -11)]);
    ensure!(reader.session_rounds(&record.name)? == Some(3));
    ensure!(reader.session_rounds(&name("other")?)?.is_none());
    Ok(store.close()?)
}

fn contents(place: &Place) -> anyhow::Result<()> {
    let mut store = place.open()?;
    let record = register(&mut *store, "people", 100)?;
    store.apply_query_change(&CuratorChange::Debit(debit("people", 100)?, None))?;
    let again = DataSetRecord { name: name("again")?, file: "copy.csv".to_owned(), ..record };
    let same = CuratorRefusal::ContentRegistered(name("people")?);
    ensure!(refusal(store.apply_query_change(&registration(again.clone())?))? == same);
    // A data set of an earlier version has no content digest until its file was read again.
    let earlier = DataSetRecord { name: name("earlier")?, content: None, ..again.clone() };
    store.apply_query_change(&registration(earlier.clone())?)?;
    let bind = |text| -> anyhow::Result<CuratorChange> {
        let (fingerprint, content) = (Fingerprint::from_bytes([2; 32]), content(text));
        Ok(CuratorChange::Bind { data_set: name("earlier")?, fingerprint, content })
    };
    ensure!(refusal(store.apply_query_change(&bind("people")?))? == same);
    store.apply_query_change(&bind("earlier")?)?;
    store.apply_query_change(&bind("other")?)?;
    store
        .apply_query_change(&CuratorChange::Refuse(entry("again", AuditAction::RefuseDataSet)?))?;
    drop(store);

    let mut store = place.open()?;
    let reader = place.reader()?;
    let stored = reader.data_sets(Some(&name("earlier")?))?;
    let fingerprint = Fingerprint::from_bytes([2; 32]);
    ensure!(
        stored == [DataSetRecord { fingerprint, content: Some(content("earlier")), ..earlier }]
    );
    ensure!(refusal(store.apply_query_change(&registration(again)?))? == same);
    ensure!(reader.fingerprint_key()?.as_bytes() == place.reader()?.fingerprint_key()?.as_bytes());
    let actions: Vec<_> = place.audit()?.iter().map(|record| record.entry.action).collect();
    let registered = AuditAction::RegisterDataSet;
    ensure!(actions == [AuditAction::RefuseDataSet, registered, registered], "{actions:?}");
    Ok(store.close()?)
}

/// An answer of this number of bytes.
fn answer(id: u8, caller: &str, bytes: usize, at: u64) -> anyhow::Result<AnswerToKeep> {
    let scope = QuestionScope::DataSet(name("people")?);
    Ok(AnswerToKeep {
        question: QuestionKey { scope, caller: caller.to_owned(), id: [id; 16] },
        kept: KeptAnswer { digest: [id; 32], answer: vec![id; bytes] },
        at: UnixSeconds::new(at),
    })
}

fn answers(place: &Place) -> anyhow::Result<()> {
    let mut store = place.open()?;
    register(&mut *store, "people", 100)?;
    let first = answer(1, "anna", 10, 1)?;
    store.apply_query_change(&CuratorChange::Debit(debit("people", 60)?, Some(first.clone())))?;
    let again = CuratorChange::Debit(debit("people", 10)?, Some(first.clone()));
    ensure!(refusal(store.apply_query_change(&again))? == CuratorRefusal::Answered);
    // An unpaid answer is not stored; and ids are per caller.
    let dear = answer(2, "anna", 10, 1)?;
    let refused =
        store.apply_query_change(&CuratorChange::Debit(debit("people", 60)?, Some(dear.clone())));
    ensure!(matches!(refusal(refused)?, CuratorRefusal::Exhausted { .. }));
    let other = answer(1, "otto", 9, 1)?;
    store.apply_query_change(&CuratorChange::Debit(debit("people", 10)?, Some(other.clone())))?;
    let record = session("habits", "people")?;
    store.apply_query_change(&CuratorChange::Open(debit("people", 1)?, record))?;
    let mut of_session = answer(1, "anna", 8, 1)?;
    of_session.question.scope = QuestionScope::Session(name("people")?);
    let round = |number| -> anyhow::Result<CuratorChange> {
        let round = SessionRound { session: name("habits")?, number, update: None };
        Ok(CuratorChange::Round(round, Some(of_session.clone())))
    };
    ensure!(refusal(store.apply_query_change(&round(1)?))? == CuratorRefusal::SessionMoved);
    store.apply_query_change(&round(0)?)?;
    ensure!(refusal(store.apply_query_change(&round(1)?))? == CuratorRefusal::Answered);
    drop(store);

    let store = place.open()?;
    let reader = place.reader()?;
    for kept in [first, other, of_session] {
        ensure!(reader.kept_answer(&kept.question)? == Some(kept.kept));
    }
    ensure!(reader.kept_answer(&dear.question)?.is_none());
    ensure!(reader.session_rounds(&name("habits")?)? == Some(1));
    let spent: Vec<u64> = reader.data_sets(None)?.iter().map(|record| record.spent).collect();
    ensure!(spent == [71], "{spent:?}");
    Ok(store.close()?)
}

fn newest_answers(place: &Place) -> anyhow::Result<()> {
    const MEBIBYTE: usize = 1 << 20;
    let mut store = place.open()?;
    register(&mut *store, "people", 1_000)?;
    let reader = place.reader()?;
    let mut keep = |id, caller, bytes, at| -> anyhow::Result<()> {
        let answer = Some(answer(id, caller, bytes, at)?);
        Ok(store.apply_query_change(&CuratorChange::Debit(debit("people", 1)?, answer))?)
    };
    let kept = |caller: &str| -> anyhow::Result<Vec<u8>> {
        let is_kept = |id: &u8| -> anyhow::Result<bool> {
            Ok(reader.kept_answer(&answer(*id, caller, 0, 0)?.question)?.is_some())
        };
        (0..=u8::MAX)
            .filter_map(|id| is_kept(&id).map(|kept| kept.then_some(id)).transpose())
            .collect()
    };
    // A caller's answers of the last day, regardless of other callers.
    keep(1, "anna", 1, 100_000)?;
    keep(2, "anna", 1, 150_000)?;
    keep(3, "otto", 1, 400_000)?;
    keep(4, "anna", 1, 100_000 + 86_401)?;
    ensure!(kept("anna")? == [2, 4] && kept("otto")? == [3]);
    // 16 MiB, and the newest answer in any case.
    keep(5, "anna", 15 * MEBIBYTE, 200_000)?;
    ensure!(kept("anna")? == [2, 4, 5]);
    keep(6, "anna", 2 * MEBIBYTE, 200_000)?;
    ensure!(kept("anna")? == [6], "{:?}", kept("anna")?);
    keep(7, "anna", 17 * MEBIBYTE, 200_000)?;
    ensure!(kept("anna")? == [7]);
    Ok(())
}

fn overdrawn(server: &Postgres) -> anyhow::Result<()> {
    let place = Place::postgres(server)?;
    let Place::Postgres(url) = &place else { anyhow::bail!("not a database") };
    let mut store = place.open()?;
    register(&mut *store, "people", 100)?;
    store.apply_query_change(&CuratorChange::Open(
        debit("people", 1)?,
        session("habits", "people")?,
    ))?;
    // Four replicas ask for 200 together, and for the same update.
    let replica = || -> anyhow::Result<(u64, usize)> {
        let mut store = PostgresStore::open(&settings(url)?)?;
        let (mut paid, mut updates) = (0, 0);
        for _ in 0..50 {
            match store.apply_query_change(&CuratorChange::Debit(debit("people", 1)?, None)) {
                Ok(()) => paid += 1,
                outcome => drop(refusal(outcome)?),
            }
        }
        for number in 0..20 {
            let (session, predicate) = (name("habits")?, "*".to_owned());
            let update = SessionUpdate { session: session.clone(), number, predicate, answer: 1 };
            let (number, update) = (number.into(), Some(update));
            let round = SessionRound { session, number, update };
            match store.apply_query_change(&CuratorChange::Round(round, None)) {
                Ok(()) => updates += 1,
                outcome => ensure!(refusal(outcome)? == CuratorRefusal::SessionMoved),
            }
        }
        Ok((paid, updates))
    };
    let outcomes: Vec<_> = thread::scope(|scope| {
        let running: Vec<_> = (0..4).map(|_| scope.spawn(replica)).collect();
        running.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    let (mut paid, mut updates) = (0, 0);
    for outcome in outcomes {
        let (more, others) = outcome.map_err(|_| anyhow::anyhow!("a replica panicked"))??;
        paid += more;
        updates += others;
    }
    ensure!(paid == 99, "{paid} were paid, and 99 were left");
    let rows = query(url, "SELECT spent FROM curator_data_set")?;
    ensure!(rows == [["100"]], "{rows:?}");
    let rows = query(url, "SELECT count(*), max(number) + 1 FROM curator_update")?;
    let committed = updates.to_string();
    ensure!(rows == [[committed.as_str(), committed.as_str()]], "{rows:?} of {updates}");
    // Database triggers prevent an accidental refund too.
    ensure!(query(url, "UPDATE curator_data_set SET spent = 0").is_err());
    ensure!(query(url, "DELETE FROM curator_debit").is_err());
    Ok(())
}
