//! Shows each command before it runs it, and its output as it comes. Runs kubectl and helm; nothing is made up.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};

use crate::{command, operator::checkout};

#[derive(Debug)]
pub(super) struct Narrator {
    kubectl: PathBuf,
    helm: PathBuf,
    kubeconfig: PathBuf,
}

impl Narrator {
    pub(super) fn new(kubectl: &Path, helm: &Path, kubeconfig: &Path) -> Self {
        Self {
            kubectl: kubectl.into(),
            helm: helm.into(),
            kubeconfig: kubeconfig.into(),
        }
    }

    #[expect(
        clippy::unused_self,
        reason = "the narrator's voice, at one place with what it shows"
    )]
    pub(super) fn say(&self, sentence: &str) {
        println!("\n# {sentence}");
    }

    pub(super) fn helm(&self, words: &[&str]) -> Result<()> {
        announce("helm", words, None);
        succeed(&mut self.command(&self.helm, words))
    }

    /// Whether Helm knows that release; not shown.
    pub(super) fn installed(&self, release: &str, namespace: &str) -> bool {
        let status = ["status", release, "--namespace", namespace];
        command::run(&mut self.command(&self.helm, &status)).is_ok()
    }

    pub(super) fn kubectl(&self, words: &[&str]) -> Result<()> {
        announce("kubectl", words, None);
        succeed(&mut self.command(&self.kubectl, words))
    }

    /// Not shown: only looks something up.
    pub(super) fn kubectl_quietly(&self, words: &[&str]) -> Result<String> {
        command::output(&mut self.command(&self.kubectl, words))
    }

    /// Runs `watch` on the side until `wait` has ended.
    pub(super) fn kubectl_beside(&self, watch: &[&str], wait: &[&str]) -> Result<()> {
        announce("kubectl", &[watch, &["&"]].concat(), None);
        announce("kubectl", wait, None);
        let mut beside = self
            .command(&self.kubectl, watch)
            .spawn()
            .context("cannot start kubectl")?;
        let waited = succeed(&mut self.command(&self.kubectl, wait));
        // It may have ended by itself; either way it is not left behind.
        let _ = beside.kill();
        beside.wait()?;
        if waited.is_err() {
            self.explain(wait);
        }
        waited
    }

    /// A wait that failed says little by itself: show the resource and the events.
    fn explain(&self, wait: &[&str]) {
        let namespace: Vec<&str> = wait
            .iter()
            .skip_while(|word| **word != "--namespace")
            .copied()
            .collect();
        for words in [
            &["describe", "etcdcluster"][..],
            &["get", "pods"],
            &["get", "events"],
        ] {
            // The wait's own failure is what is reported in the end.
            let _ = self.kubectl(&[words, &namespace].concat());
        }
    }

    /// The manifest must be refused: the demonstration fails when it is not.
    pub(super) fn kubectl_refused(&self, words: &[&str], manifest: &str) -> Result<()> {
        announce("kubectl", words, Some(manifest));
        let mut child = self
            .command(&self.kubectl, words)
            .stdin(Stdio::piped())
            .spawn()
            .context("cannot start kubectl")?;
        child
            .stdin
            .take()
            .context("kubectl reads its input")?
            .write_all(manifest.as_bytes())?;
        ensure!(!child.wait()?.success(), "this should have been refused");
        Ok(())
    }

    /// Shows the output up to a line, and marks what it leaves out.
    pub(super) fn kubectl_until(&self, words: &[&str], end: &str) -> Result<()> {
        announce("kubectl", words, None);
        let text = self.kubectl_quietly(words)?;
        for line in text.lines().take_while(|line| !line.starts_with(end)) {
            println!("{line}");
        }
        if text.lines().any(|line| line.starts_with(end)) {
            println!("{end} …");
        }
        Ok(())
    }

    fn command(&self, program: &Path, words: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(checkout())
            .env("KUBECONFIG", &self.kubeconfig)
            .args(words);
        command
    }
}

fn announce(program: &str, words: &[&str], input: Option<&str>) {
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    match input {
        None => println!("$ {program} {}", words.join(" ")),
        Some(text) => println!("$ {program} {} <<'EOF'\n{text}EOF", words.join(" ")),
    }
}

/// As a shell would need it.
fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=:,&".contains(letter);
    if word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    if !status.success() {
        bail!("`{}` failed ({status})", command::line(command));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_shown_as_a_shell_would_take_it() {
        assert_eq!(quoted("--namespace=default"), "--namespace=default");
        assert_eq!(quoted(r"a\.b/c=d"), r"'a\.b/c=d'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
