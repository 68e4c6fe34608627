//! What was asked of the API server, read from its audit log: the only place that also shows writes which
//! changed nothing and requests that were refused.

use std::{
    fs::File,
    io::{BufRead, BufReader, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub user: String,
    pub verb: String,
    pub resource: String,
    pub namespace: String,
    pub name: String,
    pub code: u64,
    /// By the authorizer. What admission refuses is answered 403 too, a write into a namespace that is going among it.
    pub forbidden: bool,
}

impl Request {
    pub fn writes(&self) -> bool {
        matches!(
            self.verb.as_str(),
            "create" | "update" | "patch" | "delete" | "deletecollection"
        )
    }

    fn parse(line: &str) -> Option<Self> {
        let event: Value = serde_json::from_str(line).ok()?;
        // Of a request's stages the last alone carries the answer's code.
        if event["stage"] != "ResponseComplete" {
            return None;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let object = &event["objectRef"];
        let resource = match object["subresource"].as_str() {
            Some(subresource) => format!("{}/{subresource}", text(&object["resource"])),
            None => text(&object["resource"]),
        };
        Some(Self {
            user: text(&event["user"]["username"]),
            verb: text(&event["verb"]),
            resource,
            namespace: text(&object["namespace"]),
            name: text(&object["name"]),
            code: event["responseStatus"]["code"].as_u64().unwrap_or_default(),
            forbidden: event["annotations"]["authorization.k8s.io/decision"] == "forbid",
        })
    }
}

impl std::fmt::Display for Request {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            user,
            verb,
            resource,
            namespace,
            name,
            code,
            forbidden: _,
        } = self;
        write!(
            formatter,
            "{user}: {verb} {resource} {namespace}/{name} → {code}"
        )
    }
}

/// A reader that starts at a place in the log and goes on from there.
#[derive(Debug, Clone)]
pub struct Requests {
    path: PathBuf,
    position: u64,
}

impl Requests {
    pub fn from_now(log: &Path) -> anyhow::Result<Self> {
        let length = log
            .metadata()
            .with_context(|| format!("the audit log {}", log.display()))?
            .len();
        Ok(Self {
            path: log.to_owned(),
            position: length,
        })
    }

    /// The requests answered since the last call, whole lines only.
    pub fn since(&mut self) -> anyhow::Result<Vec<Request>> {
        let mut file = File::open(&self.path)
            .with_context(|| format!("the audit log {}", self.path.display()))?;
        // A log shorter than what was read of it has been rotated: what follows is in the new one.
        if file.metadata()?.len() < self.position {
            self.position = 0;
        }
        file.seek(SeekFrom::Start(self.position))?;
        let mut reader = BufReader::new(file);
        let mut requests = Vec::new();
        let mut line = String::new();
        loop {
            line.clear();
            let read = reader.read_line(&mut line)?;
            if read == 0 || !line.ends_with('\n') {
                return Ok(requests);
            }
            self.position += read as u64;
            requests.extend(Request::parse(&line));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const COMPLETE: &str = r#"{"stage":"ResponseComplete","verb":"patch","user":{"username":"u"},"objectRef":{"resource":"pods","namespace":"n","name":"p","subresource":"status"},"responseStatus":{"code":403}}"#;

    #[test]
    fn only_a_finished_request_counts_and_its_subresource_is_named() {
        let request = Request::parse(COMPLETE).unwrap();
        assert_eq!(request.to_string(), "u: patch pods/status n/p → 403");
        assert!(request.writes());
        assert_eq!(
            Request::parse(&COMPLETE.replace("ResponseComplete", "RequestReceived")),
            None
        );
    }

    #[test]
    fn forbidden_is_what_the_authorizer_forbade_and_not_what_admission_refused() {
        assert!(!Request::parse(COMPLETE).unwrap().forbidden);
        let decided = COMPLETE.replace(
            r#""verb""#,
            r#""annotations":{"authorization.k8s.io/decision":"forbid"},"verb""#,
        );
        assert!(Request::parse(&decided).unwrap().forbidden);
    }

    #[test]
    fn a_line_still_being_written_is_read_once_it_is_whole() {
        let path = std::env::temp_dir().join(format!("audit-{}.log", std::process::id()));
        let mut file = File::create(&path).unwrap();
        let mut requests = Requests::from_now(&path).unwrap();
        file.write_all(COMPLETE.as_bytes()).unwrap();
        assert_eq!(requests.since().unwrap().len(), 0);
        file.write_all(b"\n").unwrap();
        assert_eq!(requests.since().unwrap().len(), 1);
        assert_eq!(requests.since().unwrap().len(), 0);
        std::fs::remove_file(path).unwrap();
    }
}
