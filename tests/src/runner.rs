//! Plays a suite: beside each other what may be, alone what must be; prints as libtest does, so that whoever
//! counts libtest's lines counts ours.

use std::{
    io::Write,
    process::ExitCode,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow};
use clap::Parser;
use futures::{FutureExt, StreamExt, stream};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

use crate::{Context, Environment, GaveUp, Outcome, Requests, Scenario, environment, report};

/// No scenario of the path takes a tenth of this.
const LIMIT: Duration = Duration::from_mins(10);

#[derive(Debug, Parser)]
struct Arguments {
    /// Play only scenarios whose name contains one of these words
    filter: Vec<String>,
    /// How many scenarios run beside each other
    #[arg(long, default_value_t = 4)]
    jobs: usize,
    /// List the scenarios instead of playing them
    #[arg(long)]
    list: bool,
}

/// One tier's scenarios.
#[derive(Debug)]
pub struct Suite {
    name: &'static str,
    first: Scenario,
    scenarios: Vec<Scenario>,
}

/// How one playing of a scenario went; the report is empty where there is nothing to explain.
struct Played {
    outcome: Outcome,
    took: Duration,
    report: String,
}

enum Verdict {
    Passed,
    Failed,
}

impl Suite {
    /// `first` is played before all others, whatever the filter: it is what puts the operator there.
    pub fn new(name: &'static str, first: Scenario) -> Self {
        Self {
            name,
            first,
            scenarios: Vec::new(),
        }
    }

    #[must_use]
    pub fn with(mut self, scenarios: impl IntoIterator<Item = Scenario>) -> Self {
        self.scenarios.extend(scenarios);
        self
    }

    /// The suite's `main`.
    pub fn run(self) -> ExitCode {
        let environment = match Environment::from_process() {
            Ok(Some(environment)) => environment,
            Ok(None) => {
                println!("{}: needs a cluster: cargo xtask test", self.name);
                return ExitCode::SUCCESS;
            }
            Err(error) => return fatal(&error.context(environment::VARIABLE)),
        };
        let arguments = Arguments::parse();
        if arguments.list {
            for scenario in std::iter::once(&self.first).chain(&self.scenarios) {
                println!("{}::{}: test", self.name, scenario.name);
            }
            return ExitCode::SUCCESS;
        }
        let runtime = match tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
        {
            Ok(runtime) => runtime,
            Err(error) => return fatal(&error.into()),
        };
        match runtime.block_on(self.play(environment, &arguments)) {
            Ok(code) => code,
            Err(error) => fatal(&error),
        }
    }

    async fn play(
        self,
        environment: Environment,
        arguments: &Arguments,
    ) -> anyhow::Result<ExitCode> {
        let began = Instant::now();
        let stage = Arc::new(Stage::new(self.name, environment).await?);
        let total = self.scenarios.len();
        let chosen: Vec<Scenario> = self
            .scenarios
            .into_iter()
            .filter(|scenario| {
                let name = format!("{}::{}", self.name, scenario.name);
                arguments.filter.is_empty()
                    || arguments
                        .filter
                        .iter()
                        .any(|word| name.contains(word.as_str()))
            })
            .collect();
        let filtered_out = total - chosen.len();
        println!("\nrunning {} tests", chosen.len() + 1);
        if matches!(stage.play(self.first).await, Verdict::Passed) {
            let (alone, beside): (Vec<_>, Vec<_>) =
                chosen.into_iter().partition(|scenario| scenario.alone);
            stream::iter(beside)
                .for_each_concurrent(arguments.jobs.max(1), |scenario| {
                    stage.play(scenario).map(drop)
                })
                .await;
            for scenario in alone {
                stage.play(scenario).await;
            }
        } else {
            for scenario in chosen {
                stage.not_played(scenario);
            }
        }
        Ok(stage.sum_up(filtered_out, began.elapsed()))
    }
}

/// Where scenarios are played, and the count of how they went.
struct Stage {
    suite: &'static str,
    environment: Arc<Environment>,
    client: Client,
    began: Requests,
    entered: AtomicUsize,
    passed: AtomicUsize,
    again: AtomicUsize,
    failed: Mutex<Vec<String>>,
}

impl Stage {
    async fn new(suite: &'static str, environment: Environment) -> anyhow::Result<Self> {
        let kubeconfig = Kubeconfig::read_from(&environment.kubeconfig)?;
        let config =
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let client = Client::try_from(config)?;
        client
            .apiserver_version()
            .await
            .context("the API server does not answer")?;
        Ok(Self {
            suite,
            began: Requests::from_now(&environment.audit_log)?,
            environment: Arc::new(environment),
            client,
            entered: AtomicUsize::new(0),
            passed: AtomicUsize::new(0),
            again: AtomicUsize::new(0),
            failed: Mutex::default(),
        })
    }

