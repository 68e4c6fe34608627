//! Go builds: writes a main module, runs `go build`, keeps its log. Runs `go`, which downloads modules through its proxy.

use std::{fs, fs::File, path::Path, process::Command};

use anyhow::{Context, Result, bail};

use super::{
    coreos_era::{self, Mended},
    pins::{self, Program},
    toolchain::Toolchain,
};
use crate::{
    cache::{self, Cache},
    command,
};

/// Builds with one toolchain.
#[derive(Debug)]
pub struct Go {
    toolchain: Toolchain,
}

impl Go {
    pub fn new(toolchain: Toolchain) -> Self {
        Self { toolchain }
    }

    pub fn version(&self) -> &str {
        &self.toolchain.version
    }

    pub fn build(&self, cache: &Cache, program: &Program, folder: &Path) -> Result<()> {
        let log = cache.build_logs().join(format!("{}.log", program.folder()));
        fs::create_dir_all(cache.build_logs())?;
        cache::appear_whole(folder, |partial| {
            fs::create_dir_all(partial)?;
            self.build_into(cache, program, partial, &log)
        })
        .with_context(|| {
            format!(
                "{program} could not be built; the whole log is {}",
                log.display()
            )
        })
    }

    fn build_into(
        &self,
        cache: &Cache,
        program: &Program,
        folder: &Path,
        log: &Path,
    ) -> Result<()> {
        // One source folder is shared by the programs of a module, and `go build` writes its go.mod and go.sum.
        let _lock = cache.lock(&format!("source-{}", program.source_folder()), || {})?;
        let source = cache.sources().join(program.source_folder());
        fs::create_dir_all(&source)?;
        let go_mod = match program.whole_go_mod() {
            Some(whole) => {
                if let Some(mended) = coreos_era::mended(whole) {
                    self.mend(&mended, &source)?;
                }
                whole.to_owned()
            }
            None => self.main_module(program, &source)?,
        };
        fs::write(source.join("go.mod"), go_mod)?;
        if let Some(main) = program.main_source() {
            fs::write(source.join("main.go"), main)?;
        }
        let mut output = File::create(log)?;
        for wanted in program.outputs() {
            let mut build = self.go(&source);
            build
                .args([
                    "build",
                    "-trimpath",
                    "-ldflags",
                    &program.linker_flags(),
                    "-o",
                ])
                .arg(folder.join(wanted.file))
                .arg(&wanted.package);
            std::io::Write::write_all(
                &mut output,
                format!("$ {}\n", command::line(&build)).as_bytes(),
            )?;
            let status = build
                .stdout(output.try_clone()?)
                .stderr(output.try_clone()?)
                .status()?;
            if !status.success() {
                bail!(
                    "go build {} failed:\n{}",
                    wanted.package,
                    command::tail(log, 15)
                );
            }
        }
        Ok(())
    }

    fn main_module(&self, program: &Program, folder: &Path) -> Result<String> {
        let modules = program.modules();
        let mut replaced = vec![];
        if let (Some(staging), Some((path, version))) = (program.staging(), modules.first()) {
            // Asking for a module needs a main module, any, to stand in.
            fs::write(folder.join("go.mod"), pins::go_mod(&[], &[]))?;
            let theirs = command::output(self.go(folder).args([
                "list",
                "-m",
                "-f",
                "{{.GoMod}}",
                &format!("{path}@{version}"),
            ]))?;
            let theirs = fs::read_to_string(&theirs)
                .with_context(|| format!("cannot read the go.mod of {path} at {theirs}"))?;
            replaced = pins::staged_modules(&theirs)
                .into_iter()
                .map(|module| (module, format!("v{staging}")))
                .collect();
        }
        Ok(pins::go_mod(&modules, &replaced))
    }

    /// Copies a module beside `source`'s go.mod and puts its one line right.
    fn mend(&self, mended: &Mended, source: &Path) -> Result<()> {
        let (module, version) = (mended.module, mended.version);
        // Asking for a module needs a main module, any, to stand in.
        fs::write(source.join("go.mod"), pins::go_mod(&[], &[]))?;
        let wanted = format!("{module}@{version}");
        command::output(self.go(source).args(["mod", "download", &wanted]))?;
        let theirs = command::output(
            self.go(source)
                .args(["list", "-m", "-f", "{{.Dir}}", &wanted]),
        )?;
        let copy = source.join(mended.folder);
        if copy.exists() {
            fs::remove_dir_all(&copy)?;
        }
        copy_folder(Path::new(theirs.trim()), &copy)
            .with_context(|| format!("cannot copy {wanted} from {theirs}"))?;
        let file = copy.join(mended.file);
        let text = fs::read_to_string(&file)?;
        if text.matches(mended.wrong).count() != 1 {
            bail!("{wanted} does not have its known fault in {}", mended.file);
        }
        fs::write(&file, text.replace(mended.wrong, mended.right))?;
        // Its sources are older than modules: Go's cache made this file up, or left it out.
        Ok(fs::write(
            copy.join("go.mod"),
            format!("module {module}\n"),
        )?)
    }

    fn go(&self, folder: &Path) -> Command {
        let mut go = Command::new(&self.toolchain.program);
        go.current_dir(folder)
            .env("CGO_ENABLED", "0")
            .env("GOFLAGS", pins::GO_FLAGS)
            .env("GOWORK", "off")
            .env_remove("GOOS")
            .env_remove("GOARCH");
        go
    }
}

/// Files and folders as they are, but writable: Go keeps its downloads read-only.
fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::write(target, fs::read(entry.path())?)?;
        }
    }
    Ok(())
}
