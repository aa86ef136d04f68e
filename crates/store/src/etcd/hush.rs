//! A connection on which etcd does not measure.
//!
//! gRPC in Go measures each connection: along with what it reads it sends a PING of its own making, to learn from its answer
//! how much the other side may send ahead. On the connection for probes, which carries a few bytes at a time, that doubles the
//! packets and wakes both sides twice for each of them. Such a PING is followed by another only once it was answered, so the
//! first is kept from us and is the last. Every other PING passes: those that ask whether we live are none of these.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What a PING that measures carries.
const MEASURING: [u8; 8] = [2, 4, 16, 16, 9, 14, 7, 7];

/// The head of an HTTP/2 frame: length in three bytes, type, flags, stream in four.
const HEAD_BYTES: usize = 9;

/// A whole PING.
const PING_BYTES: usize = HEAD_BYTES + MEASURING.len();

/// The head of a PING that wants an answer, without its last four bytes: the stream, which is always zero.
const PING_HEAD: [u8; 5] = [0, 0, 8, 6, 0];

/// Read from the connection at once; answers to probes have less than a hundred bytes.
const READ_BYTES: usize = 1 << 10;

/// A connection without PINGs that measure.
#[derive(Debug)]
pub(super) struct Hushed<Io> {
    io: Io,
    sieve: Sieve,
    /// What has passed, and how much of it was taken.
    passed: Vec<u8>,
    taken: usize,
}

impl<Io> Hushed<Io> {
    pub(super) fn new(io: Io) -> Self {
        Self { io, sieve: Sieve::default(), passed: Vec::new(), taken: 0 }
    }
}

impl<Io: AsyncRead + Unpin> AsyncRead for Hushed<Io> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.taken == this.passed.len() {
            this.passed.clear();
            this.taken = 0;
            let mut room = [0; READ_BYTES];
            let mut read = ReadBuf::new(&mut room);
            ready!(Pin::new(&mut this.io).poll_read(context, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            this.sieve.sift(read.filled(), &mut this.passed);
        }
        let left = &this.passed[this.taken..];
        let given = left.len().min(buffer.remaining());
        buffer.put_slice(&left[..given]);
        this.taken += given;
        Poll::Ready(Ok(()))
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for Hushed<Io> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

/// Tells frames apart, however they are cut into reads.
#[derive(Debug, Default)]
struct Sieve {
    /// The beginning of a frame of which it is not known yet whether it passes.
    head: Vec<u8>,
    /// How much is left of a frame that passes.
    passing: usize,
}

impl Sieve {
    fn sift(&mut self, mut bytes: &[u8], passed: &mut Vec<u8>) {
        while let [first, rest @ ..] = bytes {
            if self.passing > 0 {
                let (frame, next) = bytes.split_at(self.passing.min(bytes.len()));
                passed.extend_from_slice(frame);
                self.passing -= frame.len();
                bytes = next;
                continue;
            }
            self.head.push(*first);
            bytes = rest;
            if let Some(passing) = judge(&self.head) {
                self.passing = passing;
                passed.append(&mut self.head);
            } else if self.head.len() == PING_BYTES {
                self.head.clear();
            }
        }
    }
}

/// How much of a frame follows its beginning, if it passes. Nobody knows before there is enough of it.
fn judge(beginning: &[u8]) -> Option<usize> {
    let head = beginning.get(..HEAD_BYTES)?;
    if !head.starts_with(&PING_HEAD) {
        return Some(usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]));
    }
    let payload = beginning.get(HEAD_BYTES..PING_BYTES)?;
    (payload != MEASURING).then_some(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, kind, flags, 0, 0, 0, 0], payload].concat()
    }

    /// Cut into pieces of every size, the frames that pass are the ones expected.
    #[track_caller]
    fn check(frames: &[Vec<u8>], expected: &[Vec<u8>]) {
        let (all, expected) = (frames.concat(), expected.concat());
        for size in 1..=all.len() {
            let (mut sieve, mut passed) = (Sieve::default(), Vec::new());
            for piece in all.chunks(size) {
                sieve.sift(piece, &mut passed);
            }
            assert_eq!(passed, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn only_the_ping_that_measures_is_kept_back() {
        let [data, empty, window] = [frame(0, 1, b"an answer"), frame(0, 1, b""), frame(8, 0, &[0, 0, 0, 10])];
        let [alive, measuring, answer] = [frame(6, 0, &[0; 8]), frame(6, 0, &MEASURING), frame(6, 1, &MEASURING)];
        check(
            &[window.clone(), measuring.clone(), data.clone(), alive.clone(), measuring, empty.clone(), answer.clone()],
            &[window, data, alive, empty, answer],
        );
    }

    #[test]
    fn what_looks_like_one_inside_of_another_frame_passes() {
        let inside = frame(0, 0, &frame(6, 0, &MEASURING));
        let inside = std::slice::from_ref(&inside);
        check(inside, inside);
    }
}
