//! Progress a person can follow: what is being done, how far, for how long. Writes to standard error only.

use std::{
    io::{IsTerminal, Write, stderr},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;

/// Where nobody watches a terminal, say at this pace that it is still going on.
const REMINDER: Duration = Duration::from_mins(1);

/// Does `work` under a line that tells how long it has taken so far and, at the end, altogether.
pub fn step<T>(what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let started = Instant::now();
    let (finished, ticks) = mpsc::channel::<()>();
    let terminal = stderr().is_terminal();
    let label = what.to_owned();
    let ticker = thread::spawn(move || {
        if !terminal {
            say(&format!("{label} …"));
        }
        let pace = if terminal {
            Duration::from_secs(1)
        } else {
            REMINDER
        };
        loop {
            if terminal {
                let _ = write!(stderr(), "\r\x1b[K{label} … {}", elapsed(started.elapsed()));
                let _ = stderr().flush();
            }
            match ticks.recv_timeout(pace) {
                Err(RecvTimeoutError::Timeout) if !terminal => say(&format!(
                    "{label} … still at it after {}",
                    elapsed(started.elapsed())
                )),
                Err(RecvTimeoutError::Timeout) => {}
                _ => return,
            }
        }
    });
    let result = work();
    drop(finished);
    let _ = ticker.join();
    let start = if terminal { "\r\x1b[K" } else { "" };
    let outcome = if result.is_ok() { "done" } else { "failed" };
    let _ = writeln!(
        stderr(),
        "{start}{what} {outcome} in {}",
        elapsed(started.elapsed())
    );
    result
}

pub fn say(line: &str) {
    let _ = writeln!(stderr(), "{line}");
}

/// `4m32s`, `12s`, `0.8s`.
pub fn elapsed(time: Duration) -> String {
    match time.as_secs() {
        0..10 => format!("{:.1}s", time.as_secs_f64()),
        seconds @ 10..60 => format!("{seconds}s"),
        seconds => format!("{}m{:02}s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elapsed_time_is_short_to_read() {
        assert_eq!(elapsed(Duration::from_millis(840)), "0.8s");
        assert_eq!(elapsed(Duration::from_secs(42)), "42s");
        assert_eq!(elapsed(Duration::from_secs(272)), "4m32s");
    }
}
