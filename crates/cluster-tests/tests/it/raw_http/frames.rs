//! HTTP/2 frames without a library, so that they can be malformed.

use cluster_tests::Client;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
const GOAWAY: u8 = 7;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

/// The largest payload of a frame that a server accepts by default.
pub(super) const PAYLOAD_MAX: usize = 16 << 10;

/// One frame.
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// One header field: a literal without indexing and without Huffman coding.
pub(super) fn field(name: &str, value: &str) -> Vec<u8> {
    [vec![0], string(name), string(value)].concat()
}

/// HPACK's length-prefixed string.
pub(super) fn string(text: &str) -> Vec<u8> {
    let mut encoded = Vec::new();
    let mut length = text.len();
    if length < 127 {
        encoded.push(u8::try_from(length).unwrap());
    } else {
        encoded.push(127);
        length -= 127;
        while length >= 128 {
            encoded.push(u8::try_from(length % 128 + 128).unwrap());
            length /= 128;
        }
        encoded.push(u8::try_from(length).unwrap());
    }
    encoded.extend_from_slice(text.as_bytes());
    encoded
}

/// The fields of a request with a JSON body.
pub(super) fn request_fields(method: &str, path: &str) -> Vec<u8> {
    let pseudo = [(":method", method), (":scheme", "https"), (":authority", "x"), (":path", path)];
    pseudo
        .into_iter()
        .chain([("content-type", "application/json")])
        .flat_map(|(name, value)| field(name, value))
        .collect()
}

/// What a server did with a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StreamOutcome {
    /// The body of a whole response.
    Response(String),
    /// RST_STREAM.
    Reset,
    /// GOAWAY, or the end of the connection.
    ConnectionClosed,
}

/// A client's connection after its preface.
pub(super) struct H2Socket(TlsStream<TcpStream>);

impl H2Socket {
    pub(super) async fn open(client: &Client) -> Self {
        let mut stream = client.tls_stream(Some(b"h2")).await.unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
        Self(stream)
    }

    /// Writes bytes; `Err` once the server has closed the connection.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.write_all(bytes).await?;
        self.0.flush().await
    }

    /// The next frame: kind, flags, stream and payload. `None` at the end of the connection.
    async fn read_frame(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.0.read_exact(&mut payload).await.ok()?;
        Some((head[3], head[4], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload))
    }

    /// Reads until a stream ends.
    pub(super) async fn outcome(&mut self, stream: u32) -> StreamOutcome {
        let mut body = Vec::new();
        loop {
            match self.read_frame().await {
                None | Some((GOAWAY, ..)) => return StreamOutcome::ConnectionClosed,
                Some((RST_STREAM, _, of, _)) if of == stream => return StreamOutcome::Reset,
                Some((kind @ (DATA | HEADERS), flags, of, payload)) if of == stream => {
                    if kind == DATA {
                        body.extend_from_slice(&payload);
                    }
                    if flags & END_STREAM != 0 {
                        return StreamOutcome::Response(String::from_utf8_lossy(&body).into_owned());
                    }
                }
                Some(_) => {}
            }
        }
    }
}
