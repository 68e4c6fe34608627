//! Much data for etcd: written through its HTTP gateway, many keys in one transaction.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpStream},
};

use anyhow::{Result, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::json;

/// Of one value.
const VALUE: usize = 8 * 1024;
/// Values in a transaction; etcd takes no more operations than this.
const VALUES: usize = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Kind {
    /// Random bytes: the worst for compression
    Random,
    /// Half random bytes, half text that repeats
    Half,
}

impl Kind {
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Random => "random bytes",
            Self::Half => "half random bytes, half text",
        }
    }

    fn value(self, random: &mut Random) -> Vec<u8> {
        let mut value = Vec::with_capacity(VALUE);
        let noise = match self {
            Self::Random => VALUE,
            Self::Half => VALUE / 2,
        };
        while value.len() < noise {
            value.extend(random.next().to_le_bytes());
        }
        while value.len() < VALUE {
            let line = format!(
                "{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"settings-{}\"}}}}\n",
                random.next() % 1000
            );
            value.extend(line.bytes());
        }
        value.truncate(VALUE);
        value
    }
}

/// Xorshift: quick, the same in every run, and no compressor sees through it.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

pub(super) fn fill(port: u16, kind: Kind, mebibytes: u64) -> Result<()> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let transactions = mebibytes * 1024 * 1024 / (VALUE * VALUES) as u64;
    for transaction in 0..transactions {
        let puts: Vec<_> = (0..VALUES)
            .map(|number| {
                let key = format!("/registry/configmaps/{transaction:06}/{number:03}");
                let (key, value) = (
                    STANDARD.encode(key),
                    STANDARD.encode(kind.value(&mut random)),
                );
                json!({ "requestPut": { "key": key, "value": value } })
            })
            .collect();
        post(port, "/v3/kv/txn", &json!({ "success": puts }).to_string())?;
    }
    Ok(())
}

fn post(port: u16, path: &str, body: &str) -> Result<()> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    ensure!(
        answer.starts_with("HTTP/1.1 200"),
        "etcd refuses to be filled: {answer}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_length_and_are_text_where_they_are_to_be() {
        let mut random = Random(1);
        let text = |value: &[u8]| {
            let half = &value[VALUE / 2..];
            half.iter().all(u8::is_ascii)
        };
        let (noise, half) = (
            Kind::Random.value(&mut random),
            Kind::Half.value(&mut random),
        );
        assert_eq!((noise.len(), half.len()), (VALUE, VALUE));
        assert_eq!((text(&noise), text(&half)), (false, true));
    }
}
