//! Windows of trusted experiments: accepted days, and wrong clocks.

use super::*;

pub(super) async fn a_day_leaves_the_window_when_another_one_is_borne_out() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let today = Day::new(20_000);
    let clock = TestClock::at(today, folder.path())?;
    let server = clock.serve(PROGRAM, &folder.path().join("data")).await?;
    let urls = [&server.device, &server.operator].map(|address| format!("http://{address}"));
    let mut ways = Ways::to(&urls[0], &urls[1]).await?;
    ways.create("headlines", ucb(2)).await?;
    let mut send = async |number, day: Day| {
        let arm = disclose_request::Played::Arm(1);
        let told = ways.send(disclosure("headlines", number, arm, 0.5, day.get())).await?;
        anyhow::Ok((told.status(), told.server_day))
    };
    assert_eq!(send(1, today).await?, (S::Counted, today.get()));
    // The same name on another day is a different name.
    assert_eq!(send(1, today.back(1)).await?.0, S::Counted);
    assert_eq!(send(2, today.forward(1)).await?.0, S::FutureDay);
    assert_eq!(send(2, today.back(60)).await?.0, S::Expired);
    drop(ways);
    server.stop().await?;

    let later = today.forward(30);
    clock.set(later)?;
    let server = clock.serve(PROGRAM, &folder.path().join("data")).await?;
    let urls = [&server.device, &server.operator].map(|address| format!("http://{address}"));
    let mut ways = Ways::to(&urls[0], &urls[1]).await?;
    let mut send = async |number, day: Day| {
        let arm = disclose_request::Played::Arm(1);
        let told = ways.send(disclosure("headlines", number, arm, 0.5, day.get())).await?;
        anyhow::Ok((told.status(), told.server_day))
    };
    // The clock may be wrong: counted names are kept until a disclosure confirms the new days.
    assert_eq!(send(1, today).await?, (S::Duplicate, later.get()));
    assert_eq!(send(3, later).await?.0, S::Counted);
    assert_eq!(send(1, today).await?.0, S::Expired);
    assert_eq!(send(3, later).await?.0, S::Duplicate);
    drop(ways);
    server.stop().await?;
    let data_dir = folder.path().join("data");
    let (code, said) = run(&["verify", "--data-dir", text(&data_dir)?]).await?;
    assert_eq!(code, Some(0), "{said}");
    Ok(())
}

/// The answer to a disclosure of this day.
async fn disclose(server: &WatchedServer, number: u128, day: Day) -> Result<S, Status> {
    let urls = [&server.device, &server.operator].map(|address| format!("http://{address}"));
    let ways = Ways::to(&urls[0], &urls[1]).await;
    let mut ways = ways.map_err(|error| Status::internal(error.to_string()))?;
    let arm = disclose_request::Played::Arm(1);
    let told = ways.send(disclosure("headlines", number, arm, 0.5, day.get())).await?;
    Ok(told.status())
}

async fn watermark(
    clock: &TestClock,
    data_dir: &Path,
    words: &[&str],
) -> anyhow::Result<(Option<i32>, String)> {
    let mut command = clock.command(PROGRAM);
    command.arg("watermark").args(words).arg("--data-dir").arg(data_dir);
    let output = command.output().await?;
    let said = [output.stdout, output.stderr].concat();
    Ok((output.status.code(), String::from_utf8(said)?))
}

pub(super) async fn a_window_that_a_wrong_clock_moved_is_mended_and_nothing_counts_twice()
-> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let data_dir = folder.path().join("data");
    let today = Day::new(20_000);
    let clock = TestClock::at(today, folder.path())?;
    let server = clock.serve(PROGRAM, &data_dir).await?;
    let urls = [&server.device, &server.operator].map(|address| format!("http://{address}"));
    let mut ways = Ways::to(&urls[0], &urls[1]).await?;
    ways.create("headlines", ucb(2)).await?;
    drop(ways);
    // A new experiment accepts the days of its window from the first moment, and no others.
    assert_eq!(disclose(&server, 9, Day::new(1)).await?, S::Expired);
    assert_eq!(disclose(&server, 9, today.back(7)).await?, S::Expired);
    assert_eq!(disclose(&server, 1, today.back(6)).await?, S::Counted);
    assert_eq!(disclose(&server, 2, today).await?, S::Counted);
    server.stop().await?;

    // The clock is ahead by 30 days, and a device confirms it.
    let ahead = today.forward(30);
    clock.set(ahead)?;
    let server = clock.serve(PROGRAM, &data_dir).await?;
    assert_eq!(disclose(&server, 3, ahead).await?, S::Counted);
    server.stop().await?;
    clock.set(today)?;
    let server = clock.serve(PROGRAM, &data_dir).await?;
    let refused = disclose(&server, 4, today).await.err().context("taken by a wrong clock")?;
    assert_eq!(refused.code(), Code::Unavailable);
    server.stop().await?;
    mend_the_window(&clock, &data_dir).await?;

    let tomorrow = today.forward(1);
    clock.set(tomorrow)?;
    let server = clock.serve(PROGRAM, &data_dir).await?;
    assert_eq!(disclose(&server, 5, tomorrow).await?, S::Counted);
    assert_eq!(disclose(&server, 2, today).await?, S::Expired);
    server.stop().await?;
    // Disclosures counted ahead of their time are known when their day comes.
    clock.set(ahead)?;
    let server = clock.serve(PROGRAM, &data_dir).await?;
    assert_eq!(disclose(&server, 3, ahead).await?, S::Duplicate);
    server.stop().await?;
    let (code, said) = run(&["verify", "--data-dir", text(&data_dir)?]).await?;
    assert_eq!(code, Some(0), "{said}");
    Ok(())
}

/// Prints the window, which begins too late, and moves its beginning back as far as allowed.
async fn mend_the_window(clock: &TestClock, data_dir: &Path) -> anyhow::Result<()> {
    let (code, said) = watermark(clock, data_dir, &["show"]).await?;
    assert_eq!(code, Some(0), "{said}");
    for part in [
        "trusted experiment headlines begins on 2024-10-28",
        "no disclosures are taken until then",
        "may begin on is 2024-10-05",
    ] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
    let (_, said) = watermark(clock, data_dir, &["show", "--json"]).await?;
    let view =
        r#"[{"experiment":"headlines","oldest_day":"2024-10-28","earliest_day":"2024-10-05"}]"#;
    assert!(said.contains(view), "{said}");
    // Disclosures of the 4th were counted, and their names are gone.
    for (experiment, day, expected, part) in [
        ("headlines", "2024-10-04", 4, "on 2024-10-05 at the earliest"),
        ("headlines", "2024-10-29", 4, "only the server moves it forward"),
        ("other", "2024-10-05", 3, "no trusted experiment other"),
        ("headlines", "2024-10-05", 0, "headlines begins on 2024-10-05"),
    ] {
        let (code, said) =
            watermark(clock, data_dir, &["set", "--day", day, "--trusted", experiment]).await?;
        assert_eq!(code, Some(expected), "{said}");
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
    Ok(())
}
