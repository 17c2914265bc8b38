//! The dashboard, in a browser.
//!
//! Most tests drive a separate Chromium. Where none is installed they are ignored, unless
//! `BANDANA_REQUIRE_BROWSER` is 1.

mod alarms;
mod content;
mod deciding;
mod keyboard;
mod kinds;
mod records;
mod sign_in;
mod strangers;
mod trusted;

use std::process::ExitCode;

use anyhow::ensure;
use bandana_examples::environment::CleanEnvironment as _;
use bandana_tests::add_async;
use bandana_tests::suite::Suite;
use serde_json::Value;
use tokio::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_aggregator-under-test");

fn main() -> ExitCode {
    let mut suite = Suite::from_args();
    add_async!(suite;
        alarms::guardrails_are_created_and_alarms_shown,
        content::a_page_shows_what_the_command_line_prints_and_stays_up_to_date,
        deciding::estimates_over_time_are_those_of_the_command_line,
        deciding::a_limit_that_is_crossed_pauses_the_experiment_on_the_page,
        deciding::the_form_has_what_the_command_line_has,
        deciding::data_sets_are_listed_with_what_is_left_of_their_budgets,
        deciding::segments_have_shares_of_categories_and_exports_have_segments_and_metrics,
        keyboard::an_experiment_is_created_paused_resumed_and_stopped_by_keyboard,
        kinds::every_kind_of_private_experiment_has_a_page_and_is_paused_there,
        kinds::an_experiment_of_categories_is_a_page_in_every_state,
        kinds::metrics_and_segments_are_made_in_the_form_and_shown_on_the_page,
        kinds::what_learning_has_earned_is_said_beside_the_holdout,
        kinds::what_has_ended_is_archived_shown_and_deleted_by_its_name,
        kinds::every_kind_of_trusted_experiment_has_a_page_and_is_paused_there,
        kinds::shares_of_levels_and_categories_are_those_of_the_command_line,
        records::a_record_is_written_on_the_page_and_found_in_the_list,
        records::arms_are_compared_with_the_control_and_files_are_those_of_the_command_line,
        records::a_copy_begins_with_the_settings_of_the_first,
        records::presets_take_the_users_that_a_plan_says,
        sign_in::operators_show_a_token_and_a_revoked_one_ends_what_they_see,
        strangers::the_pages_can_reach_nobody_else_and_make_no_markup,
        strangers::pages_of_others_can_neither_read_nor_change_anything,
        strangers::what_is_wrong_with_a_change_is_said,
        trusted::nothing_is_created_without_a_declaration_or_beside_the_rules,
        trusted::no_answer_has_more_than_what_was_released,
        trusted::an_experiment_is_declared_shown_as_it_changes_paused_and_stopped,
        trusted::the_form_has_what_each_algorithm_needs,
    );
    suite.run().exit_code()
}

/// The output of a command with `--json`, for the server at this URL.
async fn printed(url: &str, arguments: &[&str]) -> anyhow::Result<Value> {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).arg("--json").clean_environment().env("BANDANA_OPERATOR_URL", url);
    let output = command.output().await?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{arguments:?}: {}: {errors}", output.status);
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The output of a command, for the server at this URL.
async fn written(url: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).clean_environment().env("BANDANA_OPERATOR_URL", url);
    let output = command.output().await?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{arguments:?}: {}: {errors}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// The changes of an experiment, latest first, from `bandana audit`.
async fn actions(url: &str, experiment: &str) -> anyhow::Result<Vec<String>> {
    let audit = printed(url, &["audit", experiment]).await?;
    let entries = audit["entries"].as_array().cloned().unwrap_or_default();
    Ok(entries.iter().filter_map(|entry| Some(entry["action"].as_str()?.to_owned())).collect())
}