    /// Plays a scenario, and once more if it gave up waiting: on a machine that others load too, a wait says little the first
    /// time and much the second. Whatever else fails (a lost write, a wrong answer) has failed.
    async fn play(&self, scenario: Scenario) -> Verdict {
        let first = self.play_once(scenario).await;
        let Err(error) = &first.outcome else {
            return self.tell(scenario, &first);
        };
        if gave_up(error) {
            println!(
                "{}::{} gave up waiting after {:.1} s and is played once more\n{}\n{}",
                self.suite,
                scenario.name,
                first.took.as_secs_f64(),
                told(error),
                first.report
            );
            self.again.fetch_add(1, Ordering::Relaxed);
            return self.tell(scenario, &self.play_once(scenario).await);
        }
        self.tell(scenario, &first)
    }

    async fn play_once(&self, scenario: Scenario) -> Played {
        let began = Instant::now();
        let namespace = self.namespace_for(scenario.name);
        let context = match Context::enter(
            Arc::clone(&self.environment),
            self.client.clone(),
            namespace,
            self.began.clone(),
        )
        .await
        {
            Ok(context) => context,
            Err(error) => {
                return Played {
                    outcome: Err(error.context("making the namespace")),
                    took: began.elapsed(),
                    report: String::new(),
                };
            }
        };
        let playing = {
            let context = context.clone();
            // A task of its own, so that a panic is this scenario's failure and no other's.
            tokio::spawn(async move { (scenario.play)(&context).await })
        };
        let stop = playing.abort_handle();
        let outcome = match tokio::time::timeout(LIMIT, playing).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(panic)) => Err(anyhow!(panic)),
            Err(_) => {
                stop.abort();
                Err(GaveUp(format!("still playing after {} s", LIMIT.as_secs())).into())
            }
        };
        let took = began.elapsed();
        let report = match &outcome {
            Ok(()) => String::new(),
            Err(_) => report::describe(&context).await,
        };
        // What has failed for good is kept for a look; what is played again must not load the machine while it is.
        let goes = outcome.as_ref().err().is_none_or(gave_up);
        let left = if goes {
            context.leave().await.context("deleting the namespace")
        } else {
            Ok(())
        };
        Played {
            outcome: outcome.and(left),
            took,
            report,
        }
    }

    /// What is not played has not passed.
    fn not_played(&self, scenario: Scenario) {
        let name = format!("{}::{}", self.suite, scenario.name);
        println!("test {name} ... FAILED (not played)");
        self.failed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(name);
    }

    /// Readable, unique, and at most 63 characters.
    fn namespace_for(&self, scenario: &str) -> String {
        let number = self.entered.fetch_add(1, Ordering::Relaxed);
        let words = scenario
            .rsplit("::")
            .next()
            .unwrap_or(scenario)
            .replace('_', "-");
        let words: String = words.chars().take(40).collect();
        format!(
            "t-{}-{:x}-{number}",
            words.trim_end_matches('-'),
            std::process::id()
        )
    }

    fn tell(&self, scenario: Scenario, played: &Played) -> Verdict {
        let name = format!("{}::{}", self.suite, scenario.name);
        let mut out = std::io::stdout().lock();
        let seconds = played.took.as_secs_f64();
        // A closed pipe is no reason to stop: the exit code still tells.
        match &played.outcome {
            Ok(()) => {
                self.passed.fetch_add(1, Ordering::Relaxed);
                let _ = writeln!(out, "test {name} ... ok ({seconds:.1} s)");
                Verdict::Passed
            }
            Err(error) => {
                let _ = writeln!(
                    out,
                    "test {name} ... FAILED ({seconds:.1} s)\n{}\n{}",
                    told(error),
                    played.report
                );
                self.failed
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(name);
                Verdict::Failed
            }
        }
    }

    fn sum_up(&self, filtered_out: usize, took: Duration) -> ExitCode {
        let passed = self.passed.load(Ordering::Relaxed);
        let failed = self
            .failed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if !failed.is_empty() {
            println!("\nfailures:");
            for name in &failed {
                println!("    {name}");
            }
        }
        let again = self.again.load(Ordering::Relaxed);
        if again > 0 {
            println!("\nplayed twice, because they gave up waiting at first: {again}");
        }
        let word = if failed.is_empty() { "ok" } else { "FAILED" };
        println!(
            "\ntest result: {word}. {passed} passed; {} failed; 0 ignored; 0 measured; {filtered_out} filtered out; \
             finished in {:.2}s",
            failed.len(),
            took.as_secs_f64()
        );
        if failed.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

fn gave_up(error: &anyhow::Error) -> bool {
    error.chain().any(<dyn std::error::Error>::is::<GaveUp>)
}

/// The error and its causes, one below the other. Not `{:?}`: where backtraces are on, they would bury it.
fn told(error: &anyhow::Error) -> String {
    let causes: Vec<String> = error.chain().map(ToString::to_string).collect();
    causes.join("\n  because: ")
}

fn fatal(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::FAILURE
}
