//! A steady stream of creations through the real API server, and the count of those that were not judged as they must be. Each is a
//! dry run: the whole of admission, and nothing left behind.

use std::{
    fmt,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use kube::{
    Api, Client, Config,
    api::{DynamicObject, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tokio::{
    sync::oneshot,
    task::{JoinHandle, JoinSet},
    time::{MissedTickBehavior, interval},
};

use crate::{Context, cluster::etcdclusters};

/// Fifty a second.
const PACE: Duration = Duration::from_millis(20);
/// How many of the failed are told of: they tend to say the same.
const TOLD: usize = 5;

/// Creations under way, one sound and one unsound after the other, until they are ended.
#[derive(Debug)]
pub struct Admissions {
    end: oneshot::Sender<()>,
    flow: JoinHandle<Tally>,
}

/// What came of them.
#[derive(Debug, Default)]
pub struct Tally {
    milliseconds: Vec<f64>,
    failed: Vec<String>,
    seconds: f64,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    /// Let in, with what it leaves unset filled in by the webhook.
    Sound,
    /// Refused by the webhook.
    Unsound,
}

impl Kind {
    fn spec(self) -> Value {
        match self {
            Self::Sound => json!({}),
            Self::Unsound => json!({"size": 4}),
        }
    }

    /// What is wrong with this answer.
    fn fault(self, answer: Result<DynamicObject, kube::Error>) -> Option<String> {
        match (self, answer) {
            (Self::Sound, Ok(object)) if object.data["spec"]["size"] == 3 => None,
            (Self::Unsound, Err(kube::Error::Api(status)))
                if status.message.contains("admission webhook")
                    && status.message.contains("must be odd") =>
            {
                None
            }
            (_, Ok(object)) => Some(format!("{self:?} was let in as {}", object.data)),
            (_, Err(error)) => Some(format!("{self:?}: {error}")),
        }
    }
}

impl Admissions {
    pub async fn begin(context: &Context) -> anyhow::Result<Self> {
        let kubeconfig = Kubeconfig::read_from(&context.environment().kubeconfig)?;
        let mut config =
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        // What fails once has failed.
        config.default_retry = false;
        let clusters = etcdclusters(Client::try_from(config)?, context.namespace());
        let mut objects = Vec::new();
        for kind in [Kind::Sound, Kind::Unsound] {
            let manifest = context.manifest("under-load", &kind.spec());
            objects.push((kind, serde_json::from_value(manifest)?));
        }
        let (end, ended) = oneshot::channel();
        Ok(Self {
            end,
            flow: tokio::spawn(flow(clusters, objects, ended)),
        })
    }

    /// Asks no more, and waits for the answers under way.
    pub async fn end(self) -> anyhow::Result<Tally> {
        let _ended_already = self.end.send(());
        self.flow.await.context("the creations ended by themselves")
    }
}

async fn flow(
    clusters: Api<DynamicObject>,
    objects: Vec<(Kind, DynamicObject)>,
    mut ended: oneshot::Receiver<()>,
) -> Tally {
    let began = Instant::now();
    let mut tally = Tally::default();
    let mut under_way = JoinSet::new();
    let mut ticks = interval(PACE);
    // A machine that was busy for a second must not be asked for all of it at once.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for (kind, object) in objects.into_iter().cycle() {
        tokio::select! {
            _ = &mut ended => break,
            _ = ticks.tick() => {}
        }
        let clusters = clusters.clone();
        under_way.spawn(async move {
            let dry_run = PostParams {
                dry_run: true,
                ..PostParams::default()
            };
            let asked = Instant::now();
            let answer = clusters.create(&dry_run, &object).await;
            (asked.elapsed(), kind.fault(answer))
        });
        while let Some(judged) = under_way.try_join_next() {
            tally.count(judged.map_err(|error| error.to_string()), began);
        }
    }
    while let Some(judged) = under_way.join_next().await {
        tally.count(judged.map_err(|error| error.to_string()), began);
    }
    tally.seconds = began.elapsed().as_secs_f64();
    tally.milliseconds.sort_unstable_by(f64::total_cmp);
    tally
}

impl Tally {
    fn count(&mut self, judged: Result<(Duration, Option<String>), String>, began: Instant) {
        let fault = match judged {
            Ok((took, fault)) => {
                self.milliseconds.push(took.as_secs_f64() * 1e3);
                fault
            }
            Err(panic) => Some(panic),
        };
        if let Some(fault) = fault {
            let at = began.elapsed().as_secs_f64();
            self.failed.push(format!("after {at:.1} s: {fault}"));
        }
    }

    /// Not one failed, and there were enough of them for that to mean something.
    pub fn is_flawless(&self) -> anyhow::Result<()> {
        let told = &self.failed[..self.failed.len().min(TOLD)];
        ensure!(self.failed.is_empty(), "{self}\n{}", told.join("\n"));
        ensure!(self.milliseconds.len() >= 200, "only {self}");
        Ok(())
    }

    /// The answer time that this part of all did not exceed; they are in order.
    fn quantile(&self, per_mille: usize) -> f64 {
        let last = self.milliseconds.len().saturating_sub(1);
        let at = last * per_mille / 1000;
        self.milliseconds.get(at).copied().unwrap_or(f64::NAN)
    }
}

impl fmt::Display for Tally {
    #[allow(clippy::cast_precision_loss, reason = "thousands")]
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asked = self.milliseconds.len();
        write!(
            formatter,
            "{asked} admissions, {:.0} a second, {} failed; p50 {:.1} ms, p99 {:.1} ms, longest {:.0} ms",
            asked as f64 / self.seconds,
            self.failed.len(),
            self.quantile(500),
            self.quantile(990),
            self.quantile(1000),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(milliseconds: &[f64], failed: &[&str]) -> Tally {
        Tally {
            milliseconds: milliseconds.to_vec(),
            failed: failed.iter().map(ToString::to_string).collect(),
            seconds: 2.0,
        }
    }

    #[test]
    fn one_failure_among_many_is_told_with_its_words() {
        let many = vec![1.0; 500];
        answered(&many, &[]).is_flawless().unwrap();
        let error = answered(&many, &["EOF"]).is_flawless().unwrap_err();
        assert!(error.to_string().contains("1 failed"), "{error}");
        assert!(error.to_string().contains("EOF"), "{error}");
    }

    #[test]
    fn a_handful_shows_nothing() {
        assert!(answered(&[1.0; 5], &[]).is_flawless().is_err());
    }

    #[test]
    fn quantiles_are_of_the_answers_in_order() {
        let tally = answered(&[1.0, 2.0, 3.0, 4.0, 100.0], &[]);
        let told = tally.to_string();
        assert!(told.contains("p50 3.0 ms"), "{told}");
        assert!(told.contains("longest 100 ms"), "{told}");
    }

    #[test]
    fn only_the_webhooks_own_verdict_is_right() {
        let object = |spec: Value| -> DynamicObject {
            serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": spec})).unwrap()
        };
        let refusal = |message: &str| {
            let status =
                json!({"status": "Failure", "message": message, "reason": "x", "code": 422});
            Err(kube::Error::Api(Box::new(
                serde_json::from_value(status).unwrap(),
            )))
        };
        let ours = "admission webhook \"x\" denied the request: spec.size: must be odd";
        assert_eq!(Kind::Sound.fault(Ok(object(json!({"size": 3})))), None);
        assert_eq!(Kind::Unsound.fault(refusal(ours)), None);
        assert!(Kind::Sound.fault(Ok(object(json!({})))).is_some());
        assert!(Kind::Sound.fault(refusal(ours)).is_some());
        assert!(
            Kind::Unsound
                .fault(Ok(object(json!({"size": 4}))))
                .is_some()
        );
        let failed = "failed calling webhook \"x\": EOF";
        assert!(Kind::Unsound.fault(refusal(failed)).is_some());
    }
}
