//! Tier `cluster`: the real cluster with real etcd. Create, use, change, lose a part, rest, delete.

mod again;
mod backup;
mod change;
#[path = "../api/chart.rs"]
mod chart;
mod coreos;
mod data;
mod database;
mod encryption;
mod interruptions;
mod life;
mod members;
mod nodes;
mod old;
mod order;
mod pause;
mod processes;
mod release;
mod rest;
mod restore;
mod seen;
mod worst_day;

use std::process::ExitCode;

use etcd_operator_tests::{Suite, scenario, scenarios};

fn main() -> ExitCode {
    Suite::new(
        "cluster",
        scenario!(chart::installs_and_an_apply_right_after_works),
    )
    .with(scenarios![
        // The longest first: the others run beside them.
        old::a_cluster_climbs_from_3_1_to_3_7_and_loses_no_write,
        coreos::a_cluster_of_coreos_is_taken_over_and_moves_onto_claims,
        coreos::single_members_of_coreos_are_taken_over_with_and_without_a_claim,
        change::upgrades_from_3_5_to_3_7_and_back_to_3_6_lose_no_write,
        change::growing_to_seven_and_back_to_one_loses_no_write,
        data::full_disks_stop_writes_honestly_and_room_brings_them_back,
        data::members_whose_data_is_corrupted_are_replaced,
        data::a_member_without_its_claim_or_with_a_wiped_disk_is_replaced_under_a_new_name,
        processes::a_frozen_leader_wakes_up_to_a_new_one_and_a_member_frozen_for_good_is_replaced,
        interruptions::a_version_put_back_in_the_middle_of_a_roll_is_put_back_everywhere,
        change::sizes_edited_in_mid_flight_lose_no_write,
        processes::killed_processes_come_back_one_and_all_at_once,
        change::a_changed_option_rolls_one_member_at_a_time_and_volumes_grow_online,
        worst_day::a_majority_lost_for_good_is_told_of_and_survivor_and_backup_bring_the_data_back,
        change::labels_change_without_a_restart,
        backup::a_backup_proves_itself_in_the_store_and_one_that_repeats_keeps_what_it_is_told,
        backup::a_new_minor_waits_for_a_good_backup,
        backup::a_backup_that_fails_says_why_and_coreos_manifest_works_as_it_is,
        database::a_used_up_quota_is_healed,
        database::a_member_with_corrupt_data_is_replaced_and_writes_go_on,
        database::free_space_is_given_back_one_member_at_a_time_beside_a_ready_cluster,
        encryption::new_authorities_take_over_under_load_and_no_write_is_lost,
        encryption::client_tls_lets_in_who_has_the_client_secret_and_nobody_else,
        restore::a_backup_becomes_a_new_cluster_and_coreos_manifest_takes_an_old_one_back_in_place,
        pause::a_paused_cluster_does_nothing_until_it_may_and_an_autoscaler_gets_an_odd_size,
        again::retained_claims_outlive_the_resource_and_a_namesake_asks_before_it_leaves_them_alone,
        again::a_resource_made_anew_under_the_same_name_starts_afresh,
        interruptions::a_namespace_with_a_cluster_at_work_goes_without_a_trace,
        restore::a_backup_that_is_not_sound_or_does_not_fit_touches_nothing,
        life::a_bare_spec_gives_a_ready_three_member_cluster,
        life::a_key_written_through_the_client_service_is_read_by_every_member,
        life::deleting_the_resource_removes_all_that_belonged_to_it,
        life::a_single_member_and_five_members_become_ready,
        old::coreos_manifests_run_as_they_stand,
        old::one_member_of_3_2_becomes_three_and_one_again,
        members::a_deleted_pod_comes_back_on_its_claim,
        members::killing_every_pod_loses_nothing,
        rest::at_rest_nothing_is_written,
        seen::kubectl_wait_get_and_describe_tell_the_story,
        seen::the_scale_subresource_tells_size_and_selector,
    ])
    .with([
        scenario!(interruptions::without_the_webhook_clusters_are_healed_and_deleted_all_the_same)
            .alone(),
        scenario!(interruptions::upgrades_go_on_where_a_killed_controller_left_them).alone(),
        scenario!(
            restore::a_restore_that_cannot_end_goes_back_and_the_next_outlives_store_and_controller
        )
        .alone(),
        scenario!(nodes::draining_each_node_in_turn_never_costs_the_quorum).alone(),
        scenario!(
            nodes::a_member_on_a_dead_node_is_replaced_and_its_remains_go_when_the_node_returns
        )
        .alone(),
        // Last: they take the operator itself away.
        scenario!(release::on_helm_3_a_release_comes_changes_and_goes_and_no_member_notices)
            .alone(),
        scenario!(release::on_helm_4_a_release_comes_changes_and_goes_and_no_member_notices)
            .alone(),
    ])
    .run()
}
