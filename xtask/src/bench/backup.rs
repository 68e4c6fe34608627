//! `cargo xtask bench backup`: what a backup and a restore of much data take, in time and in memory, beside etcd's own tools.
//!
//! A real etcd on loopback is filled, once with bytes that cannot be compressed and once with such that are half text. In alternating rounds
//! `etcdctl snapshot save` and our agent save it, `etcdutl snapshot restore` and our agent restore it. The tools read and write a file on the
//! disk; the agent's other end is a server that speaks S3 over TLS, so it sends or fetches all of it besides. A restore
//! is told the SHA-256 of what was inspected before, as the controller tells it.

mod agent;
mod filling;

use std::{
    env, fs,
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use etcd_operator_api::orders::Report;

use self::{agent::Pod, filling::Kind};
use super::table::{Row, Table};
use crate::{
    cache::{self, Cache},
    command, images,
    programs::{self, Built, ETCD_OF_THE_CONTROL_PLANE, Program},
    progress,
};

/// The most that is fine of the tool's time: nine tenths of its throughput.
const MOST: f64 = 1.11;
/// How long a server may take to listen.
const START: Duration = Duration::from_secs(30);
/// Where the S3 server keeps things, if there is room: a store is another machine, and must not write to the disk that is measured.
const MEMORY: &str = "/dev/shm";

#[derive(Debug, Clone, clap::Args)]
pub(super) struct Args {
    /// How much data there is, in MiB
    #[arg(long, default_value_t = 2048, value_parser = clap::value_parser!(u64).range(16..=7168))]
    mebibytes: u64,
    /// How many times each is done; the median is shown
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Only this kind of data (may be given more than once)
    #[arg(long, value_enum)]
    data: Vec<Kind>,
}

pub(super) fn run(args: &Args) -> Result<()> {
    images::operator_image()?;
    let version = Program::Etcd(ETCD_OF_THE_CONTROL_PLANE.to_owned());
    let programs = programs::ensure(&Cache::open()?, &[version.clone(), Program::Versitygw])?;
    let mut table = Table::default();
    for kind in [Kind::Random, Kind::Half] {
        if args.data.is_empty() || args.data.contains(&kind) {
            let bench = Bench::new(
                programs.get(&version)?,
                &programs.file(&Program::Versitygw)?,
            )?;
            bench.measure(kind, args, &mut table)?;
        }
    }
    println!("\n{table}");
    Ok(())
}

/// What is started and written; ended and removed with it.
struct Bench {
    folder: PathBuf,
    store: PathBuf,
    tools: Tools,
    etcd: Server,
    _s3: Server,
    pod: Pod,
}

/// etcd's own programs.
struct Tools {
    etcd: PathBuf,
    etcdctl: PathBuf,
    etcdutl: PathBuf,
}

/// A program that serves until it goes out of sight.
struct Server {
    process: Child,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = self.etcd.process.kill();
        for folder in [&self.folder, &self.store] {
            if let Err(error) = cache::remove(folder) {
                eprintln!("{error:#}");
            }
        }
    }
}

/// The four times of one round, in seconds, and the agent's peaks in megabytes.
#[derive(Default)]
struct Figures {
    tool_saves: Vec<f64>,
    saves: Vec<f64>,
    tool_restores: Vec<f64>,
    restores: Vec<f64>,
    saving: Vec<f64>,
    restoring: Vec<f64>,
}

impl Bench {
    fn new(etcd: &Built, versitygw: &Path) -> Result<Self> {
        let name = format!("etcd-operator-bench-{}", std::process::id());
        let folder = env::temp_dir().join(&name);
        let store = if Path::new(MEMORY).is_dir() {
            Path::new(MEMORY).join(&name)
        } else {
            folder.join("store")
        };
        fs::create_dir_all(&folder)?;
        fs::create_dir_all(store.join("buckets").join(agent::BUCKET))?;
        let tools = Tools {
            etcd: etcd.file("etcd"),
            etcdctl: etcd.file("etcdctl"),
            etcdutl: etcd.file("etcdutl"),
        };
        let pod = Pod::new(&folder.join("pod"), &tools.etcdutl)?;
        let s3 = agent::start_store(versitygw, &store, &folder, &pod)?;
        let pod = pod.with_store(s3.port);
        let etcd = serve(&tools.etcd, &folder.join("etcd"), &folder)?;
        Ok(Self {
            folder,
            store,
            tools,
            etcd,
            _s3: s3,
            pod,
        })
    }

    fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.etcd.port)
    }

    fn measure(&self, kind: Kind, args: &Args, table: &mut Table) -> Result<()> {
        let words = kind.words();
        progress::step(
            &format!("Writing {} MiB of {words} to etcd", args.mebibytes),
            || filling::fill(self.etcd.port, kind, args.mebibytes),
        )?;
        let mut figures = Figures::default();
        let plain = self.folder.join("plain.db");
        let mut size = 0;
        for round in 1..=args.rounds {
            size = progress::step(&format!("Round {round} of {}", args.rounds), || {
                self.round(&plain, &mut figures)
            })?;
        }
        self.same()?;
        let of = |what: &str| format!("{what}, {} MB of {words}", size / 1_000_000);
        table.push(Row::beside(
            &of("save"),
            "s",
            figures.saves,
            ("etcdctl snapshot save", figures.tool_saves),
            MOST,
        ));
        table.push(Row::beside(
            &of("restore"),
            "s",
            figures.restores,
            ("etcdutl snapshot restore", figures.tool_restores),
            MOST,
        ));
        for (what, megabytes) in [("save", figures.saving), ("restore", figures.restoring)] {
            let figure = format!("{what}: peak memory");
            table.push(Row::alone(figure, "MB", megabytes, 64.0));
        }
        Ok(())
    }

    /// Each once; gives the size of the snapshot.
    fn round(&self, plain: &Path, figures: &mut Figures) -> Result<u64> {
        cache::remove(plain)?;
        let saved = timed(
            Command::new(&self.tools.etcdctl)
                .args(["--endpoints", &self.endpoint(), "snapshot", "save"])
                .args(["--command-timeout", "10m"])
                .arg(plain),
        )?;
        figures.tool_saves.push(saved);
        let ran = self.pod.save(&self.endpoint())?;
        let Report::Saved { facts, .. } = ran.report else {
            bail!("the agent says {:?} of a backup", ran.report);
        };
        figures.saves.push(ran.seconds);
        figures.saving.push(ran.megabytes);

        let (theirs, ours) = (self.folder.join("theirs"), self.pod.data());
        cache::remove(&theirs)?;
        cache::remove(&ours)?;
        let restored = timed(
            Command::new(&self.tools.etcdutl)
                .args(["snapshot", "restore"])
                .arg(plain)
                .arg("--data-dir")
                .arg(&theirs),
        )?;
        figures.tool_restores.push(restored);
        let ran = self.pod.restore(&facts.sha256)?;
        figures.restores.push(ran.seconds);
        figures.restoring.push(ran.megabytes);
        Ok(fs::metadata(plain)?.len())
    }

    /// What both have restored holds the same.
    fn same(&self) -> Result<()> {
        let hash = |data: PathBuf| {
            command::output(
                Command::new(&self.tools.etcdutl)
                    .args(["hashkv", "--write-out", "json"])
                    .arg(data.join("member/snap/db")),
            )
        };
        let (theirs, ours) = (hash(self.folder.join("theirs"))?, hash(self.pod.data())?);
        ensure!(
            theirs == ours,
            "etcdutl restored {theirs}, the agent {ours}"
        );
        Ok(())
    }
}

/// Seconds it takes, with nothing of what was before left to be written to the disk.
fn timed(command: &mut Command) -> Result<f64> {
    nix::unistd::sync();
    let begun = Instant::now();
    command::run(command)?;
    Ok(begun.elapsed().as_secs_f64())
}

/// An etcd of its own, with room for what is measured.
fn serve(program: &Path, data: &Path, logs: &Path) -> Result<Server> {
    let (port, peer) = (free_port()?, free_port()?);
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let mut command = Command::new(program);
    command
        .args(["--name", "bench", "--data-dir"])
        .arg(data)
        .args(["--listen-client-urls", &url(port)])
        .args(["--advertise-client-urls", &url(port)])
        .args(["--listen-peer-urls", &url(peer)])
        .args(["--initial-advertise-peer-urls", &url(peer)])
        .args(["--initial-cluster", &format!("bench={}", url(peer))])
        .args(["--quota-backend-bytes", &(8_u64 << 30).to_string()])
        // Filling it is not what is measured.
        .args(["--max-request-bytes", "4194304", "--unsafe-no-fsync"]);
    start(&mut command, port, &logs.join("etcd.log"))
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port())
}

/// Starts a server and waits until it listens.
fn start(command: &mut Command, port: u16, log: &Path) -> Result<Server> {
    let output = fs::File::create(log)?;
    let process = command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()
        .with_context(|| format!("starting {}", command::line(command)))?;
    let mut server = Server { process, port };
    let begun = Instant::now();
    loop {
        if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(server);
        }
        let ended = server.process.try_wait()?;
        if ended.is_some() || begun.elapsed() > START {
            bail!(
                "{} does not listen ({ended:?}):\n{}",
                command::line(command),
                command::tail(log, 15)
            );
        }
        thread::sleep(Duration::from_millis(20));
    }
}
