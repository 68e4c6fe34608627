//! One writer and one reader that never rest, each on a connection of its own through the client Service; and somebody who
//! follows what is committed, for etcd may be told to forget it before the end.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use etcd_client::{Client, Compare, CompareOp, EventType, Txn, TxnOp, WatchOptions};
use tokio::{sync::watch, task::JoinHandle, time::timeout};

use super::{Committed, History, Outcome, Read, Tick, Write, judge};
use crate::{Cluster, cluster::Door, wait::until_answer};

const KEY: &str = "traffic";
/// Longer than an election: an answer that takes longer counts as lost.
const ANSWER: Duration = Duration::from_secs(3);
/// Between two requests of one client: hundreds a second would starve the other scenarios of a small machine.
const PACE: Duration = Duration::from_millis(5);

/// Traffic under way; `stop` ends it and judges what happened.
#[derive(Debug)]
pub struct Traffic {
    door: Door,
    stop: watch::Sender<bool>,
    acknowledged: Arc<AtomicU64>,
    gap: Arc<AtomicU64>,
    writer: JoinHandle<Written>,
    reader: JoinHandle<Vec<Read>>,
    followed: Followed,
    follower: JoinHandle<()>,
}

/// What was seen to be committed, as it happened.
type Followed = Arc<Mutex<Vec<Committed>>>;

#[derive(Debug, Clone, Copy)]
pub struct Summary {
    pub acknowledged: usize,
    pub unknown: usize,
    pub reads: usize,
    /// The longest time without an acknowledged write.
    pub longest_gap: Duration,
}

impl fmt::Display for Summary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            acknowledged,
            unknown,
            reads,
            longest_gap,
        } = self;
        write!(
            formatter,
            "{acknowledged} writes acknowledged and 0 of them lost, {unknown} without an answer, {reads} reads, \
             longest gap in writes {:.2} s",
            longest_gap.as_secs_f64()
        )
    }
}

/// What a writer leaves.
#[derive(Debug)]
struct Written {
    writes: Vec<Write>,
    longest_gap: Duration,
}

impl Traffic {
    /// Starts on a key of its own, and returns once the first write is acknowledged.
    pub async fn start(cluster: &Cluster<'_>) -> anyhow::Result<Self> {
        let door = cluster.door().await?;
        let (stop, stopped) = watch::channel(false);
        let clock = Arc::new(AtomicU64::new(1));
        let acknowledged = Arc::new(AtomicU64::new(0));
        let gap = Arc::new(AtomicU64::new(0));
        let writer = Writer {
            connection: Connection::open(&door).await?,
            clock: Arc::clone(&clock),
            acknowledged: Arc::clone(&acknowledged),
            gap: Arc::clone(&gap),
            writes: Vec::new(),
        };
        let reader = tokio::spawn(keep_reading(
            Connection::open(&door).await?,
            clock,
            stopped.clone(),
        ));
        let followed = Followed::default();
        let follower = tokio::spawn(keep_following(door.clone(), Arc::clone(&followed)));
        let writer = tokio::spawn(writer.keep_writing(stopped));
        let traffic = Self {
            door,
            stop,
            acknowledged,
            gap,
            writer,
            reader,
            followed,
            follower,
        };
        traffic.goes_on().await?;
        Ok(traffic)
    }

    /// Waits for ten more acknowledged writes: the cluster serves *now*.
    pub async fn goes_on(&self) -> anyhow::Result<()> {
        let before = self.acknowledged.load(Ordering::SeqCst);
        until_answer("ten more writes to be acknowledged", PACE, || async {
            Ok((self.acknowledged.load(Ordering::SeqCst) >= before + 10).then_some(()))
        })
        .await
    }

    /// The longest time without an acknowledged write since this was last asked, up to the last one there was.
    pub fn gap_since_asked(&self) -> Duration {
        Duration::from_millis(self.gap.swap(0, Ordering::SeqCst))
    }

