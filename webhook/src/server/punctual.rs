//! A connection on which a request's head, once begun, must be whole in time. Wraps a stream; pure but for the clock.
//!
//! hyper has one limit for both, the wait for a request and the wait for the rest of its head. The first must be long, since API
//! servers keep their connections; the second must be short, or a thousand slow senders would fill the house.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// Whether a request is being answered: then what is read is its body, which has a limit of its own.
#[derive(Clone, Debug, Default)]
pub(super) struct Answering(Arc<State>);

#[derive(Debug, Default)]
struct State {
    is_on: AtomicBool,
    /// How many heads have been whole so far.
    heads: AtomicUsize,
}

impl Answering {
    pub(super) fn start(&self) {
        self.0.heads.fetch_add(1, Ordering::Relaxed);
        self.0.is_on.store(true, Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        self.0.is_on.store(false, Ordering::Relaxed);
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
    limit: Duration,
    answering: Answering,
    /// Runs from the first byte of a head.
    deadline: Option<Deadline>,
}

struct Deadline {
    sleep: Pin<Box<Sleep>>,
    /// How many heads were whole before this one.
    before: usize,
}

impl<S> Punctual<S> {
    pub(super) fn new(stream: S, limit: Duration, answering: Answering) -> Self {
        Self {
            stream,
            limit,
            answering,
            deadline: None,
        }
    }
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
        if self.answering.is_on() {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        match read {
            Poll::Ready(_) => {
                let begun = buffer.filled().len() > before;
                if begun && self.deadline.is_none() {
                    self.deadline = Some(Deadline {
                        sleep: Box::pin(tokio::time::sleep(self.limit)),
                        before: heads,
                    });
                }
                read
            }
            Poll::Pending => match &mut self.deadline {
                Some(deadline) => deadline.sleep.as_mut().poll(cx).map(|()| {
                    Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "the head of a request took too long",
                    ))
                }),
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
        Pin::new(&mut self.stream).poll_write(cx, buffer)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
