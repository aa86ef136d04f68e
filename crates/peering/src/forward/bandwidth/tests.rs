use std::convert::Infallible;

use futures_util::future::join_all;
use http_body_util::{BodyExt as _, Full, StreamBody};

use super::*;

fn bandwidth(bytes_per_second: u64) -> Arc<Bandwidth> {
    let held = Counter::new("held", "for tests").unwrap();
    Arc::new(Bandwidth::new(NonZeroU64::new(bytes_per_second).unwrap(), held))
}

/// So many pieces of so many bytes.
fn body(pieces: usize, bytes: usize) -> impl Body<Data = Bytes, Error = Infallible> + Unpin {
    let piece = Bytes::from(vec![b'x'; bytes]);
    let frames = std::iter::repeat_n(piece, pieces).map(|piece| Ok(Frame::data(piece)));
    StreamBody::new(futures_util::stream::iter(frames.collect::<Vec<_>>()))
}

#[track_caller]
fn check(bytes_per_second: u64, pieces: &[(u64, usize)], expected: &[u64]) {
    let start = Instant::now();
    let bytes_per_second = NonZeroU64::new(bytes_per_second).unwrap();
    let mut bucket = Bucket { bytes_per_second, paid_at: start };
    let at = |millis: u64| start + Duration::from_millis(millis);
    let went = pieces.iter().map(|(came, bytes)| bucket.add(*bytes, at(*came)).duration_since(start).as_millis());
    assert_eq!(went.collect::<Vec<_>>(), expected.iter().map(|millis| u128::from(*millis)).collect::<Vec<_>>());
}

#[test]
fn a_piece_goes_when_those_before_it_are_paid_for() {
    // A second's worth goes at once, and then as much as flows.
    check(1_000, &[(0, 500), (0, 500), (0, 500), (0, 500), (0, 0)], &[0, 0, 0, 500, 1_000]);
    // A quiet time is worth a second, however long it was.
    check(1_000, &[(0, 2_000), (90_000, 1_000), (90_000, 1_000), (90_000, 1_000)], &[0, 90_000, 90_000, 91_000]);
    // What does not exceed the limit is never held.
    check(1_000, &[(0, 100), (100, 100), (200, 100), (300, 100)], &[0, 100, 200, 300]);
    // Nor is any number of bytes too many.
    check(u64::MAX, &[(0, usize::MAX), (0, usize::MAX)], &[0, 0]);
    let mut bucket = Bucket { bytes_per_second: NonZeroU64::MIN, paid_at: Instant::now() };
    assert_eq!(bucket.cost(usize::MAX), Duration::from_nanos(u64::MAX));
    bucket.add(1, Instant::now());
}

#[tokio::test(start_paused = true)]
async fn a_body_takes_as_long_as_its_bytes_and_arrives_whole() {
    let started = Instant::now();
    let limit = bandwidth(1_000);
    let read = Metered::new(body(10, 500), Some(&limit)).collect().await.unwrap().to_bytes();
    assert_eq!(read.len(), 5_000);
    // The last piece goes when the 4,500 bytes before it are paid for, but for a second.
    assert_eq!(started.elapsed(), Duration::from_millis(3_500));
    assert!((limit.held.get() - 3.5).abs() < 0.01, "{}", limit.held.get());
}

#[tokio::test(start_paused = true)]
async fn streams_share_one_limit_and_take_turns() {
    let started = Instant::now();
    let limit = bandwidth(1_000);
    let download = || async {
        Metered::new(body(20, 500), Some(&limit)).collect().await.unwrap();
        started.elapsed()
    };
    let downloads = join_all((0..4).map(|_| download()));
    let watch = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        Metered::new(body(1, 10), Some(&limit)).collect().await.unwrap();
        started.elapsed()
    };
    let (downloads, watch) = tokio::join!(downloads, watch);
    // 40,000 bytes at 1,000 a second: all end together, but for the burst that the first one had for itself; and the event
    // waited for the piece that was going and for one of each.
    assert!(downloads.iter().all(|took| (32..40).contains(&took.as_secs())), "{downloads:?}");
    assert!(watch <= Duration::from_secs(5) + 5 * Duration::from_millis(500), "{watch:?}");
}

#[tokio::test(start_paused = true)]
async fn many_short_answers_are_held_too() {
    let started = Instant::now();
    let limit = bandwidth(1_000);
    join_all((0..50).map(|_| Metered::new(Full::new(Bytes::from_static(&[0; 100])), Some(&limit)).collect())).await;
    assert_eq!(started.elapsed(), Duration::from_millis(3_900));
}

#[tokio::test(start_paused = true)]
async fn without_a_limit_nothing_waits_and_nothing_changes() {
    let started = Instant::now();
    let mut body = Metered::new(Full::new(Bytes::from(vec![0; 1 << 20])), None);
    assert_eq!(body.size_hint().exact(), Some(1 << 20));
    assert_eq!(body.frame().await.unwrap().unwrap().data_ref().unwrap().len(), 1 << 20);
    assert!(body.is_end_stream());
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_held_piece_is_still_to_come() {
    let limit = bandwidth(10);
    limit.pass(100).await;
    let mut body = Metered::new(Full::new(Bytes::from_static(b"last")), Some(&limit));
    assert!(futures_util::poll!(body.frame()).is_pending());
    assert!(!body.is_end_stream() && body.size_hint().exact() == Some(4));
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "last");
    assert!(body.is_end_stream() && body.frame().await.is_none());
}
