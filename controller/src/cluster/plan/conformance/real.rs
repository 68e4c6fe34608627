//! Real etcd processes on loopback.

use std::{
    collections::BTreeMap,
    env, fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    time::{Duration, Instant},
};

use etcd_client::{AlarmAction, AlarmOptions, AlarmType, Client, MemberAddOptions};

use super::{Outcome, Standing, scripts::Line};
use crate::{
    cluster::plan::model::etcd::Refusal,
    etcd::{self, AlarmKind, Answer, Endpoint, EtcdError},
};

/// How long real etcd may take to get where the model is at once: it counts members only after five seconds of connection.
const LONGEST: Duration = Duration::from_mins(1);
/// How long one call may take; without a leader etcd keeps a caller waiting for longer.
const CALL: Duration = Duration::from_secs(2);
const BETWEEN: Duration = Duration::from_millis(50);

struct Process {
    child: Option<Child>,
    client: u16,
    peer: u16,
}

pub(super) struct Real {
    program: PathBuf,
    folder: PathBuf,
    processes: BTreeMap<&'static str, Process>,
    /// Of members that were removed too.
    ids: BTreeMap<&'static str, u64>,
    /// By the last list there was.
    listed: Vec<&'static str>,
}

impl Drop for Real {
    fn drop(&mut self) {
        for process in self.processes.values_mut() {
            process.stop();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Process {
    fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn has_ended(&mut self) -> bool {
        let child = self.child.as_mut();
        child.is_none_or(|child| child.try_wait().unwrap().is_some())
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint {
            url: format!("http://127.0.0.1:{}", self.client),
            tls: None,
        }
    }

    fn peer_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.peer)
    }
}

/// Below the range from which the kernel takes ports for others, and not one that another script of this process has had.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 15_000 + u16::try_from(std::process::id() % 10_000).unwrap();
    loop {
        let port = first + NEXT.fetch_add(1, Ordering::Relaxed) % 7_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

impl Real {
    pub(super) fn new(program: &Path) -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("etcd-conformance-{}-{number}", std::process::id());
        let folder = env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        Self {
            program: program.to_owned(),
            folder,
            processes: BTreeMap::new(),
            ids: BTreeMap::new(),
            listed: Vec::new(),
        }
    }

    fn process(&mut self, name: &'static str) -> &mut Process {
        self.processes.entry(name).or_insert_with(|| Process {
            child: None,
            client: free_port(),
            peer: free_port(),
        })
    }

    fn initial_cluster(&mut self, names: &[&'static str]) -> String {
        let entries = names.iter().map(|name| {
            let url = self.process(name).peer_url();
            format!("{name}={url}")
        });
        entries.collect::<Vec<_>>().join(",")
    }

    fn spawn(&mut self, name: &'static str, initial_cluster: &str, state: &str) {
        let log = self.folder.join(format!("{name}.log"));
        let log = fs::File::options().create(true).append(true).open(log);
        let (program, data) = (self.program.clone(), self.folder.join(name));
        let process = self.process(name);
        let client = process.endpoint().url;
        let peer = process.peer_url();
        let child = Command::new(program)
            .arg("--name")
            .arg(name)
            .arg("--data-dir")
            .arg(data)
            .args(["--listen-client-urls", &client])
            .args(["--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer])
            .args(["--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", initial_cluster])
            .args(["--initial-cluster-state", state])
            .args(["--heartbeat-interval", "100", "--election-timeout", "1000"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.unwrap())
            .spawn();
        process.child = Some(child.unwrap());
    }

    /// Plays a line. Where etcd needs time to get there, it is given that time; what it refuses for good it refuses at once.
    pub(super) async fn play(&mut self, line: &Line, expected: &Outcome) -> Outcome {
        match *line {
            Line::Found(names) => {
                let all = self.initial_cluster(names);
                for name in names {
                    self.spawn(name, &all, "new");
                }
                Outcome::Done
            }
            Line::Join(name) => {
                let mut names = self.listed.clone();
                if !names.contains(&name) {
                    // Added, and with that the quorum was gone that could have listed it.
                    names.push(name);
                }
                let all = self.initial_cluster(&names);
                self.start(name, &all, expected).await
            }
            Line::Resume(name) => {
                let alone = self.initial_cluster(&[name]);
                self.start(name, &alone, expected).await
            }
            Line::Stop(name) => {
                self.stop(name).await;
                Outcome::Done
            }
            Line::Wipe(name) => {
                self.stop(name).await;
                fs::remove_dir_all(self.folder.join(name)).unwrap();
                Outcome::Done
            }
            _ => self.ask(line, expected).await,
        }
    }

    /// A start goes well when the member answers, and badly when its process ends.
    async fn start(&mut self, name: &'static str, all: &str, expected: &Outcome) -> Outcome {
        self.process(name).stop();
        self.spawn(name, all, "existing");
        let begun = Instant::now();
        loop {
            if self.process(name).has_ended() {
                return Outcome::DoesNotStart;
            }
            // One that was removed may answer until it hears of that.
            if *expected == Outcome::Done && self.answer(name).await.is_some() {
                return Outcome::Done;
            }
            assert!(begun.elapsed() < LONGEST, "{name} neither serves nor ends");
            tokio::time::sleep(BETWEEN).await;
        }
    }

    /// Kills a process, and waits until the others have noticed.
    async fn stop(&mut self, name: &'static str) {
        self.process(name).stop();
        let Some(id) = self.ids.get(name).copied() else {
            return;
        };
        let gone = format!("Remote=\"{id:x}\"}} 0");
        let begun = Instant::now();
        loop {
            let others = self.running();
            let noticed = others.iter().all(|other| {
                metrics(self.processes[other].client).lines().any(|line| {
                    line.starts_with("etcd_network_active_peers") && line.contains(&gone)
                })
            });
            if noticed {
                return;
            }
            assert!(begun.elapsed() < LONGEST, "nobody misses {name}");
            tokio::time::sleep(BETWEEN).await;
        }
    }

    fn running(&mut self) -> Vec<&'static str> {
        let mut running = Vec::new();
        for (name, process) in &mut self.processes {
            if !process.has_ended() {
                running.push(*name);
            }
        }
        running
    }

    async fn answer(&self, name: &str) -> Option<Answer> {
        let process = &self.processes[name];
        etcd::ask(&process.endpoint()).await.ok()
    }

    /// The leader where there is one, else anybody.
    async fn somebody(&mut self) -> &'static str {
        let running = self.running();
        let mut first = running[0];
        for name in &running {
            let Some(answer) = self.answer(name).await else {
                continue;
            };
            if answer.leader_id == answer.member_id {
                return name;
            }
            if !answer.learner {
                first = name;
            }
        }
        first
    }

    /// Names, and who is a learner; by the word of a member that is in touch with a quorum.
    async fn list(&mut self) -> Option<Vec<(&'static str, bool)>> {
        for name in self.running() {
            let Some(membership) = self.answer(name).await.and_then(|answer| answer.membership)
            else {
                continue;
            };
            let mut list = Vec::new();
            for member in membership {
                let mut known = self.processes.iter();
                let (name, _) = known
                    .find(|(_, process)| member.peer_urls.contains(&process.peer_url()))
                    .unwrap();
                self.ids.insert(name, member.id);
                list.push((*name, member.learner));
            }
            list.sort_unstable();
            self.listed = list.iter().map(|(name, _)| *name).collect();
            return Some(list);
        }
        None
    }

    /// How the cluster stands, once that is as expected or when the time for it is over.
    pub(super) async fn standing(&mut self, expected: Option<&Standing>) -> Option<Standing> {
        let begun = Instant::now();
        loop {
            let list = self.list().await;
            let mut leader = false;
            for name in self.running() {
                let answer = self.answer(name).await;
                leader |= answer.is_some_and(|answer| answer.leader_id != 0);
            }
            let of = |list: &[(&'static str, bool)], learner: bool| {
                let chosen = list.iter().filter(|(_, is)| *is == learner);
                chosen.map(|(name, _)| (*name).to_owned()).collect()
            };
            let found = list.map(|list| Standing {
                voters: of(&list, false),
                learners: of(&list, true),
                leader,
            });
            // Without a quorum nobody may believe to lead either: what it takes then would be done later.
            let settled = found.is_some() || !leader;
            if (found.as_ref() == expected && settled) || begun.elapsed() > LONGEST {
                return found;
            }
            tokio::time::sleep(BETWEEN).await;
        }
    }

    async fn ask(&mut self, line: &Line, expected: &Outcome) -> Outcome {
        let begun = Instant::now();
        let mut tries = 0;
        loop {
            tries += 1;
            let outcome = match Box::pin(self.call(line)).await {
                Ok(()) => Outcome::Done,
                Err(error) => Outcome::Refused(understand(line, &error)),
            };
            // It needs time to count members as connected, a learner time to catch up, a new leader time to be known.
            let passing = matches!(
                outcome,
                Outcome::Refused(Refusal::Unhealthy | Refusal::LearnerBehind | Refusal::NoQuorum)
            );
            // A call that was not heard in time may have been obeyed.
            let again = matches!(
                outcome,
                Outcome::Refused(
                    Refusal::PeerUrlExists | Refusal::UnknownMember | Refusal::NotALearner
                )
            );
            let meanwhile = again && tries > 1 && *expected == Outcome::Done;
            if meanwhile {
                return Outcome::Done;
            }
            if outcome == *expected || !passing || begun.elapsed() > LONGEST {
                return outcome;
            }
            tokio::time::sleep(BETWEEN).await;
        }
    }

    async fn call(&mut self, line: &Line) -> Result<(), EtcdError> {
        if let Line::Defragment(name) = *line
            && self.process(name).has_ended()
        {
            return Err(EtcdError::NoHeader);
        }
        let asked = match *line {
            Line::Defragment(name) => name,
            _ => self.somebody().await,
        };
        let endpoint = self.process(asked).endpoint();
        let mut client: Client = Box::pin(etcd::connect_for(&endpoint, CALL)).await?;
        let id = |name: &str| self.ids.get(name).copied().unwrap_or(1);
        match *line {
            Line::AddLearner(name) | Line::AddVoter(name) => {
                let url = self.process(name).peer_url();
                let options = MemberAddOptions::new();
                let options = match line {
                    Line::AddLearner(_) => options.with_is_learner(),
                    _ => options,
                };
                let added = client.member_add([url], Some(options));
                etcd::within_for(CALL, added).await?;
            }
            Line::Promote(name) => {
                etcd::within_for(CALL, client.member_promote(id(name))).await?;
            }
            Line::Remove(name) => {
                etcd::within_for(CALL, client.member_remove(id(name))).await?;
            }
            Line::MoveLeader(name) => {
                etcd::within_for(CALL, client.move_leader(id(name))).await?;
            }
            Line::Read => {
                etcd::within_for(CALL, client.get("key", None)).await?;
            }
            Line::Put => {
                etcd::within_for(CALL, client.put("key", "value", None)).await?;
            }
            Line::Defragment(_) => {
                etcd::within_for(CALL, client.defragment()).await?;
            }
            Line::Raise(kind, name) | Line::Disarm(kind, name) => {
                let action = match line {
                    Line::Raise(..) => AlarmAction::Activate,
                    _ => AlarmAction::Deactivate,
                };
                let kind = match kind {
                    AlarmKind::NoSpace => AlarmType::Nospace,
                    AlarmKind::Corrupt => AlarmType::Corrupt,
                };
                let mut of_member = AlarmOptions::new();
                of_member.with_member(id(name));
                let alarm = client.alarm(action, kind, Some(of_member));
                etcd::within_for(CALL, alarm).await?;
            }
            _ => {}
        }
        Ok(())
    }
}

/// etcd's words for why it refuses.
fn understand(line: &Line, error: &EtcdError) -> Refusal {
    let words = error.to_string();
    let known = [
        ("unhealthy cluster", Refusal::Unhealthy),
        ("not enough started members", Refusal::NotEnoughStarted),
        ("too many learner members", Refusal::TooManyLearners),
        ("Peer URLs already exists", Refusal::PeerUrlExists),
        ("member not found", Refusal::UnknownMember),
        ("in sync with leader", Refusal::LearnerBehind),
        ("can only promote a learner", Refusal::NotALearner),
        ("bad leader transferee", Refusal::BadTransferee),
        ("database space exceeded", Refusal::NoSpace),
        ("corrupt cluster", Refusal::Corrupt),
    ];
    let found = known.iter().find(|(known, _)| words.contains(known));
    match (found, line) {
        (Some((_, refusal)), _) => *refusal,
        (None, Line::Defragment(_)) => Refusal::NotRunning,
        (None, _) => Refusal::NoQuorum,
    }
}

/// What a member counts, over plain HTTP; nothing where it does not answer.
fn metrics(port: u16) -> String {
    let mut text = String::new();
    if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
        let _ = stream.set_read_timeout(Some(CALL));
        let _ = stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n");
        let _ = stream.read_to_string(&mut text);
    }
    text
}
