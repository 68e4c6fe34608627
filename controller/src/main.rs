//! The controller's process: flags, start, wait for a signal.

use std::process::ExitCode;

use etcd_operator_controller::{Args, run};

fn main() -> ExitCode {
    etcd_operator_process::run(|args: Args, drain| run(args, drain))
}
