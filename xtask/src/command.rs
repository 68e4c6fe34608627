//! Running other programs, with errors that show what the program said. Starts processes and waits for them.

use std::{
    env, fs,
    path::Path,
    process::{Command, Output, Stdio},
};

use anyhow::{Context, Result, bail};

/// The cargo that runs us, without the variables it set for us: build scripts look at some of them, and would build everything anew
/// each time that cargo is started by us after it was started by hand, or the other way round.
pub fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os() {
        let ours = name.to_str().is_some_and(|name| {
            name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
        });
        if ours {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// Runs to the end and gives its standard output.
pub fn output(command: &mut Command) -> Result<String> {
    let output = finished(command.stdin(Stdio::null()))?;
    Ok(String::from_utf8_lossy(&output.stdout)
        .trim_end()
        .to_owned())
}

/// Runs to the end; its output is shown only when it fails.
pub fn run(command: &mut Command) -> Result<()> {
    finished(command.stdin(Stdio::null())).map(drop)
}

/// Hands the terminal to the program; its exit code becomes ours.
pub fn hand_over(command: &mut Command) -> Result<std::process::ExitCode> {
    let status = command
        .status()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(1)
        .into())
}

fn finished(command: &mut Command) -> Result<Output> {
    let output = command
        .output()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    if !output.status.success() {
        let said = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
        bail!(
            "{} failed ({}):\n{}",
            line(command),
            output.status,
            last_lines(&String::from_utf8_lossy(&said), 40)
        );
    }
    Ok(output)
}

/// The command as one would type it.
pub fn line(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

/// The end of a log file, for an error message.
pub fn tail(path: &Path, lines: usize) -> String {
    fs::read(path)
        .map(|bytes| last_lines(&String::from_utf8_lossy(&bytes), lines))
        .unwrap_or_default()
}

pub fn last_lines(text: &str, lines: usize) -> String {
    let all: Vec<_> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    all.iter()
        .skip(all.len().saturating_sub(lines))
        .map(|line| format!("    {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_the_last_and_not_the_empty_ones() {
        assert_eq!(last_lines("a\nb\n\nc\n\n", 2), "    b\n    c");
        assert_eq!(last_lines("", 2), "");
    }

    #[test]
    fn a_failing_command_shows_what_it_said() {
        let error = run(Command::new("sh").args(["-c", "echo why >&2; exit 3"]))
            .unwrap_err()
            .to_string();
        assert!(error.contains("why") && error.contains('3'), "{error}");
    }
}
