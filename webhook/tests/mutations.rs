//! Bodies that were reviews once: every example of the rules as the API server would send it, then bent, cut, spliced and nested, as many as
//! the time allows. `FUZZ_SECONDS=600 cargo test -p etcd-operator-webhook --test mutations -- --nocapture` for more than a moment of it.
//!
//! An answer goes back for each, nothing panics, and memory stays where it was.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "rig/reviews.rs"]
mod reviews;

use std::collections::BTreeSet;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use etcd_operator_api::Policy;
use etcd_operator_api::examples::breaking;
use etcd_operator_webhook::server::{Answer, Handler};
use etcd_operator_webhook::{Admission, Endpoint, Metrics};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};

/// More than any honest answer leaves behind, less than a leak of one byte in each of a hundred million.
const GROWTH: u64 = 32 << 10;

/// xorshift64*: chance that is the same every time, so that what was found is found again.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap() % bound.max(1)
    }

    fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// Every example as the API server sends it, with the path it is sent to.
fn seeds() -> Vec<(Endpoint, Vec<u8>)> {
    let mut seeds = Vec::new();
    for example in breaking() {
        let kind = example.kind().to_owned();
        let mut review = reviews::create_other(&kind, example.new["spec"].clone());
        review["request"]["object"] = example.new.clone();
        if let Some(old) = &example.old {
            review["request"]["operation"] = json!("UPDATE");
            review["request"]["oldObject"] = old.clone();
        }
        for step in ["mutate", "validate"] {
            let endpoint = Endpoint::at(&format!("/{step}-{}", kind.to_lowercase())).unwrap();
            seeds.push((endpoint, review.to_string().into_bytes()));
        }
        let conversion = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": {
            "uid": "u", "desiredAPIVersion": "etcd.database.coreos.com/v1alpha1", "objects": [example.new]}});
        seeds.push((Endpoint::Convert, conversion.to_string().into_bytes()));
    }
    for path in ["/mutate-scale", "/validate-scale"] {
        let review = reviews::scale("jane", 4, 3).to_string().into_bytes();
        seeds.push((Endpoint::at(path).unwrap(), review));
    }
    seeds
}

const NUMBERS: [&str; 8] = [
    "-1",
    "9223372036854775808",
    "1e400",
    "-0.0",
    "4294967296",
    "null",
    "[]",
    "\"\\ud800\"",
];

/// Bends `body` in one way.
fn bend(body: &mut Vec<u8>, other: &[u8], chance: &mut Chance) {
    let at = chance.below(body.len());
    match chance.below(9) {
        0 => body[at] ^= 1 << chance.below(8),
        1 => body[at] = u8::try_from(chance.below(256)).unwrap(),
        2 => body.truncate(at),
        3 => {
            let end = (at + 1 + chance.below(64)).min(body.len());
            body.drain(at..end);
        }
        4 => {
            let end = (at + 1 + chance.below(64)).min(body.len());
            let part = body[at..end].to_vec();
            body.splice(at..at, part);
        }
        // The beginning of one, the end of another.
        5 => {
            let from = chance.below(other.len());
            body.truncate(at);
            body.extend_from_slice(&other[from..]);
        }
        6 => {
            let deep = 1 + chance.below(400);
            body.splice(at..at, std::iter::repeat_n(*chance.of(b"[{\"("), deep));
        }
        // A whole value becomes another: from a colon to what ends it.
        7 | 8 => {
            let Some(colon) = body[at..].iter().position(|byte| *byte == b':') else {
                return;
            };
            let start = at + colon + 1;
            let length = body[start..]
                .iter()
                .position(|byte| b",}]".contains(byte))
                .unwrap_or(0);
            let value = chance.of(&NUMBERS).bytes();
            body.splice(start..start + length, value);
        }
        _ => unreachable!(),
    }
    if body.is_empty() {
        body.push(b'{');
    }
}

/// The most memory this process ever had, in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[test]
fn whatever_becomes_of_a_review_it_is_answered_and_leaves_no_memory_behind() {
    let admission = Admission {
        policy: Policy::default(),
        autoscalers: BTreeSet::from(["jane".to_owned()]),
        metrics: Metrics::register(&mut Registry::default()),
        surroundings: None,
    };
    let seconds = std::env::var("FUZZ_SECONDS").ok();
    let seconds: u64 = seconds.and_then(|text| text.parse().ok()).unwrap_or(2);
    let (seeds, mut chance) = (seeds(), Chance(0x9E37_79B9_7F4A_7C15));
    let (began, whole) = (Instant::now(), Duration::from_secs(seconds));
    let (mut bodies, mut answered, mut early) = (0_u64, 0_u64, None);
    while began.elapsed() < whole {
        for _ in 0..256 {
            let (endpoint, seed) = chance.of(&seeds);
            let mut body = seed.clone();
            for _ in 0..=chance.below(4) {
                bend(&mut body, &chance.of(&seeds).1.clone(), &mut chance);
            }
            // Now and then where it does not belong.
            let endpoint = match chance.below(16) {
                0 => *chance.of(&Endpoint::ALL),
                _ => *endpoint,
            };
            bodies += 1;
            let answering = pin!(admission.answer(endpoint, body.into()));
            let Poll::Ready(answer) = answering.poll(&mut Context::from_waker(Waker::noop()))
            else {
                panic!("an answer waited");
            };
            if let Answer::Review(json) = answer {
                answered += 1;
                let answer: Value = serde_json::from_slice(&json).unwrap();
                assert!(answer["response"]["uid"].is_string(), "{answer}");
            }
        }
        if early.is_none() && began.elapsed() * 10 > whole {
            early = Some(peak());
        }
    }
    let (early, late) = (early.unwrap_or_else(peak), peak());
    println!(
        "{bodies} bodies in {seconds} s, {answered} of them still reviews; peak memory {early} KiB after a tenth, {late} KiB at the end"
    );
    assert!(answered > 0 && answered < bodies);
    // The kernel counts pages loosely: the most there ever was may be told as less later.
    assert!(
        late.saturating_sub(early) <= GROWTH,
        "{early} KiB grew to {late} KiB"
    );
}
