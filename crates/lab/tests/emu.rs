//! Tests of the emulator with real kernels. They run as root, or as any user who may make user
//! namespaces and open /dev/net/tun. Elsewhere they report the missing permission and skip.
//!
//! `cargo test -p bentpipe-lab --test emu -- NAME` runs the tests whose names contain NAME.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

use bentpipe_lab::emu;

#[path = "emu/browser.rs"]
mod browser;
#[path = "emu/links.rs"]
mod links;
#[path = "emu/loads.rs"]
mod loads;
#[path = "emu/measured.rs"]
mod measured;
#[path = "emu/modem.rs"]
mod modem;
#[path = "emu/reach.rs"]
mod reach;
#[path = "emu/share.rs"]
mod share;
#[path = "emu/timed.rs"]
mod timed;
#[path = "emu/traffic.rs"]
mod traffic;
#[path = "emu/tuning.rs"]
mod tuning;
#[path = "emu/vanish.rs"]
mod vanish;

type Test = (&'static str, fn());

const TESTS: &[Test] = &[
    ("datagrams_cross_the_radio_link_in_both_ip_versions", reach::datagrams),
    ("segmented_datagrams_are_many_packets_to_the_model", reach::segmented),
    ("a_capture_has_every_packet_that_the_model_sees", reach::captured),
    ("tcp_runs_end_to_end_in_both_ip_versions", reach::tcp),
    ("tcp_bulk_crosses_a_limited_link_intact", reach::bulk),
    ("tcp_bulk_crosses_a_clean_link_intact", reach::clean_bulk),
    ("a_true_declaration_is_measured", measured::agrees),
    ("a_varying_link_is_measured_by_what_it_declares", measured::varying),
    ("a_true_declaration_is_measured_on_a_busy_machine", measured::busy),
    ("a_false_declaration_is_refused", measured::differs),
    ("commands_run_inside_their_host", reach::command),
    ("a_modem_is_discovered_on_its_segment", modem::discovered),
    ("passengers_traffic_crosses_both_gateways", traffic::crosses),
    ("a_class_keeps_to_its_ceiling_both_ways", traffic::ceilings),
    ("one_session_uses_two_emulated_radios", traffic::two_radios),
    ("mptcp_uses_two_emulated_radios", traffic::mptcp),
    ("sessions_without_leases_leave_the_kernels_cubic_its_share", share::with_the_kernel),
    ("an_initial_window_is_what_leaves_before_the_first_acknowledgement", tuning::initial_window),
    ("an_initial_window_holds_between_relays_too", tuning::between_relays),
    ("a_pause_starts_over_where_it_is_said_to", tuning::idle_restart),
    ("a_congestion_control_is_everybodys", tuning::congestion),
    ("windows_and_buffers_bound_the_rate", tuning::windows),
    ("fast_open_saves_a_round_trip", tuning::fast_open),
    ("other_users_of_the_link_are_counted_apart", tuning::others),
    ("every_protocol_loads_a_page_over_a_lossy_link", loads::protocols),
    ("connections_are_tried_again_and_dropped", loads::retries),
    ("a_first_packet_carries_a_request_where_tcp_may", loads::fast_open),
    ("models_open_about_as_many_connections_as_the_sites", loads::models),
    ("chromium_and_the_light_loader_load_the_same", loads::both),
    ("chromiums_own_quic_loads_a_page", browser::quic),
    ("chromium_loads_the_operators_page_in_a_round_trip", browser::pages),
    ("namespaces_vanish_with_the_testbed", vanish::with_the_testbed),
    ("programs_die_with_the_process", vanish::programs),
    ("many_testbeds_run_at_once", measured::many_testbeds),
    ("anybody_may_run_the_emulator", vanish::rootless),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let wanted: Vec<_> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
    if let Err(missing) = emu::enter() {
        println!("SKIPPED: the emulator cannot run here: {missing}");
        return ExitCode::SUCCESS;
    }
    if arguments.iter().any(|word| word == vanish::HOLD_A_TESTBED) {
        vanish::hold_a_testbed();
    }
    let mut failed = 0;
    for (name, test) in TESTS {
        if !wanted.is_empty() && !wanted.iter().any(|word| name.contains(word.as_str())) {
            continue;
        }
        let began = Instant::now();
        let passed = catch_unwind(AssertUnwindSafe(test)).is_ok();
        failed += u32::from(!passed);
        let verdict = if passed { "ok" } else { "FAILED" };
        println!("test {name} ... {verdict} ({:.1} s)", began.elapsed().as_secs_f64());
    }
    if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
