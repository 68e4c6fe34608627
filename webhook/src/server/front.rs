//! What stands between a connection and the handler: is it a request that can be answered, and is there room for it?

use std::sync::Arc;

use etcd_operator_process::Drain;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::unsent::Unsent;
use super::{Answer, Handler, Limits, TurnedAway};
use crate::endpoint::Endpoint;

const KIB: usize = 1024;

/// What stands between a connection and the handler.
pub(super) struct Front<H> {
    pub(super) handler: Arc<H>,
    /// Room for bodies and answers, in KiB.
    budget: Arc<Semaphore>,
    pub(super) limits: Limits,
    pub(super) drain: Drain,
}

impl<H: Handler> Front<H> {
    pub(super) fn new(handler: Arc<H>, limits: Limits, drain: Drain) -> Self {
        Self {
            handler,
            budget: Arc::new(Semaphore::new(limits.body_budget / KIB)),
            limits,
            drain,
        }
    }

    pub(super) async fn respond(
        &self,
        request: Request<Incoming>,
        unsent: &Unsent,
    ) -> Response<Full<Bytes>> {
        let Some(endpoint) = Endpoint::at(request.uri().path()) else {
            return text(StatusCode::NOT_FOUND, "no such path");
        };
        if request.method() != Method::POST {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only POST");
            response
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("POST"));
            return response;
        }
        if !is_json(&request) {
            return text(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "Content-Type must be application/json",
            );
        }
        let _in_flight = InFlight::new(&*self.handler, endpoint);
        let largest = endpoint.largest_body();
        let announced = request.body().size_hint();
        if announced.lower() > largest as u64 {
            return self.too_large(largest);
        }
        let most = announced
            .upper()
            .and_then(|upper| usize::try_from(upper).ok())
            .map_or(largest, |upper| upper.min(largest));
        let permits = u32::try_from(most / KIB + 1).unwrap_or(u32::MAX);
        let deadline = Instant::now() + self.limits.body;
        let room = Arc::clone(&self.budget).acquire_many_owned(permits);
        let Ok(Ok(room)) = timeout_at(deadline, room).await else {
            self.handler.turned_away(TurnedAway::NoRoom);
            return text(
                StatusCode::SERVICE_UNAVAILABLE,
                "there was no room for the body in time",
            );
        };
        let body = Limited::new(request.into_body(), largest).collect();
        let Ok(body) = timeout_at(deadline, body).await else {
            self.handler.turned_away(TurnedAway::BodyTooSlow);
            return text(StatusCode::REQUEST_TIMEOUT, "the body took too long");
        };
        let body = match body {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => return self.too_large(largest),
            Err(error) => {
                return text(
                    StatusCode::BAD_REQUEST,
                    format!("cannot read body: {error}"),
                );
            }
        };
        match self.handler.answer(endpoint, body).await {
            Answer::Review(json) => reply(
                StatusCode::OK,
                "application/json",
                unsent.answer(json, room),
            ),
            Answer::BadRequest(why) => text(StatusCode::BAD_REQUEST, why),
        }
    }

    fn too_large(&self, largest: usize) -> Response<Full<Bytes>> {
        self.handler.turned_away(TurnedAway::BodyTooLarge);
        text(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body must not be larger than {largest} bytes"),
        )
    }
}

/// A request that is being served: however it ends, it is counted out again.
struct InFlight<'a, H: Handler> {
    handler: &'a H,
    endpoint: Endpoint,
}

impl<'a, H: Handler> InFlight<'a, H> {
    fn new(handler: &'a H, endpoint: Endpoint) -> Self {
        handler.began(endpoint);
        Self { handler, endpoint }
    }
}

impl<H: Handler> Drop for InFlight<'_, H> {
    fn drop(&mut self) {
        self.handler.ended(self.endpoint);
    }
}

fn is_json(request: &Request<Incoming>) -> bool {
    request
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .is_some_and(|media| media.trim().eq_ignore_ascii_case("application/json"))
}

fn text(status: StatusCode, why: impl Into<String>) -> Response<Full<Bytes>> {
    let mut why = why.into();
    why.push('\n');
    reply(status, "text/plain; charset=utf-8", why)
}

fn reply(status: StatusCode, media: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(media));
    response
}
