//! The `etcd-operator-webhook` binary: flags in, library on.

use std::process::ExitCode;

use etcd_operator_webhook::{Flags, chores::Chore, run};

fn main() -> ExitCode {
    match Chore::asked_for(std::env::args_os()) {
        Some((chore, words)) => chore.run(words),
        None => etcd_operator_process::run::<Flags, _, _, _>(run),
    }
}
