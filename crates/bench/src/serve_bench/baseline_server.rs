//! Baseline: hyper and rustls with a constant response.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tasks::Tasks;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// A server that sends the same bytes for every request. It has its own runtime threads, like a separate process.
pub(crate) struct BaselineServer {
    address: SocketAddr,
    runtime: Option<tokio::runtime::Runtime>,
}

impl BaselineServer {
    pub(crate) fn start(pki: &Path, body: Bytes) -> anyhow::Result<Self> {
        let config = transport::server::server_config(
            &pki.join("apiserver.crt"),
            &pki.join("apiserver.key"),
            &transport::TlsPolicy::default(),
        )?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let tasks = Tasks::new();
        let guard = runtime.enter();
        let listener = TcpListener::from_std(listener)?;
        tasks.clone().spawn_once("bare", accept(listener, acceptor, body, tasks));
        drop(guard);
        Ok(Self { address, runtime: Some(runtime) })
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }
}

impl Drop for BaselineServer {
    /// Shuts down in the background, because a runtime must not block inside another one.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, body: Bytes, tasks: Tasks) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, body) = (acceptor.clone(), body.clone());
        tasks.spawn_once("bare connection", async move {
            let _ = stream.set_nodelay(true);
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(move |_request| {
                let body = body.clone();
                async move {
                    let mut response = http::Response::new(Full::new(body));
                    let json = http::HeaderValue::from_static("application/json");
                    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
                    Ok::<_, Infallible>(response)
                }
            });
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}
