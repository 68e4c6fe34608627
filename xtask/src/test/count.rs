//! How many passed and failed, taken from what the tests themselves print. Passes that output on to our own.

use std::{
    fmt,
    io::{BufRead, BufReader, Read, Write, stdout},
    ops::AddAssign,
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result};

use crate::{command, progress};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
}

impl fmt::Display for Count {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} passed, {} failed", self.passed, self.failed)
    }
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

impl Count {
    /// Does one check and counts it.
    pub(crate) fn check(&mut self, name: &str, check: impl FnOnce() -> Result<()>) {
        let started = Instant::now();
        match check() {
            Ok(()) => {
                self.passed += 1;
                println!(
                    "test {name} ... ok ({})",
                    progress::elapsed(started.elapsed())
                );
            }
            Err(error) => self.failed(name, &error),
        }
    }

    pub(crate) fn failed(&mut self, name: &str, error: &anyhow::Error) {
        self.failed += 1;
        println!("test {name} ... FAILED\n{error:#}");
    }

    /// Runs tests that print as libtest does, showing their output as it comes.
    pub(crate) fn tests(&mut self, command: &mut Command) -> Result<()> {
        let line = command::line(command);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {line}"))?;
        let output = child
            .stdout
            .take()
            .with_context(|| format!("{line} has no output"))?;
        let mut counted = count(output, &mut stdout())?;
        let status = child.wait()?;
        // A compile error, or a process that ended before it printed its result.
        if !status.success() && counted.failed == 0 {
            counted.failed = 1;
            println!("`{line}` failed ({status})");
        }
        *self += counted;
        Ok(())
    }
}

/// Copies the output and adds up its result lines. A binary that began and never told its result counts as one failure.
fn count(output: impl Read, copy: &mut impl Write) -> Result<Count> {
    let mut total = Count::default();
    let mut unfinished = false;
    let mut reader = BufReader::new(output);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        copy.write_all(&line)?;
        let text = String::from_utf8_lossy(&line);
        if let Some(counted) = result(text.trim_end()) {
            total += counted;
            unfinished = false;
        } else if begins(text.trim_end()) {
            total.failed += usize::from(unfinished);
            unfinished = true;
        }
        line.clear();
    }
    total.failed += usize::from(unfinished);
    Ok(total)
}

/// `running 3 tests`
fn begins(line: &str) -> bool {
    let mut words = line.split(' ');
    words.next() == Some("running")
        && words
            .next()
            .is_some_and(|number| number.parse::<usize>().is_ok())
        && matches!(words.next(), Some("test" | "tests"))
        && words.next().is_none()
}

/// `test result: ok. 3 passed; 0 failed; …`
fn result(line: &str) -> Option<Count> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let number = |word: &str| {
        counts
            .split("; ")
            .find_map(|part| part.strip_suffix(word)?.trim_end().parse().ok())
    };
    Some(Count {
        passed: number("passed")?,
        failed: number("failed")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(output: &str) -> (usize, usize) {
        let mut copy = Vec::new();
        let count = count(output.as_bytes(), &mut copy).unwrap();
        assert_eq!(copy, output.as_bytes(), "the output is passed on as it is");
        (count.passed, count.failed)
    }

    #[test]
    fn the_results_of_all_binaries_are_added_up() {
        let output = "running 3 tests\ntest a ... ok\n\ntest result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
                      running 2 tests\ntest result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";
        assert_eq!(counted(output), (4, 1));
    }

    #[test]
    fn a_binary_that_ends_without_a_result_is_a_failure() {
        assert_eq!(counted("running 3 tests\ntest a ... ok\n"), (0, 1));
        let output =
            "running 1 test\nrunning 1 test\ntest result: ok. 1 passed; 0 failed; 0 ignored\n";
        assert_eq!(counted(output), (1, 1));
    }

    #[test]
    fn what_merely_looks_like_a_result_is_not_counted() {
        assert_eq!(
            counted("the test result: ok. 9 passed; 0 failed\nrunning 3 miles\n"),
            (0, 0)
        );
    }

    #[test]
    fn a_summary_has_exactly_the_form_that_is_read() {
        assert_eq!(
            Count {
                passed: 12,
                failed: 0
            }
            .to_string(),
            "12 passed, 0 failed"
        );
    }

    #[test]
    fn a_command_that_fails_without_a_result_is_one_failure() {
        let mut count = Count::default();
        count
            .tests(Command::new("sh").args(["-c", "exit 3"]))
            .unwrap();
        assert_eq!(
            count,
            Count {
                passed: 0,
                failed: 1
            }
        );
    }
}
