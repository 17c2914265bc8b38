//! Databases that are not the store cells that they are listed as.

use anyhow::{Context as _, ensure};
use bandana_examples::environment::CleanEnvironment as _;
use bandana_shared::identity::Day;
use bandana_shared::wire::v1::UploadStatus;
use bandana_tests::harness::three_arms;
use bandana_tests::postgres::Postgres;
use tokio::process::Command;

use super::Case;
use super::site::{Databases, submit};
use crate::{PATIENCE, PROGRAM, ask, block_on, poll_until};

pub(super) const ALL: &[(&str, Case)] = &[
    ("a_database_in_the_wrong_place_is_refused_with_what_to_do", refused),
    ("a_home_that_is_set_back_under_a_running_replica_gets_no_upload", set_back),
];

/// Starts a server that must not start, and returns what it says.
async fn refusal(arguments: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(PROGRAM);
    let anywhere = ["--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"];
    command.clean_environment().arg("serve").args(anywhere).args(arguments).kill_on_drop(true);
    let ended = tokio::time::timeout(PATIENCE, command.output()).await.context("it runs")??;
    ensure!(!ended.status.success(), "it ended well");
    Ok(String::from_utf8(ended.stderr)?)
}

/// A home that was set back to before a change of its store cells, and then brought back.
async fn home_of_before(home: &str, one: &str) -> anyhow::Result<()> {
    let take = "DELETE FROM store_cell_generation; DELETE FROM store_cell WHERE number = 2";
    let taken = [
        "CREATE TABLE kept AS SELECT number, id FROM store_cell",
        "CREATE TABLE kept_generation AS SELECT from_day, cells FROM store_cell_generation",
        take,
    ];
    for sql in taken {
        ask(home, sql).await?;
    }
    let told = refusal(&["--store", home, "--store-cells", one]).await?;
    ensure!(told.contains("and the home does not: the home was set back"), "{told}");
    ask(home, "DELETE FROM store_cell").await?;
    ask(home, "INSERT INTO store_cell SELECT * FROM kept").await?;
    ask(home, "INSERT INTO store_cell_generation SELECT * FROM kept_generation").await?;
    Ok(())
}

fn refused(server: &Postgres) -> anyhow::Result<()> {
    let databases = Databases::new(server, 2)?;
    let other = Databases::new(server, 1)?;
    let (empty, tables) = (server.database()?, server.database()?);
    block_on(async {
        ask(&tables, "CREATE TABLE something (else_ integer)").await?;
        for databases in [&databases, &other] {
            databases.replica().await?.process.stop().await?;
        }
        let (home, cells) = (&databases.home, &databases.cells);
        let (one, two, foreign) = (&cells[0][..], &cells[1][..], &other.cells[0][..]);
        for (listed, expected) in [
            (vec![two, one], "is store cell 2 of this store; bring `cells` back into its order"),
            (vec![one], "lists 1 databases, and this store has 2 store cells; list all"),
            (vec![], "are in 2 store cells, and the settings list none; list their URLs"),
            (vec![one, foreign], "belongs to the store"),
            (vec![one, home], "is the home of this store, which `url` names"),
            (vec![one, one], "is store cell 1 of this store"),
            (vec![one, &other.home], "is a store of its own; a store cell begins with an empty"),
            (vec![one, &tables], "has tables of something else"),
            (vec![one, &empty], "is an empty database. If store cell 2 is another one, name"),
            (
                vec![one, two, &empty],
                "is no store cell of this store yet; add it with `bandana cells",
            ),
        ] {
            let list = listed.join(" ");
            let flags = ["--store", home, "--store-cells", &list];
            let flags = if listed.is_empty() { &flags[..2] } else { &flags[..] };
            let told = refusal(flags).await?;
            ensure!(told.contains(expected), "{listed:?}: {told}");
        }
        let told = refusal(&["--store", one]).await?;
        let expected = "this database is store cell 1 of the store";
        ensure!(told.contains(expected), "{told}");
        // Commands refuse what a server refuses.
        let nobody = "postgres://127.0.0.1:1";
        let (foreign, down) = ([one, two, &tables].join(" "), [one, nobody].join(" "));
        let (twice, third_down) = ([one, two, two].join(" "), [one, two, nobody].join(" "));
        for (words, cells, code, expected) in [
            (["cells", "grow", "--store", home], Some(foreign), 1, "has tables"),
            (["cells", "plan", "--store", home], Some(twice), 1, "is in the list before"),
            (["cells", "grow", "--store", home], Some(third_down), 5, "store cell 3, postgres"),
            (
                ["cells", "check", "--store", home],
                Some(one.to_owned()),
                6,
                "store cell 2, not listed",
            ),
            (["cells", "check", "--store", home], Some(down), 5, "store cell 2 can't be used"),
            (["verify", "--store", one, "--json"], None, 1, expected),
        ] {
            let mut command = Command::new(PROGRAM);
            command.clean_environment().args(words);
            command.args(cells.iter().flat_map(|list| ["--store-cells", list]));
            let ended = tokio::time::timeout(PATIENCE, command.output()).await??;
            let told = String::from_utf8([ended.stdout, ended.stderr].concat())?;
            ensure!(ended.status.code() == Some(code), "{words:?}: {}", ended.status);
            ensure!(told.contains(expected), "{words:?}: {told}");
        }
        home_of_before(home, one).await?;
        // As they were, they work.
        databases.replica().await?.process.stop().await
    })
}

fn set_back(server: &Postgres) -> anyhow::Result<()> {
    let databases = Databases::new(server, 2)?;
    let home = &databases.home;
    block_on(async {
        let mut replica = databases.replica().await?;
        let experiment = replica.create(three_arms("stays")).await?;
        let today = ask(home, "SELECT floor(extract(epoch FROM now()) / 86400)::integer").await?;
        let today = Day::new(today.first().context("no day")?[0].parse()?);
        let told = submit(&replica, &experiment, today, 1).await?;
        ensure!(told == UploadStatus::Accepted, "{told:?}");
        ask(home, "CREATE TABLE kept AS SELECT from_day, cells FROM store_cell_generation").await?;
        ask(home, "DELETE FROM store_cell_generation").await?;
        // Until the replica hears of it, the upload counts where it belongs, once.
        let upload = async || submit(&replica, &experiment, today, 2).await;
        poll_until("it goes by the home", async || Ok(upload().await.is_err())).await?;
        ask(home, "INSERT INTO store_cell_generation SELECT * FROM kept").await?;
        poll_until("it takes no upload", async || Ok(upload().await.is_ok())).await?;
        let told = upload().await?;
        ensure!(told == UploadStatus::Duplicate, "{told:?}");
        let (at_home, in_cells) = databases.ids()?;
        ensure!((at_home, in_cells.iter().sum::<u64>()) == (0, 2), "{at_home}, {in_cells:?}");
        replica.process.stop().await
    })
}
