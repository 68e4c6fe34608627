//! The `etcd-operator-webhook` binary: flags in, library on.

use std::process::ExitCode;

use etcd_operator_webhook::{Flags, run};

fn main() -> ExitCode {
    etcd_operator_process::run::<Flags, _, _, _>(run)
}
