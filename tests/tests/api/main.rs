//! Tier `api`: the real API server with the operator installed by the chart. Admission, schema, conversion,
//! access, and how the programs leave when they cannot work. No scenario here needs a running etcd.

mod access;
mod admission;
mod autoscaler;
mod chart;
mod conversion;
mod gitops;
mod modes;
mod programs;
mod rules;
mod schema;
mod surroundings;
mod under_load;
mod values;

use std::process::ExitCode;

use etcd_operator_tests::{Suite, scenario, scenarios};

fn main() -> ExitCode {
    Suite::new(
        "api",
        scenario!(chart::installs_and_an_apply_right_after_works),
    )
    .with(scenarios![
        admission::an_even_size_is_refused_with_its_reason_and_both_odd_neighbours,
        admission::every_fault_is_named_at_once,
        admission::scaling_to_an_even_size_is_refused,
        admission::what_is_left_unset_is_filled_and_what_is_written_stays,
        admission::applying_the_same_manifest_again_changes_nothing,
        admission::a_dry_run_leaves_nothing_behind,
        admission::a_risky_setting_is_let_in_with_a_warning,
        admission::a_misspelt_field_is_let_in_with_what_was_probably_meant,
        admission::a_minor_that_nobody_knows_is_refused,
        surroundings::a_secret_that_will_not_do_is_told_of_and_never_refused,
        surroundings::what_a_backup_or_a_restore_names_is_looked_for,
        schema::a_person_can_ask_what_the_fields_mean,
        schema::short_names_and_the_category_find_a_cluster,
        schema::a_name_too_long_for_its_children_is_refused,
        conversion::a_v1beta2_object_reads_as_v1alpha1,
        conversion::what_v1alpha1_cannot_say_survives_a_write_through_it,
        autoscaler::a_horizontal_pod_autoscaler_never_makes_an_even_or_an_eighth_member,
        access::the_webhook_may_read_a_secret_by_its_name_but_list_none_nor_write_anything_else,
        access::the_controller_may_not_touch_admission_nor_roles,
        values::the_api_server_accepts_the_chart_with_every_documented_set_of_values,
        programs::an_unknown_flag_is_one_line_on_stderr,
        programs::a_bad_value_is_one_line_on_stderr,
        programs::an_api_server_that_is_not_there_is_one_line_on_stderr,
        programs::a_port_in_use_is_one_line_on_stderr,
        programs::a_missing_permission_is_one_line_on_stderr,
    ])
    .with([
        scenario!(admission::without_the_webhook_the_api_server_itself_refuses_an_even_size)
            .alone(),
        scenario!(rules::every_rule_stands_three_times).alone(),
        scenario!(gitops::one_who_applies_the_rendered_chart_finds_nothing_to_change_while_the_operator_runs).alone(),
        scenario!(gitops::the_file_without_helm_is_accepted_with_kubectl_and_with_kustomize).alone(),
        scenario!(under_load::a_rolling_restart_fails_no_admission).alone(),
        scenario!(under_load::new_certificates_and_a_new_authority_fail_no_admission).alone(),
        scenario!(access::no_request_of_the_operator_was_ever_forbidden).alone(),
        // Behind the question above: where another begins to write the bundle, the pods that did it lose the right to before they are gone.
        scenario!(modes::certificates_may_come_from_a_secret_or_cert_manager_and_callers_may_have_to_show_one).alone(),
    ])
    .run()
}
