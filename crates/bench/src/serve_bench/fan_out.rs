//! Rate at which changes reach many watchers.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use tokio::time::{Instant, timeout};

use super::load::LoadGenerator;
use super::{ServeBenchSizes, new_object};

const WATCH_PATH: &str = "/api/v1/namespaces/kube-system/configmaps";
/// Writers that produce the events.
const WRITERS: usize = 16;
/// Bounds a hanging run.
const WAIT_TIMEOUT: Duration = Duration::from_secs(300);

/// Events per second summed over all watchers, from the first write until the last watcher has the last event.
pub(super) async fn measure(load: &LoadGenerator, sizes: ServeBenchSizes) -> anyhow::Result<f64> {
    // From the newest revision: 0 would start with the existing objects.
    let newest = load.newest_revision(WATCH_PATH).await?;
    let mut watchers = Vec::new();
    for _ in 0..sizes.watchers {
        watchers.push(open_watch(load, &newest).await?);
    }
    let started = Instant::now();
    let writing = load.repeat(WRITERS, sizes.events.div_ceil(WRITERS), "POST", WATCH_PATH, new_object);
    let events = sizes.events.div_ceil(WRITERS) * WRITERS;
    let reading = futures_util::future::try_join_all(watchers.into_iter().map(|body| read_events(body, events)));
    let (_, _) = timeout(WAIT_TIMEOUT, futures_util::future::try_join(writing, reading))
        .await
        .context("watchers did not receive all events in time")??;
    Ok((events * sizes.watchers) as f64 / started.elapsed().as_secs_f64())
}

async fn open_watch(load: &LoadGenerator, newest: &str) -> anyhow::Result<Incoming> {
    let mut sender = load.connect().await?;
    let path = format!("{WATCH_PATH}?watch=1&resourceVersion={newest}");
    let request = http::Request::get(path).header("host", "kubernetes.default.svc").body(Full::<Bytes>::default())?;
    sender.ready().await?;
    let response = sender.send_request(request).await?;
    ensure!(response.status().is_success(), "watch: {}", response.status());
    Ok(response.into_body())
}

/// Reads until `events` lines have arrived.
async fn read_events(mut body: Incoming, events: usize) -> anyhow::Result<()> {
    let mut left = events;
    while left > 0 {
        let frame = body.frame().await.context("the watch ended")??;
        let lines = frame.data_ref().map_or(0, |data| data.iter().filter(|byte| **byte == b'\n').count());
        ensure!(lines <= left, "a watcher received more events than writes");
        left -= lines;
    }
    Ok(())
}
