//! Concurrent clients of a store.

use std::future::Future;

use anyhow::ensure;
use tasks::Tasks;
use tokio::sync::mpsc;

/// Runs `work` for each worker concurrently, and returns their results in the order of completion.
pub(super) async fn run<Working, T>(workers: usize, work: impl Fn(usize) -> Working) -> anyhow::Result<Vec<T>>
where
    Working: Future<Output = anyhow::Result<T>> + Send + 'static,
    T: Send + 'static,
{
    let tasks = Tasks::new();
    let (ended, mut results) = mpsc::channel(workers);
    for worker in 0..workers {
        let (ended, working) = (ended.clone(), work(worker));
        tasks.spawn_once("bench worker", async move {
            let _ = ended.send(working.await).await;
        });
    }
    drop(ended);
    let mut all = Vec::with_capacity(workers);
    while let Some(result) = results.recv().await {
        all.push(result?);
    }
    ensure!(all.len() == workers, "a worker panicked");
    Ok(all)
}
