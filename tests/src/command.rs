//! Running a program to its end: what it said, and how it left.

use std::{process::Stdio, time::Duration};

use anyhow::{Context as _, bail, ensure};
use tokio::{io::AsyncWriteExt, process::Command, time::timeout};

/// Above any honest run of `kubectl` or `helm --wait`; a program that hangs fails the scenario, not the suite.
const LIMIT: Duration = Duration::from_mins(5);

#[derive(Debug)]
pub struct Finished {
    pub command: String,
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Finished {
    pub fn success(&self) -> bool {
        self.code == Some(0)
    }

    /// Its standard output, or an error that shows all it said.
    pub fn ok(self) -> anyhow::Result<String> {
        ensure!(self.success(), "{self}");
        Ok(self.stdout)
    }

    /// Its standard error, or an error because it was not refused.
    pub fn refused(self) -> anyhow::Result<String> {
        ensure!(!self.success(), "should have been refused: {self}");
        Ok(self.stderr)
    }
}

impl std::fmt::Display for Finished {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            command,
            code,
            stdout,
            stderr,
        } = self;
        match code {
            Some(code) => write!(formatter, "`{command}` left with {code}")?,
            None => write!(formatter, "`{command}` was ended by a signal")?,
        }
        write!(
            formatter,
            "\nstdout: {}\nstderr: {}",
            stdout.trim_end(),
            stderr.trim_end()
        )
    }
}

/// Runs `command` to its end, feeding it `input`.
pub async fn run(mut command: Command, input: Option<&str>) -> anyhow::Result<Finished> {
    let shown = shown(&command);
    command.stdin(if input.is_some() {
        Stdio::piped()
    } else {
        Stdio::null()
    });
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command
        .spawn()
        .with_context(|| format!("starting `{shown}`"))?;
    if let (Some(text), Some(mut stdin)) = (input, child.stdin.take()) {
        stdin
            .write_all(text.as_bytes())
            .await
            .with_context(|| format!("feeding `{shown}`"))?;
    }
    let Ok(output) = timeout(LIMIT, child.wait_with_output()).await else {
        bail!("`{shown}` still ran after {} s", LIMIT.as_secs());
    };
    let output = output.with_context(|| format!("waiting for `{shown}`"))?;
    Ok(Finished {
        command: shown,
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// The command as a person would type it: the program by its last name.
fn shown(command: &Command) -> String {
    let command = command.as_std();
    let program = std::path::Path::new(command.get_program());
    let program = program.file_name().unwrap_or(program.as_os_str());
    std::iter::once(program)
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}
