//! Files that are committed though they are derived from something else: written anew, or found stale. Touches the disk below the
//! checkout only.

use std::{fs, io, path::Path};

use anyhow::{Context, Result, bail};

/// A file as it should be; `None` says it should not exist.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// Relative to the checkout.
    pub(crate) path: String,
    pub(crate) contents: Option<String>,
}

impl Wanted {
    pub(crate) fn new(path: impl Into<String>, contents: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            contents: Some(contents.into()),
        }
    }
}

/// Writes what differs; or, where only a check is asked for, fails and names it and the command that writes it.
pub(crate) fn keep(root: &Path, files: Vec<Wanted>, check: bool, command: &str) -> Result<()> {
    let stale = stale(root, files)?;
    if check {
        if !stale.is_empty() {
            let names: Vec<&str> = stale.iter().map(|file| file.path.as_str()).collect();
            bail!("stale, run `{command}` and commit: {}", names.join(", "));
        }
        println!("generated files are up to date");
        return Ok(());
    }
    for file in &stale {
        write(root, file)?;
        println!("wrote {}", file.path);
    }
    if stale.is_empty() {
        println!("generated files were up to date");
    }
    Ok(())
}

/// Those of `files` that differ from what is on the disk.
fn stale(root: &Path, files: Vec<Wanted>) -> Result<Vec<Wanted>> {
    let mut stale = Vec::new();
    for file in files {
        let there = match fs::read_to_string(root.join(&file.path)) {
            Ok(contents) => Some(contents),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                return Err(error).with_context(|| format!("could not read {}", file.path));
            }
        };
        if there != file.contents {
            stale.push(file);
        }
    }
    Ok(stale)
}

fn write(root: &Path, file: &Wanted) -> Result<()> {
    let path = root.join(&file.path);
    let Some(contents) = &file.contents else {
        return fs::remove_file(&path).with_context(|| format!("could not remove {}", file.path));
    };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)
            .with_context(|| format!("could not make {}", folder.display()))?;
    }
    fs::write(&path, contents).with_context(|| format!("could not write {}", file.path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_file_is_named_by_a_check_and_written_otherwise() {
        let root = std::env::temp_dir().join(format!("etcd-operator-kept-{}", std::process::id()));
        let wanted = || vec![Wanted::new("folder/a", "new")];
        let checked = keep(&root, wanted(), true, "make it").unwrap_err();
        assert_eq!(
            checked.to_string(),
            "stale, run `make it` and commit: folder/a"
        );
        keep(&root, wanted(), false, "make it").unwrap();
        keep(&root, wanted(), true, "make it").unwrap();
        let unwanted = Wanted {
            path: "folder/a".to_owned(),
            contents: None,
        };
        keep(&root, vec![unwanted], false, "make it").unwrap();
        assert!(!root.join("folder/a").exists());
        fs::remove_dir_all(root).unwrap();
    }
}