    /// Ends the traffic; an error is a broken promise of the store, or traffic that proves nothing.
    pub async fn stop(self) -> anyhow::Result<Summary> {
        self.stop.send_replace(true);
        let Written {
            writes,
            longest_gap,
        } = self.writer.await.context("the writer")?;
        let reads = self.reader.await.context("the reader")?;
        let mut client = self.door.open().await?;
        let committed = committed(&mut client, &self.followed)
            .await
            .context("reading what etcd kept")?;
        self.follower.abort();
        let history = History {
            writes,
            reads,
            committed,
        };
        let violations = judge(&history);
        ensure!(
            violations.is_empty(),
            "the store broke its promise: {violations:#?}"
        );
        let count = |wanted: fn(&Write) -> bool| {
            history.writes.iter().filter(|write| wanted(write)).count()
        };
        let summary = Summary {
            acknowledged: count(|write| matches!(write.outcome, Outcome::Acknowledged { .. })),
            unknown: count(|write| write.outcome == Outcome::Unknown),
            reads: history.reads.len(),
            longest_gap,
        };
        ensure!(
            summary.acknowledged > 0 && summary.reads > 0,
            "traffic that proves nothing: {summary:?}"
        );
        Ok(summary)
    }
}

fn tick(clock: &AtomicU64) -> Tick {
    clock.fetch_add(1, Ordering::SeqCst)
}

/// A connection through the Service. It stays with one member for as long as it lasts, so a client that gets no answer must
/// look for another: what a keep-alive does for a real one. A frozen member accepts, and says nothing.
struct Connection {
    door: Door,
    client: Client,
}

impl Connection {
    async fn open(door: &Door) -> anyhow::Result<Self> {
        Ok(Self {
            door: door.clone(),
            client: door.open().await?,
        })
    }

    /// Another connection, if it can be had now: the Service leads it to any member that is ready. As a careful application
    /// does, it reads its certificates again.
    async fn renew(&mut self) {
        if let Ok(Ok(client)) = timeout(ANSWER, self.door.try_to_open()).await {
            self.client = client;
        }
    }
}

struct Writer {
    connection: Connection,
    clock: Arc<AtomicU64>,
    acknowledged: Arc<AtomicU64>,
    /// In milliseconds.
    gap: Arc<AtomicU64>,
    writes: Vec<Write>,
}

impl Writer {
    async fn keep_writing(mut self, stopped: watch::Receiver<bool>) -> Written {
        let (mut last, mut longest_gap) = (Instant::now(), Duration::ZERO);
        // The revision to build on; unknown after a lost answer or a refusal, and then read first.
        let mut base = Some(0);
        let mut value = 0;
        let mut pace = tokio::time::interval(PACE);
        while !*stopped.borrow() {
            pace.tick().await;
            let Some(revision) = base else {
                base = self.revision_of_key().await;
                continue;
            };
            value += 1;
            let invoked = tick(&self.clock);
            let outcome = self.attempt(value, revision).await;
            base = match outcome {
                Outcome::Acknowledged { revision, .. } => {
                    self.acknowledged.fetch_add(1, Ordering::SeqCst);
                    let gap = last.elapsed();
                    longest_gap = longest_gap.max(gap);
                    let milliseconds = u64::try_from(gap.as_millis()).unwrap_or(u64::MAX);
                    self.gap.fetch_max(milliseconds, Ordering::SeqCst);
                    last = Instant::now();
                    Some(revision)
                }
                Outcome::Refused => None,
                Outcome::Unknown => {
                    self.connection.renew().await;
                    None
                }
            };
            self.writes.push(Write {
                value,
                invoked,
                outcome,
            });
        }
        Written {
            writes: self.writes,
            longest_gap: longest_gap.max(last.elapsed()),
        }
    }

    async fn attempt(&mut self, value: u64, base: i64) -> Outcome {
        let transaction = Txn::new()
            .when([Compare::mod_revision(KEY, CompareOp::Equal, base)])
            .and_then([TxnOp::put(KEY, value.to_string(), None)]);
        match timeout(ANSWER, self.connection.client.txn(transaction)).await {
            Ok(Ok(answer)) if answer.succeeded() => match answer.header() {
                Some(header) => Outcome::Acknowledged {
                    at: tick(&self.clock),
                    revision: header.revision(),
                },
                None => Outcome::Unknown,
            },
            Ok(Ok(_)) => Outcome::Refused,
            Ok(Err(_)) | Err(_) => Outcome::Unknown,
        }
    }

    async fn revision_of_key(&mut self) -> Option<i64> {
        let asking = self.connection.client.get(KEY, None);
        let Ok(Ok(answer)) = timeout(ANSWER, asking).await else {
            self.connection.renew().await;
            return None;
        };
        let entry = answer.kvs().first();
        Some(entry.map_or(0, etcd_client::KeyValue::mod_revision))
    }
}

