//! The programs under test: started on one core with one certificate, and asked of the kernel what they take. Starts processes, ends them.

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use etcd_operator_certs::{CertificateAuthority, LeafRequest, Usage};
use jiff::Timestamp;
use nix::unistd::{SysconfVar, sysconf};
use serde_json::json;

use super::super::memory::resident;

/// The name in the certificate; both are called by it.
pub(super) const NAME: &str = "webhook.bench.svc";
const SERVER_CORE: usize = 0;
pub(super) const CLIENT_CORE: usize = 1;
const LIMIT: Duration = Duration::from_secs(20);

/// One certificate for both, and who trusts it.
#[derive(Debug)]
pub(super) struct Identity {
    folder: PathBuf,
}

impl Identity {
    pub(super) fn make(folder: &Path) -> Result<Self> {
        let now = Timestamp::now();
        let authority = CertificateAuthority::generate("bench", now, Duration::from_hours(24))?;
        let request = LeafRequest {
            common_name: NAME.to_owned(),
            names: vec![NAME.parse()?],
            usage: Usage::Server,
            lifetime: Duration::from_hours(12),
        };
        let leaf = authority.issue(&request, now)?;
        let folder = folder.join("tls");
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("tls.crt"), leaf.certificate_pem())?;
        fs::write(folder.join("tls.key"), leaf.key_pem())?;
        fs::write(folder.join("authority.crt"), authority.certificate_pem())?;
        Ok(Self { folder })
    }

    pub(super) fn authority(&self) -> PathBuf {
        self.file("authority.crt")
    }

    /// A file beside the certificate.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

pub(super) struct Subject {
    name: &'static str,
    command: Box<Starting>,
}

/// The command that serves with this certificate at this address.
type Starting = dyn Fn(&Identity, SocketAddr) -> Command;

impl Subject {
    /// As the chart starts it, but for its certificate, which it takes from files, and an API server that knows its version and
    /// nothing else.
    pub(super) fn ours(program: &Path, folder: &Path) -> Result<Self> {
        let kubeconfig = folder.join("kubeconfig");
        fs::write(&kubeconfig, kubeconfig_of(api_server()?).to_string())?;
        let program = program.to_owned();
        Ok(Self {
            name: "etcd-operator",
            command: Box::new(move |identity, address| {
                let mut command = pinned(&program, SERVER_CORE);
                command
                    .arg("--kubeconfig")
                    .arg(&kubeconfig)
                    .args(["--namespace", "bench", "--service-name", "webhook"])
                    .args([
                        "--health-listen",
                        "127.0.0.1:0",
                        "--listen",
                        &address.to_string(),
                    ])
                    .arg("--certificate-directory")
                    .arg(&identity.folder);
                command
            }),
        })
    }

    pub(super) fn yardstick(program: &Path) -> Self {
        let program = program.to_owned();
        Self {
            name: "controller-runtime",
            command: Box::new(move |identity, address| {
                let mut command = pinned(&program, SERVER_CORE);
                command
                    .args(["--port", &address.port().to_string()])
                    .arg("--cert-dir")
                    .arg(&identity.folder);
                command
            }),
        }
    }

    pub(super) fn start(&self, identity: &Identity) -> Result<Served> {
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let child = (self.command)(identity, address)
            .env_clear()
            .stdin(Stdio::null())
            // Each writes what it writes in service; where to is not what is measured.
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("starting {}", self.name))?;
        let mut served = Served {
            name: self.name,
            address,
            child,
        };
        let started = Instant::now();
        while TcpStream::connect(address).is_err() {
            if let Some(status) = served.child.try_wait()? {
                bail!("{} ended ({status}) before it listened", self.name);
            }
            if started.elapsed() > LIMIT {
                bail!("{} does not listen", self.name);
            }
            thread::sleep(Duration::from_millis(20));
        }
        // The first handshake needs the certificate, which may come a moment later.
        thread::sleep(Duration::from_millis(500));
        Ok(served)
    }
}

/// On one core, and ahead of whatever else the machine does, so that the two compared meet the same conditions. Both tools give
/// way to the program, so the process is the program's.
pub(super) fn pinned(program: &Path, core: usize) -> Command {
    let mut command = Command::new("chrt");
    command
        .args(["--fifo", "10", "taskset", "--cpu-list", &core.to_string()])
        .arg(program);
    command
}

/// A program that serves; it ends with this.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) name: &'static str,
    pub(super) address: SocketAddr,
    child: Child,
}

impl Served {
    pub(super) fn megabytes(&self) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        resident(&status).context("the kernel tells no VmRSS")
    }

    /// All its threads, in its own code and in the kernel's on its behalf.
    pub(super) fn cpu_seconds(&self) -> Result<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let ticks = ticks(&stat).context("the kernel tells no CPU time")?;
        let per_second = sysconf(SysconfVar::CLK_TCK)?.context("the kernel has no clock")?;
        #[allow(clippy::cast_precision_loss, reason = "ticks of a few seconds")]
        Ok(ticks as f64 / per_second as f64)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _ = self.child.wait();
    }
}

/// User and system time; the program's name before them may hold anything but ends with the last `)`.
fn ticks(stat: &str) -> Option<u64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

/// Tells its version to whoever asks anything. Its thread ends with this program.
fn api_server() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || tell_version(stream));
        }
    });
    Ok(address)
}

fn tell_version(mut stream: TcpStream) -> Result<()> {
    let version = json!({"major": "1", "minor": "36", "gitVersion": "v1.36.4", "gitCommit": "", "gitTreeState": "",
        "buildDate": "", "goVersion": "", "compiler": "", "platform": ""})
    .to_string();
    let mut buffer = [0; 8192];
    while stream.read(&mut buffer)? > 0 {
        write!(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{version}",
            version.len()
        )?;
    }
    Ok(())
}

fn kubeconfig_of(address: SocketAddr) -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": {"server": format!("http://{address}")}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        "users": [{"name": "bench", "user": {}}],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_past_a_name_with_blanks_and_brackets() {
        let stat = "12 (a (b) c) S 1 12 12 0 -1 4194304 1 2 3 4 250 50 0 0 20 0 1 0 99";
        assert_eq!(ticks(stat), Some(300));
        assert_eq!(ticks("nonsense"), None);
    }
}
