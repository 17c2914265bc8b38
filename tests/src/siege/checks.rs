//! Comparisons of servers' counts with callers' records.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bandana_shared::wire::v1::{
    AuditAction, ListAuditEntriesRequest, ListDataSetsRequest, ListDebitsRequest,
    ListExperimentsRequest,
};
use tokio::time::Instant;

use super::analysts::{DATA_SETS, Spent};
use super::disclosers::named;
use super::figures::{Figures, Group};
use super::round::{Books, Ground, Plan, way_to};
use super::server::Server;
use super::trouble::{MEMORY, note_memory};
use super::uploaders::Tallies;
use super::ways::Way;
use crate::harness::tallies;

/// Maximum lag of a replica.
pub(super) const LAG: Duration = Duration::from_secs(10);

/// Maximum memory of a server, in MiB: its budget for callers plus its own memory.
const MEMORY_MAX: u64 = 64 + 96;

/// Allowance of log bytes per start of a server, including messages of the database.
const LOG_OF_START: usize = 8 * 1024;

/// Allowance of log bytes per second.
const LOG_OF_SECOND: usize = 1024;

/// Checks all records, and shuts the servers down.
///
/// # Errors
/// When a server does not answer.
pub(super) async fn check(
    ground: &mut Ground,
    books: &Books,
    plan: &Plan,
    figures: &Figures,
) -> anyhow::Result<()> {
    for server in &ground.site.servers {
        let way = way_to(server)?;
        let outcome = check_one(way, books, figures).await;
        outcome.with_context(|| format!("{} could not be asked", server.name))?;
    }
    for server in &mut ground.site.servers {
        note_memory(server, figures);
        if let Err(error) = server.stop().await {
            figures.wrong(format!("{error:#}"));
        }
        check_log(server, plan, figures)?;
    }
    let most = figures.count(Group::Most, MEMORY);
    if most > MEMORY_MAX {
        figures.wrong(format!("a server had {most} MiB, and may have {MEMORY_MAX}"));
    }
    let [flag, store] = &ground.custodian.store;
    let (code, said) = ground.custodian.run(&["verify", flag, store]).await?;
    if code != Some(0) {
        figures.wrong(format!("verify ended with {code:?}: {said}"));
    }
    if said.contains("warning: ") {
        figures.wrong(format!("verify warns: {said}"));
    }
    Ok(())
}

/// Checks that the log grows with starts and time, and not with strangers' requests.
fn check_log(server: &Server, plan: &Plan, figures: &Figures) -> anyhow::Result<()> {
    let log = std::fs::read_to_string(&server.log)?;
    figures.at_most("log of a server, KiB", log.len() as u64 >> 10);
    // Operators' calls have log lines of their own.
    let others = log.lines().filter(|line| !line.contains(" call{"));
    let bytes: usize = others.map(str::len).sum();
    let starts = log.matches("opening the store").count();
    let most = starts * LOG_OF_START + usize::try_from(plan.time.as_secs())? * LOG_OF_SECOND;
    figures.at_most("log beside operators' calls, KiB", bytes as u64 >> 10);
    if bytes > most {
        figures.wrong(format!("{} has logged {bytes} bytes, and may {most}", server.name));
    }
    Ok(())
}

