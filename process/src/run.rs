//! The whole of a `main`: flags, logging, one single-threaded runtime, signals, and one line on stderr when it ends badly.

use std::error::Error;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use crate::{CommonArgs, Drain, DrainTrigger, Signals, init_logging, one_line, usage_line};

/// Flags that contain the common ones.
pub trait HasCommonArgs {
    fn common(&self) -> &CommonArgs;
}

/// Exit code after a second signal: what a shell reports for a process ended by SIGTERM.
const ABORTED: u8 = 128 + 15;
/// Exit code for bad flags, as clap has it.
const USAGE: u8 = 2;

/// Parses the flags, starts logging and runs `work` until it ends, a drain included, or a second signal cuts it short.
///
/// One thread: each binary is I/O bound, and every further thread costs a malloc arena and a stack that idle memory would show.
pub fn run<Flags, Work, Running, E>(work: Work) -> ExitCode
where
    Flags: Parser + HasCommonArgs,
    Work: FnOnce(Flags, Drain) -> Running,
    Running: Future<Output = Result<(), E>>,
    E: Error + 'static,
{
    run_with(std::env::args_os(), work)
}

/// The same with these words for the command line, the program's name first.
pub fn run_with<Flags, Work, Running, E>(
    words: impl IntoIterator<Item = OsString>,
    work: Work,
) -> ExitCode
where
    Flags: Parser + HasCommonArgs,
    Work: FnOnce(Flags, Drain) -> Running,
    Running: Future<Output = Result<(), E>>,
    E: Error + 'static,
{
    let flags = match Flags::try_parse_from(words) {
        Ok(flags) => flags,
        Err(asked)
            if matches!(
                asked.kind(),
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
            ) =>
        {
            print!("{}", asked.render());
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("error: {}", usage_line(&error));
            return ExitCode::from(USAGE);
        }
    };
    let common = flags.common();
    if let Err(error) = init_logging(&common.log_level, common.log_format) {
        eprintln!("error: {}", one_line(&error));
        return ExitCode::from(USAGE);
    }
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // Only name resolution uses the blocking pool.
        .max_blocking_threads(2)
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error),
    };
    let outcome = runtime.block_on(async move {
        let signals = match Signals::register() {
            Ok(signals) => signals,
            Err(error) => return failed(&error),
        };
        let (trigger, drain) = DrainTrigger::new();
        tokio::select! {
            outcome = work(flags, drain) => match outcome {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => failed(&error),
            },
            () = signals.drain_then_abort(trigger) => ExitCode::from(ABORTED),
        }
    });
    // A blocking name look-up must not hold up the exit.
    runtime.shutdown_background();
    outcome
}

fn failed(error: &(dyn Error + 'static)) -> ExitCode {
    eprintln!("error: {}", one_line(error));
    ExitCode::FAILURE
}
