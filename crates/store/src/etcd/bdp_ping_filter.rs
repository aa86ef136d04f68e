//! Drops the PINGs with which etcd's gRPC server measures the bandwidth of a connection.
//!
//! grpc-go sends such a PING along with the data that it reads, to estimate the bandwidth-delay product (BDP) and size
//! its flow control window. On the probe connection, which carries a few bytes at a time, this doubles the packets and
//! wakes both sides twice per probe. grpc-go sends the next BDP PING only after a reply to the last, so dropping the
//! first suppresses all of them. Keepalive PINGs carry another payload and pass.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The payload of grpc-go's BDP PING.
const BDP_PING_PAYLOAD: [u8; 8] = [2, 4, 16, 16, 9, 14, 7, 7];

/// An HTTP/2 frame header: three bytes of length, type, flags, four bytes of stream id.
const FRAME_HEAD_BYTES: usize = 9;

const PING_FRAME_BYTES: usize = FRAME_HEAD_BYTES + BDP_PING_PAYLOAD.len();

/// The header of a PING that is no ACK, without the stream id, which is always zero.
const PING_REQUEST_HEAD: [u8; 5] = [0, 0, 8, 6, 0];

/// Bytes per read from the connection; responses to probes are shorter than 100 bytes.
const READ_BUFFER_BYTES: usize = 1 << 10;

/// A byte stream without BDP PINGs from the server.
#[derive(Debug)]
pub(super) struct BdpPingFilter<Io> {
    io: Io,
    frame_filter: FrameFilter,
    /// Filtered bytes, the first `consumed` of which the reader has taken.
    filtered: Vec<u8>,
    consumed: usize,
}

impl<Io> BdpPingFilter<Io> {
    pub(super) fn new(io: Io) -> Self {
        Self { io, frame_filter: FrameFilter::default(), filtered: Vec::new(), consumed: 0 }
    }
}

impl<Io: AsyncRead + Unpin> AsyncRead for BdpPingFilter<Io> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.consumed == this.filtered.len() {
            this.filtered.clear();
            this.consumed = 0;
            let mut room = [0; READ_BUFFER_BYTES];
            let mut read = ReadBuf::new(&mut room);
            ready!(Pin::new(&mut this.io).poll_read(context, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            this.frame_filter.filter(read.filled(), &mut this.filtered);
        }
        let left = &this.filtered[this.consumed..];
        let given = left.len().min(buffer.remaining());
        buffer.put_slice(&left[..given]);
        this.consumed += given;
        Poll::Ready(Ok(()))
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for BdpPingFilter<Io> {
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

/// Splits the byte stream into frames, independently of read boundaries, and drops BDP PINGs.
#[derive(Debug, Default)]
struct FrameFilter {
    /// The start of a frame that cannot be classified yet.
    head: Vec<u8>,
    /// Payload bytes left of the frame that is passing.
    passing_bytes: usize,
}

impl FrameFilter {
    /// Appends `bytes` without BDP PINGs to `output`.
    fn filter(&mut self, mut bytes: &[u8], output: &mut Vec<u8>) {
        while let [first, rest @ ..] = bytes {
            if self.passing_bytes > 0 {
                let (frame, next) = bytes.split_at(self.passing_bytes.min(bytes.len()));
                output.extend_from_slice(frame);
                self.passing_bytes -= frame.len();
                bytes = next;
                continue;
            }
            self.head.push(*first);
            bytes = rest;
            if let Some(passing) = payload_bytes_if_passed(&self.head) {
                self.passing_bytes = passing;
                output.append(&mut self.head);
            } else if self.head.len() == PING_FRAME_BYTES {
                self.head.clear();
            }
        }
    }
}

/// The length of the payload still to pass if the frame passes; `None` while `beginning` is too short to decide, or if
/// it is a whole BDP PING.
fn payload_bytes_if_passed(beginning: &[u8]) -> Option<usize> {
    let head = beginning.get(..FRAME_HEAD_BYTES)?;
    if !head.starts_with(&PING_REQUEST_HEAD) {
        return Some(usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]));
    }
    let payload = beginning.get(FRAME_HEAD_BYTES..PING_FRAME_BYTES)?;
    (payload != BDP_PING_PAYLOAD).then_some(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, kind, flags, 0, 0, 0, 0], payload].concat()
    }

    /// Checks the frames that pass, with the input split into chunks of every size.
    #[track_caller]
    fn check(frames: &[Vec<u8>], expected: &[Vec<u8>]) {
        let (all, expected) = (frames.concat(), expected.concat());
        for size in 1..=all.len() {
            let (mut filter, mut passed) = (FrameFilter::default(), Vec::new());
            for piece in all.chunks(size) {
                filter.filter(piece, &mut passed);
            }
            assert_eq!(passed, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn filter_drops_only_bdp_pings() {
        let [data, empty, window] = [frame(0, 1, b"an answer"), frame(0, 1, b""), frame(8, 0, &[0, 0, 0, 10])];
        let [alive, measuring, answer] =
            [frame(6, 0, &[0; 8]), frame(6, 0, &BDP_PING_PAYLOAD), frame(6, 1, &BDP_PING_PAYLOAD)];
        check(
            &[window.clone(), measuring.clone(), data.clone(), alive.clone(), measuring, empty.clone(), answer.clone()],
            &[window, data, alive, empty, answer],
        );
    }

    #[test]
    fn filter_passes_bdp_ping_bytes_inside_another_frame() {
        let inside = frame(0, 0, &frame(6, 0, &BDP_PING_PAYLOAD));
        let inside = std::slice::from_ref(&inside);
        check(inside, inside);
    }
}
