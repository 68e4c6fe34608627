//! An API server in memory, with just what the keeper asks of one: named reads, field-selected lists and watches, create, replace
//! under a resourceVersion, JSON patch. Counts writes.

#![allow(dead_code, clippy::unwrap_used, clippy::significant_drop_tightening)]

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

#[derive(Clone, Default)]
pub(crate) struct Village(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    version: u64,
    writes: usize,
    /// By collection and name.
    objects: BTreeMap<(String, String), Value>,
    watchers: HashMap<(String, String), Vec<UnboundedSender<Value>>>,
}

impl State {
    fn put(&mut self, at: &(String, String), mut object: Value, kind: &str) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(at.clone(), object.clone());
        self.tell(at, &json!({"type": kind, "object": object}));
        object
    }

    fn tell(&mut self, at: &(String, String), event: &Value) {
        for watcher in self.watchers.entry(at.clone()).or_default() {
            let _gone = watcher.send(event.clone());
        }
    }
}

impl Village {
    pub(crate) fn client(&self) -> Client {
        let village = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let village = village.clone();
            async move { Ok::<_, Infallible>(village.answer(request).await) }
        });
        Client::new(service, "default")
    }

    /// A person's write: it is not counted.
    pub(crate) fn set(&self, collection: &str, name: &str, object: Value) {
        let at = (collection.to_owned(), name.to_owned());
        self.0.lock().unwrap().put(&at, object, "MODIFIED");
    }

    pub(crate) fn delete(&self, collection: &str, name: &str) {
        let at = (collection.to_owned(), name.to_owned());
        let mut state = self.0.lock().unwrap();
        let object = state.objects.remove(&at).unwrap();
        state.tell(&at, &json!({"type": "DELETED", "object": object}));
    }

    pub(crate) fn get(&self, collection: &str, name: &str) -> Option<Value> {
        let at = (collection.to_owned(), name.to_owned());
        self.0.lock().unwrap().objects.get(&at).cloned()
    }

    pub(crate) fn writes(&self) -> usize {
        self.0.lock().unwrap().writes
    }

    async fn answer(&self, request: Request<Body>) -> Answer {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let query = head.uri.query().unwrap_or_default().to_owned();
        let path = head.uri.path().to_owned();
        let selected = query
            .split('&')
            .find_map(|part| part.strip_prefix("fieldSelector=metadata.name%3D"))
            .map(str::to_owned);
        if let Some(name) = selected {
            let at = (path, name);
            return if query.contains("watch=true") {
                self.watch(&at)
            } else {
                self.list(&at)
            };
        }
        match head.method {
            Method::POST => self.create(&path, &body),
            method => {
                let (collection, name) = path.rsplit_once('/').unwrap();
                let at = (collection.to_owned(), name.to_owned());
                match method {
                    Method::GET => self.read(&at),
                    Method::PUT => self.replace(&at, &body),
                    Method::PATCH => self.patch(&at, &body),
                    _ => status(StatusCode::METHOD_NOT_ALLOWED, "no"),
                }
            }
        }
    }

    fn read(&self, at: &(String, String)) -> Answer {
        match self.0.lock().unwrap().objects.get(at) {
            Some(object) => reply(StatusCode::OK, object),
            None => status(StatusCode::NOT_FOUND, "secrets not found"),
        }
    }

    fn list(&self, at: &(String, String)) -> Answer {
        let state = self.0.lock().unwrap();
        let items: Vec<&Value> = state.objects.get(at).into_iter().collect();
        let list = json!({"apiVersion": "v1", "kind": "List",
            "metadata": {"resourceVersion": state.version.to_string()}, "items": items});
        reply(StatusCode::OK, &list)
    }

    /// Nothing is missed between list and watch: nobody writes while the keeper turns from the one to the other, but for a test
    /// that says so; then the object as it is now is told first.
    fn watch(&self, at: &(String, String)) -> Answer {
        let (sender, receiver) = unbounded_channel();
        let mut state = self.0.lock().unwrap();
        if let Some(object) = state.objects.get(at) {
            let _open = sender.send(json!({"type": "MODIFIED", "object": object}));
        }
        state.watchers.entry(at.clone()).or_default().push(sender);
        let events = futures::stream::unfold(receiver, next_line);
        Response::new(StreamBody::new(events).boxed_unsync())
    }

    fn create(&self, collection: &str, body: &[u8]) -> Answer {
        let object: Value = serde_json::from_slice(body).unwrap();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let at = (collection.to_owned(), name);
        let mut state = self.0.lock().unwrap();
        if state.objects.contains_key(&at) {
            return status(StatusCode::CONFLICT, "secrets already exists");
        }
        state.writes += 1;
        reply(StatusCode::CREATED, &state.put(&at, object, "ADDED"))
    }

    fn replace(&self, at: &(String, String), body: &[u8]) -> Answer {
        let object: Value = serde_json::from_slice(body).unwrap();
        let mut state = self.0.lock().unwrap();
        match state.objects.get(at) {
            None => return status(StatusCode::NOT_FOUND, "secrets not found"),
            Some(held)
                if held["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] =>
            {
                return status(StatusCode::CONFLICT, "secrets changed");
            }
            Some(_) => {}
        }
        state.writes += 1;
        reply(StatusCode::OK, &state.put(at, object, "MODIFIED"))
    }

    fn patch(&self, at: &(String, String), body: &[u8]) -> Answer {
        let patch: json_patch::Patch = serde_json::from_slice(body).unwrap();
        let mut state = self.0.lock().unwrap();
        let Some(mut object) = state.objects.get(at).cloned() else {
            return status(StatusCode::NOT_FOUND, "not found");
        };
        if json_patch::patch(&mut object, &patch).is_err() {
            return status(StatusCode::UNPROCESSABLE_ENTITY, "test failed");
        }
        state.writes += 1;
        reply(StatusCode::OK, &state.put(at, object, "MODIFIED"))
    }
}

type Line = Result<Frame<Bytes>, Infallible>;

async fn next_line(
    mut events: UnboundedReceiver<Value>,
) -> Option<(Line, UnboundedReceiver<Value>)> {
    let event = events.recv().await?;
    let line = Bytes::from(format!("{event}\n"));
    Some((Ok(Frame::data(line)), events))
}

fn reply(status: StatusCode, body: &Value) -> Answer {
    let body = Full::new(Bytes::from(body.to_string())).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
}

fn status(code: StatusCode, message: &str) -> Answer {
    let reason = code.canonical_reason().unwrap_or_default().replace(' ', "");
    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message,
        "reason": reason, "code": code.as_u16()});
    reply(code, &body)
}
