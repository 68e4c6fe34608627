//! How the two programs leave when they cannot work: one clear line on standard error, a non-zero exit, no backtrace.

use std::{env::temp_dir, fs, path::PathBuf};

use anyhow::{Context as _, ensure};
use etcd_operator_tests::{Context, Finished, Outcome, run};
use k8s_openapi::api::{authentication::v1::TokenRequest, core::v1::ServiceAccount};
use kube::api::PostParams;
use serde_json::{Value, json};
use tokio::{net::TcpListener, process::Command};

#[derive(Clone, Copy, Debug)]
enum Program {
    Webhook,
    Controller,
}

const BOTH: [Program; 2] = [Program::Webhook, Program::Controller];

impl Program {
    /// The program with every flag it needs, so that only what the scenario adds is wrong.
    fn command(self, context: &Context, kubeconfig: &PathBuf) -> Command {
        let (name, own): (_, &[&str]) = match self {
            Self::Webhook => (
                "etcd-operator-webhook",
                &[
                    "--listen=127.0.0.1:0",
                    "--service-name=webhook",
                    "--ca-secret=webhook-ca",
                ],
            ),
            Self::Controller => ("etcd-operator-controller", &["--identity=test"]),
        };
        let mut command = Command::new(context.environment().binaries.join(name));
        command.env_clear().env("RUST_BACKTRACE", "full");
        command
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["--namespace", context.namespace()])
            .args(own);
        command
    }
}

fn kubeconfig(context: &Context) -> &PathBuf {
    &context.environment().kubeconfig
}

fn leaves_with_one_line(program: Program, finished: &Finished, wanted: &[&str]) -> Outcome {
    ensure!(
        finished.code.is_some_and(|code| code != 0),
        "{program:?}: {finished}"
    );
    let lines: Vec<&str> = finished
        .stderr
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    ensure!(
        lines.len() == 1,
        "{program:?}: {} lines on standard error: {finished}",
        lines.len()
    );
    for noise in ["panicked", "backtrace", "RUST_BACKTRACE", "stack"] {
        ensure!(
            !finished.stderr.contains(noise) && !finished.stdout.contains("panicked"),
            "{program:?}: {finished}"
        );
    }
    for word in wanted {
        ensure!(
            finished.stderr.contains(word),
            "{program:?} does not say {word}: {finished}"
        );
    }
    Ok(())
}

pub(crate) async fn an_unknown_flag_is_one_line_on_stderr(context: &Context) -> Outcome {
    for program in BOTH {
        let mut command = program.command(context, kubeconfig(context));
        command.args(["--health-listen=127.0.0.1:0", "--no-such-flag"]);
        leaves_with_one_line(program, &run(command, None).await?, &["--no-such-flag"])?;
    }
    Ok(())
}

pub(crate) async fn a_bad_value_is_one_line_on_stderr(context: &Context) -> Outcome {
    for program in BOTH {
        for (flag, value) in [
            ("--log-format", "xml"),
            ("--health-listen", "nowhere"),
            ("--default-etcd-version", "newest"),
        ] {
            let mut command = program.command(context, kubeconfig(context));
            command.args([flag, value]);
            leaves_with_one_line(program, &run(command, None).await?, &[flag, value])?;
        }
        let mut command = program.command(context, &PathBuf::from("/nowhere/kubeconfig"));
        command.arg("--health-listen=127.0.0.1:0");
        leaves_with_one_line(
            program,
            &run(command, None).await?,
            &["/nowhere/kubeconfig"],
        )?;
    }
    Ok(())
}

pub(crate) async fn an_api_server_that_is_not_there_is_one_line_on_stderr(
    context: &Context,
) -> Outcome {
    // Bound but not listened to would hang; free and unbound refuses at once, as a stopped API server does.
    let port = TcpListener::bind("127.0.0.1:0").await?.local_addr()?.port();
    let server = format!("https://127.0.0.1:{port}");
    let file = Kubeconfig::write(context, "no-server", &server, &json!({}))?;
    for program in BOTH {
        let mut command = program.command(context, &file.0);
        command.arg("--health-listen=127.0.0.1:0");
        leaves_with_one_line(program, &run(command, None).await?, &[&port.to_string()])?;
    }
    Ok(())
}

pub(crate) async fn a_port_in_use_is_one_line_on_stderr(context: &Context) -> Outcome {
    let taken = TcpListener::bind("127.0.0.1:0").await?;
    let address = taken.local_addr()?.to_string();
    for program in BOTH {
        let mut command = program.command(context, kubeconfig(context));
        command.args(["--health-listen", &address]);
        leaves_with_one_line(program, &run(command, None).await?, &[&address])?;
    }
    let environment = context.environment();
    let mut command = Command::new(environment.binaries.join("etcd-operator-webhook"));
    command
        .env_clear()
        .arg("--kubeconfig")
        .arg(kubeconfig(context));
    command.args([
        "--namespace",
        context.namespace(),
        "--service-name=webhook",
        "--ca-secret=webhook-ca",
    ]);
    command.args(["--health-listen=127.0.0.1:0", "--listen", &address]);
    leaves_with_one_line(Program::Webhook, &run(command, None).await?, &[&address])
}

pub(crate) async fn a_missing_permission_is_one_line_on_stderr(context: &Context) -> Outcome {
    let accounts = context.api::<ServiceAccount>();
    let nobody: ServiceAccount = serde_json::from_value(json!({"metadata": {"name": "nobody"}}))?;
    accounts.create(&PostParams::default(), &nobody).await?;
    let request = TokenRequest::default();
    let token = accounts
        .create_token_request("nobody", &PostParams::default(), &request)
        .await?;
    let token = token.status.context("a token was asked for")?.token;

    let own: Value = serde_yaml_ng::from_str(&fs::read_to_string(kubeconfig(context))?)?;
    let cluster = own
        .pointer("/clusters/0/cluster")
        .context("the kubeconfig names a cluster")?;
    let server = cluster["server"]
        .as_str()
        .context("the kubeconfig names a server")?;
    let mut file = Kubeconfig::contents(server, &json!({"token": token}));
    file["clusters"][0]["cluster"] = cluster.clone();
    let file = Kubeconfig::store(context, "nobody", &file)?;
    for program in BOTH {
        let mut command = program.command(context, &file.0);
        command.arg("--health-listen=127.0.0.1:0");
        leaves_with_one_line(program, &run(command, None).await?, &["nobody"])?;
    }
    Ok(())
}

/// A kubeconfig of the scenario's own; removed with it.
struct Kubeconfig(PathBuf);

impl Kubeconfig {
    fn contents(server: &str, user: &Value) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {"server": server, "insecure-skip-tls-verify": true}}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        })
    }

    fn write(context: &Context, name: &str, server: &str, user: &Value) -> anyhow::Result<Self> {
        Self::store(context, name, &Self::contents(server, user))
    }

    fn store(context: &Context, name: &str, contents: &Value) -> anyhow::Result<Self> {
        let path = temp_dir().join(format!("{}-{name}.kubeconfig", context.namespace()));
        fs::write(&path, contents.to_string())?;
        Ok(Self(path))
    }
}

impl Drop for Kubeconfig {
    fn drop(&mut self) {
        // Left behind it is a small file in the temporary folder: not worth failing for.
        let _ = fs::remove_file(&self.0);
    }
}
