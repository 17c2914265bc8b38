use super::*;

fn of_text(text: &str, overrides: Vec<Given>) -> Result<(Configuration, Effective), String> {
    let (mut given, problems) =
        file::parse(Path::new("b.toml"), text).map_err(|error| error.to_string())?;
    given.extend(overrides);
    Configuration::of(&given, problems).map_err(|error| error.to_string())
}

/// The error message for an invalid file.
#[track_caller]
fn refusal(text: &str) -> String {
    of_text(text, Vec::new()).unwrap_err()
}

fn given(setting: &'static Setting, text: &str, origin: Origin) -> Given {
    Given { setting, text: text.to_owned(), origin }
}

#[test]
fn the_documented_file_sets_the_defaults_and_nothing_else() {
    let (documented, _) = of_text(&documented_file(), Vec::new()).unwrap();
    let only_required = "store.data_dir = \"bandana-data\"";
    assert_eq!(documented, of_text(only_required, Vec::new()).unwrap().0);
    assert_eq!(documented.store.replay_window_days, 7);
    assert_eq!(documented.shutdown.drain_deadline, Duration::from_secs(20));
    for setting in SETTINGS {
        let mark = if matches!(setting.fallback, Fallback::Unset(_)) { "# " } else { "" };
        let line = format!("\n{mark}{} = ", setting.key);
        assert!(documented_file().contains(&line), "{}", setting.key);
    }
}

#[test]
fn flags_override_the_environment_which_overrides_the_file() {
    let text = "[store]\ndata_dir = \"file\"\nids_max = 1_000\nreplay_window_days = 0x10\n";
    let overrides = vec![
        given(&settings::DATA_DIR, "flag", Origin::Flag("data-dir")),
        given(&settings::DATA_DIR, "environment", Origin::Environment("BANDANA_DATA_DIR")),
        given(&settings::IDS_MAX, "5", Origin::Environment("BANDANA_IDS_MAX")),
    ];
    let (configuration, effective) = of_text(text, overrides).unwrap();
    assert_eq!(configuration.store.place, StorePlace::Directory(PathBuf::from("flag")));
    assert_eq!((configuration.store.ids_max, configuration.store.replay_window_days), (5, 16));
    let expected = "\
[store]
data_dir = \"flag\" # --data-dir
# url # not set
# ca # not set
# password_file # not set
# cells # not set
replay_window_days = 16 # b.toml, line 4
ids_max = 5 # $BANDANA_IDS_MAX
id_partitions = 1 # default

[devices]
listen = \"127.0.0.1:7301\" # default
# app_keys_file # not set
# cors_origins # not set
# tls_certificate # not set
# tls_key # not set
# gateway_key_file # not set
# gateway_signed_keys_file # not set
# gateway_former_key_file # not set

[operators]
listen = \"127.0.0.1:7302\" # default
# tokens_file # not set
# tls_certificate # not set
# tls_key # not set
# client_ca # not set

[curator]
# directory # not set
analyst_percent = 100 # default

[log]
# key_file # not set
# witnesses_file # not set
# quorum # not set
epoch_seconds = 60 # default

[telemetry]
log_format = \"text\" # default
# log_filter # not set
# otlp_endpoint # not set

[limits]
# memory_mib # not set
connections = 10000 # default
streams_per_connection = 128 # default
header_bytes = 16384 # default
handshakes = 512 # default
handshake_seconds = 10 # default
idle_seconds = 120 # default
request_seconds = 30 # default
answer_seconds = 60 # default
stream_idle_seconds = 300 # default
calls = 8192 # default
uploads_per_second_per_connection = 20000 # default
uploads_per_second_per_app_key = 0 # default
questions_per_second_per_connection = 20000 # default
questions_per_second_per_app_key = 0 # default
burst_seconds = 5 # default

[shutdown]
drain_deadline_seconds = 20 # default
";
    assert_eq!(effective.to_string(), expected);
    assert_eq!(of_text(&effective.to_string(), Vec::new()).unwrap().0, configuration);
}

#[test]
fn all_problems_are_told_at_once_with_their_lines() {
    let said = refusal(
        "data_dir = \"x\"\n[store]\nreplay_windw_days = 3\nids_max = \"5\"\n\n[shutdown]\n\
         drain_deadline_seconds = 0\n[devices]\nlisten = \"localhost\"\n",
    );
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines.len(), 6, "{said}");
    assert!(lines[1].contains("b.toml, line 1") && lines[1].contains("[store]"), "{said}");
    assert!(lines[2].contains("line 3") && lines[2].contains("did you mean"), "{said}");
    assert!(lines[3].contains("line 4") && lines[3].contains("without quotes"), "{said}");
    assert!(lines[4].contains("line 7") && lines[4].contains("in 1..=3600"), "{said}");
    assert!(lines[5].contains("line 9") && lines[5].contains("an IP address"), "{said}");
}

