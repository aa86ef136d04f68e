use std::convert::Infallible;

use futures_util::future::join_all;
use http_body_util::{BodyExt as _, Full, StreamBody};

use super::*;

fn bandwidth(bytes_per_second: u64) -> Arc<Bandwidth> {
    let held = Counter::new("held", "for tests").unwrap();
    Arc::new(Bandwidth::new(NonZeroU64::new(bytes_per_second).unwrap(), held))
}

/// A body of equal chunks.
fn body_of_chunks(chunks: usize, bytes: usize) -> impl Body<Data = Bytes, Error = Infallible> + Unpin {
    let chunk = Bytes::from(vec![b'x'; bytes]);
    let frames = std::iter::repeat_n(chunk, chunks).map(|chunk| Ok(Frame::data(chunk)));
    StreamBody::new(futures_util::stream::iter(frames.collect::<Vec<_>>()))
}

#[track_caller]
fn check_send_times(bytes_per_second: u64, chunks: &[(u64, usize)], expected: &[u64]) {
    let start = Instant::now();
    let bytes_per_second = NonZeroU64::new(bytes_per_second).unwrap();
    let mut bucket = LeakyBucket { bytes_per_second, drained_at: start };
    let at = |millis: u64| start + Duration::from_millis(millis);
    let send_times = chunks
        .iter()
        .map(|(arrived_at, bytes)| bucket.reserve(*bytes, at(*arrived_at)).duration_since(start).as_millis());
    assert_eq!(send_times.collect::<Vec<_>>(), expected.iter().map(|millis| u128::from(*millis)).collect::<Vec<_>>());
}

#[test]
fn bucket_delays_chunks_beyond_rate_and_burst() {
    // A second's worth passes at once, then bytes at the rate.
    check_send_times(1_000, &[(0, 500), (0, 500), (0, 500), (0, 500), (0, 0)], &[0, 0, 0, 500, 1_000]);
    // An idle time is worth one second, however long it was.
    check_send_times(
        1_000,
        &[(0, 2_000), (90_000, 1_000), (90_000, 1_000), (90_000, 1_000)],
        &[0, 90_000, 90_000, 91_000],
    );
    // Chunks within the limit are never delayed.
    check_send_times(1_000, &[(0, 100), (100, 100), (200, 100), (300, 100)], &[0, 100, 200, 300]);
    // No number of bytes overflows.
    check_send_times(u64::MAX, &[(0, usize::MAX), (0, usize::MAX)], &[0, 0]);
    let mut bucket = LeakyBucket { bytes_per_second: NonZeroU64::MIN, drained_at: Instant::now() };
    assert_eq!(bucket.drain_time(usize::MAX), Duration::from_nanos(u64::MAX));
    bucket.reserve(1, Instant::now());
}

#[tokio::test(start_paused = true)]
async fn throttled_body_is_complete_and_takes_its_share_of_time() {
    let started = Instant::now();
    let limit = bandwidth(1_000);
    let read = ThrottledBody::new(body_of_chunks(10, 500), Some(&limit)).collect().await.unwrap().to_bytes();
    assert_eq!(read.len(), 5_000);
    // The last chunk passes after the 4,500 bytes before it, less the burst of one second.
    assert_eq!(started.elapsed(), Duration::from_millis(3_500));
    assert!((limit.waited_seconds.get() - 3.5).abs() < 0.01, "{}", limit.waited_seconds.get());
}

#[tokio::test(start_paused = true)]
async fn streams_share_one_limit_chunk_by_chunk() {
    let started = Instant::now();
    let limit = bandwidth(1_000);
    let download = || async {
        ThrottledBody::new(body_of_chunks(20, 500), Some(&limit)).collect().await.unwrap();
        started.elapsed()
    };
    let downloads = join_all((0..4).map(|_| download()));
    let watch = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        ThrottledBody::new(body_of_chunks(1, 10), Some(&limit)).collect().await.unwrap();
        started.elapsed()
    };
    let (downloads, watch) = tokio::join!(downloads, watch);
    // 40,000 bytes at 1,000 per second: all downloads end together, except for the burst of the first one; the event waited for
    // the current chunk and for one of each download.
    assert!(downloads.iter().all(|took| (32..40).contains(&took.as_secs())), "{downloads:?}");
    assert!(watch <= Duration::from_secs(5) + 5 * Duration::from_millis(500), "{watch:?}");
}

#[tokio::test(start_paused = true)]
async fn many_short_bodies_are_throttled_together() {
    let started = Instant::now();
    let limit = bandwidth(1_000);
    join_all((0..50).map(|_| ThrottledBody::new(Full::new(Bytes::from_static(&[0; 100])), Some(&limit)).collect()))
        .await;
    assert_eq!(started.elapsed(), Duration::from_millis(3_900));
}

#[tokio::test(start_paused = true)]
async fn body_without_limit_passes_unchanged() {
    let started = Instant::now();
    let mut body = ThrottledBody::new(Full::new(Bytes::from(vec![0; 1 << 20])), None);
    assert_eq!(body.size_hint().exact(), Some(1 << 20));
    assert_eq!(body.frame().await.unwrap().unwrap().data_ref().unwrap().len(), 1 << 20);
    assert!(body.is_end_stream());
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn delayed_chunk_keeps_stream_open() {
    let limit = bandwidth(10);
    limit.wait_for(100).await;
    let mut body = ThrottledBody::new(Full::new(Bytes::from_static(b"last")), Some(&limit));
    assert!(futures_util::poll!(body.frame()).is_pending());
    assert!(!body.is_end_stream() && body.size_hint().exact() == Some(4));
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "last");
    assert!(body.is_end_stream() && body.frame().await.is_none());
}
