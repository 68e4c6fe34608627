//! Where the model and real etcd could differ: the same scripts are played on the model and on real etcd processes, and what
//! comes of every line is compared.
//!
//! `cargo xtask test` says where the programs are; a plain `cargo test` has none and says so. Processes listen on loopback
//! alone, keep their data in a folder that goes with them, and end with the test.

mod programs;
mod real;
mod scripts;

use std::{collections::BTreeMap, io::Write as _, thread};

use self::{
    programs::Programs,
    real::Real,
    scripts::{Line, SCRIPTS},
};
use super::model::etcd::{Begun, Data, Etcd, Refusal, Up};
use crate::cluster::{fixtures::id_of, observed::Start};

/// What came of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    Refused(Refusal),
    /// The process ends at once.
    DoesNotStart,
}

/// How the cluster stands after a line; nobody can say without a quorum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Standing {
    voters: Vec<String>,
    learners: Vec<String>,
    leader: bool,
}

/// The model, with processes and disks by name.
struct Modelled {
    etcd: Etcd,
    up: Up,
    disks: BTreeMap<&'static str, Data>,
}

/// How a process that is started by hand is told to start.
fn start_of(founders: &[&'static str], resumes: bool) -> Start {
    let initial_cluster = founders
        .iter()
        .map(|name| format!("{name}=http://{name}"))
        .collect::<Vec<_>>()
        .join(",");
    if resumes {
        Start::Resume { initial_cluster }
    } else if founders.is_empty() {
        Start::Join { initial_cluster }
    } else {
        Start::Bootstrap { initial_cluster }
    }
}

impl Modelled {
    fn new(strict: bool) -> Self {
        Self {
            etcd: Etcd::new(strict),
            up: Up::new(),
            disks: BTreeMap::new(),
        }
    }

    fn start(&mut self, name: &'static str, start: &Start) -> Outcome {
        let disk = self.disks.entry(name).or_default();
        match self.etcd.start(name, start, disk) {
            Begun::Refuses => return Outcome::DoesNotStart,
            Begun::Breaks(what) => panic!("the script breaks etcd: {what}"),
            Begun::Runs => {}
        }
        self.up.insert(id_of(name));
        self.etcd.form(&self.up);
        Outcome::Done
    }

    fn play(&mut self, line: &Line) -> Outcome {
        let result = match *line {
            Line::Found(names) => {
                for name in names {
                    self.start(name, &start_of(names, false));
                }
                Ok(())
            }
            Line::Join(name) => return self.start(name, &start_of(&[], false)),
            Line::Resume(name) => return self.start(name, &start_of(&[name], true)),
            Line::Stop(name) => {
                self.up.remove(&id_of(name));
                Ok(())
            }
            Line::Wipe(name) => {
                self.up.remove(&id_of(name));
                self.disks.insert(name, Data::default());
                Ok(())
            }
            Line::AddLearner(name) => self.etcd.add(&self.up, name, true),
            Line::AddVoter(name) => self.etcd.add(&self.up, name, false),
            Line::Promote(name) => self.etcd.promote(&self.up, id_of(name)),
            Line::Remove(name) => {
                let removed = self.etcd.remove(&self.up, id_of(name));
                if removed.is_ok() {
                    self.up.remove(&id_of(name));
                }
                removed
            }
            Line::MoveLeader(name) => self.etcd.move_leader(&self.up, id_of(name)),
            Line::Read => self.etcd.read(&self.up),
            Line::Put => self.etcd.put(&self.up),
            Line::Defragment(name) => self.etcd.defragment(&self.up, id_of(name)),
            Line::Raise(kind, name) => self.etcd.raise(&self.up, kind, id_of(name)),
            Line::Disarm(kind, name) => self.etcd.disarm(&self.up, kind, id_of(name)),
        };
        result.map_or_else(Outcome::Refused, |()| Outcome::Done)
    }

    fn standing(&mut self) -> Option<Standing> {
        self.etcd.elect(&self.up, |_| 0);
        self.etcd.read(&self.up).ok()?;
        let (learners, voters): (Vec<_>, Vec<_>) = self
            .etcd
            .members
            .values()
            .partition(|member| member.learner);
        let names = |members: Vec<&super::model::etcd::EtcdMember>| {
            let mut names: Vec<_> = members.iter().map(|member| member.name.clone()).collect();
            names.sort();
            names
        };
        Some(Standing {
            voters: names(voters),
            learners: names(learners),
            leader: self.etcd.leader.is_some(),
        })
    }
}

/// Plays one script on both, and tells the first difference.
async fn compare(version: &str, what: &str, script: &[Line], program: &std::path::Path) {
    let mut model = Modelled::new(programs::is_strict(version));
    let mut real = Real::new(program);
    for (number, line) in script.iter().enumerate() {
        let expected = model.play(line);
        let found = real.play(line, &expected).await;
        let place = format!("etcd {version}, {what}, line {}: {line:?}", number + 1);
        assert_eq!(
            found, expected,
            "{place}: real etcd on the left, the model on the right"
        );
        let stands = model.standing();
        let found = real.standing(stands.as_ref()).await;
        assert_eq!(
            found, stands,
            "{place}: real etcd on the left, the model on the right"
        );
    }
}

#[test]
fn the_model_of_etcd_and_real_etcd_do_the_same() {
    let Some(programs) = Programs::given() else {
        let _ = writeln!(
            std::io::stderr(),
            "no real etcd to compare the model with: `cargo xtask test --tier unit` brings it ({} unset)",
            programs::VARIABLE
        );
        return;
    };
    thread::scope(|scope| {
        for (version, program) in programs.iter() {
            // Two at a time: most of it is waiting for etcd, which counts a member only after five seconds.
            for half in [0, 1] {
                scope.spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread()
                        .enable_all()
                        .build()
                        .unwrap();
                    for (what, script) in SCRIPTS.into_iter().skip(half).step_by(2) {
                        runtime.block_on(compare(version, what, script, program));
                    }
                });
            }
        }
    });
    let _ = writeln!(
        std::io::stderr(),
        "{} scripts on etcd {}: the model does the same",
        SCRIPTS.len(),
        programs.versions().join(", ")
    );
}
