//! A connection on which a request's head, once begun, must be whole in time, and on which what we write must be taken in time.
//! Wraps a stream; pure but for the clock.
//!
//! hyper has one limit for both, the wait for a request and the wait for the rest of its head. The first must be long, since API
//! servers keep their connections; the second must be short, or a thousand slow senders would fill the house.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::TurnedAway;

/// Whether a request is being answered: then what is read is its body, which has a limit of its own.
#[derive(Clone, Debug, Default)]
pub(super) struct Answering(Arc<State>);

#[derive(Debug, Default)]
struct State {
    is_on: AtomicBool,
    /// How many heads have been whole so far.
    heads: AtomicUsize,
    /// What took too long, which the error that ends the connection does not say any more.
    late: OnceLock<TurnedAway>,
}

impl Answering {
    pub(super) fn start(&self) {
        self.0.heads.fetch_add(1, Ordering::Relaxed);
        self.0.is_on.store(true, Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        self.0.is_on.store(false, Ordering::Relaxed);
    }

    /// What took too long, if that has ended the connection.
    pub(super) fn late(&self) -> Option<TurnedAway> {
        self.0.late.get().copied()
    }

    fn ended_by(&self, why: TurnedAway) -> io::Error {
        let _first_counts = self.0.late.set(why);
        io::Error::new(io::ErrorKind::TimedOut, why.as_str())
    }

    fn is_on(&self) -> bool {
        self.0.is_on.load(Ordering::Relaxed)
    }

    fn heads(&self) -> usize {
        self.0.heads.load(Ordering::Relaxed)
    }
}

pub(super) struct Punctual<S> {
    stream: S,
    /// For a head; none where that is not looked after here.
    head: Option<Duration>,
    answer: Duration,
    answering: Answering,
    /// Runs from the first byte of a head.
    deadline: Option<Deadline>,
    /// Run while the peer takes nothing. What was written may still wait in TLS' own buffer, hence the second, which more to write
    /// does not stop.
    unwritten: Option<Pin<Box<Sleep>>>,
    unflushed: Option<Pin<Box<Sleep>>>,
}

struct Deadline {
    sleep: Pin<Box<Sleep>>,
    /// How many heads were whole before this one.
    before: usize,
}

impl<S> Punctual<S> {
    pub(super) fn new(
        stream: S,
        head: Option<Duration>,
        answer: Duration,
        answering: Answering,
    ) -> Self {
        Self {
            stream,
            head,
            answer,
            answering,
            deadline: None,
            unwritten: None,
            unflushed: None,
        }
    }
}

/// What a write came to, or that it has waited for too long.
fn in_time<T>(
    written: Poll<io::Result<T>>,
    waiting: &mut Option<Pin<Box<Sleep>>>,
    limit: Duration,
    answering: &Answering,
    cx: &mut Context<'_>,
) -> Poll<io::Result<T>> {
    if written.is_ready() {
        *waiting = None;
        return written;
    }
    waiting
        .get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)))
        .as_mut()
        .poll(cx)
        .map(|()| Err(answering.ended_by(TurnedAway::AnswerUnread)))
}

impl<S: AsyncRead + Unpin> AsyncRead for Punctual<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let heads = self.answering.heads();
        // The head it was for is whole.
        self.deadline.take_if(|deadline| deadline.before != heads);
        let Some(limit) = self.head.filter(|_| !self.answering.is_on()) else {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        };
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        match read {
            Poll::Ready(_) => {
                let begun = buffer.filled().len() > before;
                if begun && self.deadline.is_none() {
                    self.deadline = Some(Deadline {
                        sleep: Box::pin(tokio::time::sleep(limit)),
                        before: heads,
                    });
                }
                read
            }
            Poll::Pending => match &mut self.deadline {
                Some(deadline) => deadline
                    .sleep
                    .as_mut()
                    .poll(cx)
                    .map(|()| Err(self.answering.ended_by(TurnedAway::HeadTooSlow))),
                None => Poll::Pending,
            },
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Punctual<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let written = Pin::new(&mut this.stream).poll_write(cx, buffer);
        in_time(
            written,
            &mut this.unwritten,
            this.answer,
            &this.answering,
            cx,
        )
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let flushed = Pin::new(&mut this.stream).poll_flush(cx);
        in_time(
            flushed,
            &mut this.unflushed,
            this.answer,
            &this.answering,
            cx,
        )
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let shut = Pin::new(&mut this.stream).poll_shutdown(cx);
        in_time(shut, &mut this.unflushed, this.answer, &this.answering, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, buffers);
        in_time(
            written,
            &mut this.unwritten,
            this.answer,
            &this.answering,
            cx,
        )
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