async fn check_one(mut way: Way, books: &Books, figures: &Figures) -> anyhow::Result<()> {
    let mut expected = Tallies::new();
    for book in &books.uploads {
        for (key, more) in &book.tallies {
            let counts = expected.entry(*key).or_default();
            *counts = (counts.0 + more.0, counts.1 + more.1);
        }
    }
    // Other replicas see an acknowledged upload after a short lag.
    let until = Instant::now() + LAG;
    loop {
        let counted = counted(&mut way, books).await?;
        if counted == expected {
            break;
        }
        if Instant::now() > until {
            figures.wrong(format!("acknowledged were {expected:?}, counted {counted:?}"));
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    check_rewards(&mut way, books, figures).await?;
    check_budgets(&mut way, books, figures).await?;
    check_changes(&mut way, books, figures).await
}

/// Number of reports and of ones, for each arm with reports.
pub(super) async fn counted(way: &mut Way, books: &Books) -> anyhow::Result<Tallies> {
    let mut counted = Tallies::new();
    for (number, experiment) in books.experiments.iter().enumerate() {
        let arms = tallies(&mut way.operator, experiment).await?;
        let arms = arms.into_iter().enumerate().filter(|(_, counts)| counts.0 > 0);
        counted.extend(arms.map(|(arm, counts)| ((number, arm), counts)));
    }
    Ok(counted)
}

async fn check_rewards(way: &mut Way, books: &Books, figures: &Figures) -> anyhow::Result<()> {
    let mut expected: BTreeMap<&str, u64> = BTreeMap::new();
    for (id, rewards) in books.rewards.iter().flatten() {
        *expected.entry(id).or_default() += rewards;
    }
    for (id, rewards) in expected {
        let until = Instant::now() + LAG;
        let status = loop {
            let status = way.trusted_operator.get_trusted_status(named(id)).await?.into_inner();
            if status.rewards == rewards || Instant::now() > until {
                break status;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        if status.rewards != rewards {
            let counted = status.rewards;
            figures.wrong(format!("{id}: {rewards} rewards were acknowledged, {counted} counted"));
        }
        let released = way.trusted_operator.get_released(named(id)).await?.into_inner();
        let before = books.releases.get(&(id.to_owned(), status.releases));
        if before.is_some_and(|before| *before != released.means) {
            figures.wrong(format!("{id} had {before:?} released, and now {:?}", released.means));
        }
        figures.at_most("releases of an experiment", status.releases);
    }
    Ok(())
}

async fn check_budgets(way: &mut Way, books: &Books, figures: &Figures) -> anyhow::Result<()> {
    let listed = way.curator.list_data_sets(ListDataSetsRequest::default()).await?.into_inner();
    for (name, remembered) in DATA_SETS.iter().zip(books.spent) {
        let listed = listed.data_sets.iter().find(|set| set.name == *name);
        let spent_nanos = listed.with_context(|| format!("no data set {name}"))?.spent_nanos;
        let debited = debited(way, name).await?;
        if debited != remembered || spent_nanos != remembered.nanos {
            figures.wrong(format!(
                "of {name} {remembered:?} were told, {debited:?} debited, {spent_nanos} spent"
            ));
        }
    }
    Ok(())
}

async fn debited(way: &mut Way, name: &str) -> anyhow::Result<Spent> {
    let mut spent = Spent::default();
    let mut request =
        ListDebitsRequest { data_set: name.to_owned(), limit: 1000, ..Default::default() };
    loop {
        let page = way.curator.list_debits(request.clone()).await?.into_inner();
        spent.debits += page.debits.len() as u64;
        spent.nanos += page.debits.iter().map(|debit| debit.price_nanos).sum::<u64>();
        if page.next_before == 0 {
            return Ok(spent);
        }
        request.before = page.next_before;
    }
}

/// Compares lists and the audit log with an operator's records.
async fn check_changes(way: &mut Way, books: &Books, figures: &Figures) -> anyhow::Result<()> {
    let mut listed = Vec::new();
    let mut request =
        ListExperimentsRequest { page_size: 1000, show_archived: true, ..Default::default() };
    loop {
        let page = way.operator.list_experiments(request.clone()).await?.into_inner();
        for status in page.experiments {
            listed.push((status.specification.context("none")?.experiment_id, status.archived));
        }
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    listed.retain(|(id, _)| id.starts_with("own-"));
    let kept: Vec<_> = books.operator.kept.clone().into_iter().collect();
    if listed != kept {
        figures.wrong(format!("listed are {listed:?}, and should be {kept:?}"));
    }
    let audited = audited(way).await?;
    for ((id, action), (least, most)) in &books.operator.changes {
        let entries = audited.get(&(id.clone(), *action)).copied().unwrap_or(0);
        // At the end other callers may resume paused experiments too.
        let is_more = entries > *most && *action != AuditAction::Resume;
        if entries < *least || is_more {
            figures.wrong(format!(
                "{action:?} of {id} is {entries} times in the audit log, and not {least} to {most}"
            ));
        }
        if id.starts_with("own-") && entries != 1 {
            figures.wrong(format!("{action:?} of {id} is {entries} times in the audit log"));
        }
    }
    Ok(())
}

/// The count of each change in the audit log.
async fn audited(way: &mut Way) -> anyhow::Result<BTreeMap<(String, AuditAction), u64>> {
    let mut request = ListAuditEntriesRequest { limit: 1000, ..Default::default() };
    let mut counts = BTreeMap::new();
    loop {
        let page = way.operator.list_audit_entries(request.clone()).await?.into_inner();
        for entry in page.entries {
            let key = (entry.experiment_id.clone(), entry.action());
            *counts.entry(key).or_default() += 1;
        }
        ensure!(page.next_before < request.before || request.before == 0, "pages without an end");
        if page.next_before == 0 {
            return Ok(counts);
        }
        request.before = page.next_before;
    }
}