#[test]
fn what_is_missing_or_contradictory_is_told() {
    let said = refusal("");
    for way in ["data_dir", "[store]", "$BANDANA_DATA_DIR", "--data-dir"] {
        assert!(said.contains(way), "{said}");
    }
    let with = |rest: &str| refusal(&format!("store.data_dir = \"x\"\n{rest}"));
    let said = with("operators.listen = \"0.0.0.0:7302\"");
    assert!(said.contains("line 2") && said.contains("not on loopback"), "{said}");
    let said = with("operators.tls_certificate = \"c\"");
    assert!(said.contains("line 2") && said.contains("needs `tls_key`"), "{said}");
    let said = with("devices.tls_key = \"k\"");
    assert!(said.contains("needs `tls_certificate` in [devices]"), "{said}");
    let said = with("operators.client_ca = \"c\"");
    assert!(said.contains("`client_ca` needs `tls_certificate` and `tls_key`"), "{said}");
    let said = with("devices.listen = \"127.0.0.1:7302\"");
    assert!(said.contains("the operators' address too"), "{said}");
    let said = with("limits.uploads_per_second_per_app_key = 9");
    assert!(said.contains("line 2") && said.contains("needs `app_keys_file`"), "{said}");
    let said = with("[telemetry]\nlog_format = \"xml\"\nlog_filter = \"loud\"");
    assert!(said.contains("one of text, json") && said.contains("expected a level"), "{said}");
    if !TelemetrySettings::CAN_TRACE {
        let said = with("telemetry.otlp_endpoint = \"http://127.0.0.1:4317\"");
        assert!(said.contains("line 2") && said.contains("--features opentelemetry"), "{said}");
    }
    let said = with("shutdown = 3");
    assert!(said.contains("[shutdown]"), "{said}");
    let said = with("[store]\n");
    assert!(said.contains("b.toml is not valid TOML"), "{said}");
}

#[test]
fn operators_beyond_loopback_are_known_and_not_overheard() {
    let of = |operators: &str| {
        let text =
            format!("[store]\ndata_dir = \"x\"\n[operators]\nlisten = \"[::]:9\"\n{operators}");
        of_text(&text, Vec::new()).map(|(configuration, _)| configuration.operators)
    };
    let (tls, tokens) = ("tls_certificate = \"c\"\ntls_key = \"k\"\n", "tokens_file = \"t\"\n");
    for unsafe_settings in ["", tokens, tls] {
        assert!(of(unsafe_settings).unwrap_err().contains("not on loopback"), "{unsafe_settings}");
    }
    assert!(of(&format!("{tls}{tokens}")).unwrap().tls.is_some());
    let mutual = of(&format!("{tls}client_ca = \"ca\"")).unwrap();
    assert_eq!(mutual.tls.unwrap().client_ca, Some(PathBuf::from("ca")));
}

#[test]
fn a_store_is_a_directory_or_a_database_whose_password_nobody_sees() {
    let of = |store: &str| of_text(&format!("[store]\n{store}"), Vec::new());
    let url = "url = \"postgres://u:secret@db/x\"\n";
    let (configuration, effective) = of(&format!("{url}ca = \"c\"\n")).unwrap();
    let StorePlace::Database { url: parsed, ca, .. } = configuration.store.place else {
        panic!("not a database");
    };
    assert_eq!((parsed.to_string().as_str(), ca), ("postgres://u:***@db/x", Some("c".into())));
    assert!(effective.to_string().contains("\"postgres://u:***@db/x\" # b.toml, line 2"));

    let said = of(&format!("{url}data_dir = \"x\"\n")).unwrap_err();
    assert!(
        said.contains("line 3") && said.contains("`url` is set too, by b.toml, line 2"),
        "{said}"
    );
    let said = of("data_dir = \"x\"\nca = \"c\"").unwrap_err();
    assert!(said.contains("ca: is for `url` only"), "{said}");
    for bad in ["mysql://u:secret@db/x", "postgres://u:secret@db:99999/x", "secret"] {
        let said = of(&format!("url = {bad:?}")).unwrap_err();
        assert!(said.contains("[store] url: ") && !said.contains("secret"), "{said}");
    }
}

#[test]
fn store_cells_are_an_array_or_have_spaces_between() {
    let of = |store: &str| of_text(&format!("[store]\n{store}"), Vec::new());
    let url = "url = \"postgres://db/x\"\n";
    let two = "cells = [\"postgres://u:secret@one/x\", \"postgres://a,b/x\"]";
    let (configuration, effective) = of(&format!("{url}{two}")).unwrap();
    let StorePlace::Database { cells, .. } = configuration.store.place else {
        panic!("not a database");
    };
    let cells: Vec<String> = cells.iter().map(ToString::to_string).collect();
    assert_eq!(cells, ["postgres://u:***@one/x", "postgres://a,b/x"]);
    let shown = "cells = [\"postgres://u:***@one/x\", \"postgres://a,b/x\"] # b.toml, line 3";
    assert!(effective.to_string().contains(shown), "{effective}");

    for (bad, expected) in [
        ("cells = \"postgres://one/x\"", "cells: expected URLs of PostgreSQL databases, each in"),
        ("cells = [1]", "each in quotes, in an array"),
        ("cells = []", "expected URLs of PostgreSQL databases"),
        ("cells = [\"postgres://one/x\", \"secret\"]", "[store] cells: number 2: expected a URL"),
    ] {
        let said = of(&format!("{url}{bad}")).unwrap_err();
        assert!(said.contains(expected) && !said.contains("secret"), "{said}");
    }
    let said = of(&format!("data_dir = \"x\"\n{two}")).unwrap_err();
    assert!(said.contains("cells: is for `url` only"), "{said}");
}

#[test]
fn a_program_without_queries_refuses_their_settings() {
    let problems = |text: &str| -> Vec<String> {
        let (given, _) = file::parse(Path::new("b.toml"), text).unwrap();
        settings_of_queries(&Effective::of(&given)).map(|problem| problem.to_string()).collect()
    };
    // What the documented file sets changes nothing.
    assert_eq!(problems(&documented_file()), [""; 0]);
    let text = "store.data_dir = \"data\"\n[curator]\ndirectory = \"sets\"\nanalyst_percent = 20\n";
    let [directory, percent] = &problems(text)[..] else { panic!("two settings have problems") };
    assert!(directory.starts_with("b.toml, line 3: ") && directory.contains("`directory`"));
    assert!(percent.starts_with("b.toml, line 4: ") && percent.contains("--features queries"));
    assert_eq!(of_text(text, Vec::new()).is_ok(), Queries::ARE_BUILT_IN);
}