async fn keep_reading(
    mut connection: Connection,
    clock: Arc<AtomicU64>,
    stopped: watch::Receiver<bool>,
) -> Vec<Read> {
    let mut reads = Vec::new();
    let mut pace = tokio::time::interval(PACE);
    while !*stopped.borrow() {
        pace.tick().await;
        let invoked = tick(&clock);
        // A read without an answer says nothing and promises nothing.
        let Ok(Ok(answer)) = timeout(ANSWER, connection.client.get(KEY, None)).await else {
            connection.renew().await;
            continue;
        };
        let Some(revision) = answer.header().map(etcd_client::ResponseHeader::revision) else {
            continue;
        };
        let value = match answer.kvs().first() {
            // A value that is no number was never written by us: u64::MAX is judged as from the future.
            Some(entry) => entry
                .value_str()
                .ok()
                .and_then(|text| text.parse().ok())
                .unwrap_or(u64::MAX),
            None => 0,
        };
        reads.push(Read {
            value,
            revision,
            invoked,
            returned: tick(&clock),
        });
    }
    reads
}

/// Follows every change of the key from the beginning on, and comes back where it left off.
async fn keep_following(door: Door, followed: Followed) {
    loop {
        let next = lock(&followed).last().map_or(1, |last| last.revision + 1);
        if let Ok(client) = door.open().await {
            let sink = |change| lock(&followed).push(change);
            // Forgotten before it was seen: whoever asks for it at the end is told so. Otherwise the next turn goes on.
            if let Ok(Some(_)) = changes(client, next, i64::MAX, sink).await {
                return;
            }
        }
    }
}

fn lock(followed: &Followed) -> std::sync::MutexGuard<'_, Vec<Committed>> {
    followed.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Every change of the key: what etcd itself still keeps, by watching it from the beginning up to now; and what it has been
/// told to forget, as it was seen when it was committed.
async fn committed(client: &mut Client, followed: &Followed) -> anyhow::Result<Vec<Committed>> {
    let now = client.get(KEY, None).await?;
    let Some(last) = now.kvs().first().map(etcd_client::KeyValue::mod_revision) else {
        return Ok(Vec::new());
    };
    let mut committed = Vec::new();
    let Some(kept_from) = changes(client.clone(), 1, last, |change| committed.push(change)).await?
    else {
        return Ok(committed);
    };
    until_answer("every change to have been followed", PACE, || async {
        let seen = lock(followed).last().map(|change| change.revision);
        Ok(seen.is_some_and(|seen| seen >= last).then_some(()))
    })
    .await?;
    committed = lock(followed)
        .iter()
        .copied()
        .filter(|change| change.revision < kept_from)
        .collect();
    let again = changes(client.clone(), kept_from, last, |change| {
        committed.push(change);
    })
    .await?;
    ensure!(
        again.is_none() || kept_from > last,
        "etcd forgets revisions while it is asked for them"
    );
    Ok(committed)
}

/// Hands over every change of the key from one revision to another. What etcd has forgotten ends it: then it says from which
/// revision on it still knows.
async fn changes(
    mut client: Client,
    from: i64,
    last: i64,
    mut sink: impl FnMut(Committed),
) -> anyhow::Result<Option<i64>> {
    let options = WatchOptions::new().with_start_revision(from);
    let mut stream = client.watch(KEY, Some(options)).await?;
    if from > last {
        return Ok(None);
    }
    loop {
        let Some(answer) = timeout(Duration::from_secs(30), stream.message())
            .await
            .context("etcd's own history")??
        else {
            bail!("etcd ended the watch before revision {last}");
        };
        if answer.compact_revision() > 0 {
            return Ok(Some(answer.compact_revision()));
        }
        ensure!(
            !answer.canceled(),
            "etcd cancelled the watch: {}",
            answer.cancel_reason()
        );
        for event in answer.events() {
            let entry = event.kv().context("an event without its key")?;
            ensure!(
                event.event_type() == EventType::Put,
                "the key was deleted at {}",
                entry.mod_revision()
            );
            let value = entry.value_str()?.parse().context("a value nobody wrote")?;
            sink(Committed {
                value,
                revision: entry.mod_revision(),
            });
            if entry.mod_revision() >= last {
                return Ok(None);
            }
        }
    }
}
